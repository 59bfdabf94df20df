"""The samples of a run as Parquet: all timed steps, and their messages."""

import io
from pathlib import Path

import polars as pl
import pytest

from made_runs import MadeCell, make_run, messy_cells
from worldsize.report import samples as exports
from worldsize.report.samples import messages, parquet, samples
from worldsize.results.files import append_lines, cell_folder, line_of
from worldsize.results.folder import load_run
from worldsize.results.step_records import SpanRecord


def spans(run: Path, cell: str, rank: int, steps: range, kinds: list[str]) -> None:
    """Messages of one cell's rank."""
    with (cell_folder(run, cell) / f"rank{rank}.spans.jsonl").open("wb") as file:
        for step in steps:
            times = [step + 0.1 * number for number in range(len(kinds))]
            sizes = [100 + number for number in range(len(kinds))]
            line = SpanRecord(session=0, step=step, kind=kinds, payload_bytes=sizes, issued_s=times, done_s=times)
            append_lines(file.fileno(), [line_of(line)])


def test_all_timed_steps_of_all_ranks_and_cells(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1, 64, blocks=2), MadeCell("ddp", 2, 32, step_s=0.25, blocks=4)]
    run = load_run(make_run(tmp_path, cells))
    found = pl.read_parquet(io.BytesIO(parquet(samples(run))))
    assert found.height == 2 * 3 + 2 * 4 * 3
    ddp = found.filter(pl.col("cell") == "ddp-w2-b32")
    assert set(ddp.select("strategy", "world_size", "local_batch", "global_batch").iter_rows()) == {("ddp", 2, 32, 64)}
    assert ddp["rank"].unique(maintain_order=True).to_list() == [0, 1]
    assert ddp.filter(pl.col("rank") == 1)["step_s"].to_list() == pytest.approx([0.25] * 12, rel=0.1)
    assert ddp["forward_s"].null_count() == 0
    assert ddp["step"].min() == 2, "the two steps that warm up are not there"
    assert found["part"].null_count() == found.height


def test_further_parts_of_an_experiment_are_named(tmp_path: Path) -> None:
    make_run(tmp_path / "parts" / "accuracy", [MadeCell("ddp", 2, blocks=1)])
    found = samples(load_run(make_run(tmp_path, [MadeCell("single", 1, blocks=1)]))).collect()
    assert found.group_by("part", maintain_order=True).len().rows() == [(None, 3), ("accuracy", 6)]


def test_each_message_of_a_timed_step_has_a_row(tmp_path: Path) -> None:
    run = make_run(tmp_path, [MadeCell("single", 1), MadeCell("ddp", 2, blocks=1)])
    spans(run, "ddp-w2-b32", 0, range(5), ["all_reduce", "broadcast"])
    spans(run, "ddp-w2-b32", 1, range(5), [])
    sent = messages(load_run(run))
    assert sent is not None
    found = sent.collect()
    assert found.select("rank", "step", "message", "kind", "payload_bytes").rows() == [
        (0, step, number, kind, 100 + number)
        for step in (2, 3, 4)
        for number, kind in enumerate(("all_reduce", "broadcast"))
    ]
    assert found["done_s"].to_list() == pytest.approx([2, 2.1, 3, 3.1, 4, 4.1])
    assert set(found["cell"]) == {"ddp-w2-b32"}


def test_too_many_messages_are_left_to_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path, [MadeCell("ddp", 2, blocks=1)])
    spans(run, "ddp-w2-b32", 0, range(5), ["all_reduce"])
    monkeypatch.setattr(exports, "MAX_MESSAGES", 4)
    assert messages(load_run(run)) is None


def test_a_study_without_a_timed_step_has_the_same_columns(tmp_path: Path) -> None:
    full = load_run(make_run(tmp_path / "full", messy_cells()))
    none = load_run(make_run(tmp_path / "none", [], never_started=[MadeCell("ddp", 2)]))
    assert samples(none).collect_schema() == samples(full).collect_schema()
    assert samples(none).collect().height == 0
    assert messages(none) is not None
