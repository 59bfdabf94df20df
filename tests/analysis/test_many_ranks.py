"""A run of many ranks with known truth, and its messages against what a loop over each of them finds."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from large_folder import make_large_run
from large_samples import BLOCK_STEPS, LINK_BYTES_PER_S, LargeRun
from worldsize.analysis import messages as of_messages
from worldsize.analysis.communication import communication
from worldsize.analysis.intervals import length, union, union_lengths
from worldsize.analysis.messages import Collectives, collectives, messages
from worldsize.analysis.parts import with_parts
from worldsize.analysis.ranks import ranks, training_steps
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.results.columns import pack
from worldsize.results.folder import Cell, load_run
from worldsize.results.records import STEP_PARTS
from worldsize.results.samples import TakenApartStep
from worldsize.results.step_records import SpanRecord

MADE = LargeRun(worlds=(1, 4, 40), steps=120)
SMALL, LARGE = (f"ddp-w{world}-b32" for world in MADE.worlds[1:])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_large_run(tmp_path_factory.mktemp("made") / "run", MADE)
    pack(folder / "cells" / LARGE)
    return folder


@pytest.fixture(scope="module")
def analysis(folder: Path) -> StudyAnalysis:
    return analyse(load_run(folder))


def test_the_lines_are_records_whose_parts_add_up(folder: Path) -> None:
    place = folder / "cells" / SMALL
    steps = [TakenApartStep.model_validate_json(line) for line in (place / "rank3.jsonl").read_text().splitlines()]
    assert [step.timed for step in steps].count(True) == MADE.blocks * BLOCK_STEPS
    parts = with_parts(load_run(folder).cells[SMALL]).filter(pl.col("rank") == 3).collect()
    for step in parts.iter_rows(named=True):
        assert sum(step[part] for part in STEP_PARTS) == pytest.approx(step["step_s"])
        assert 0 <= step["overlapped_s"] <= step["comm_s"]
        assert step["exposed_sync_s"] == pytest.approx(step["comm_s"] - step["overlapped_s"])
    spans = [SpanRecord.model_validate_json(line) for line in (place / "rank3.spans.jsonl").read_text().splitlines()]
    assert [span.step for span in spans] == list(range(MADE.steps))


@pytest.mark.parametrize("world", MADE.worlds[1:])
def test_speedup_step_and_bandwidth_are_the_true_ones(analysis: StudyAnalysis, world: int) -> None:
    [cell] = [cell for cell in analysis.cells if cell.world_size == world]
    row = analysis.scaling_of(cell)
    assert row is not None
    assert row.speedup is not None
    assert row.speedup.estimate.value == pytest.approx(MADE.speedup(world), rel=0.01)
    assert cell.summary is not None
    assert cell.summary.step_s.value == pytest.approx(MADE.step_s(world), rel=0.03)
    assert cell.communication is not None
    assert cell.communication.busbw_bytes_per_s == pytest.approx(LINK_BYTES_PER_S, rel=0.03)


def test_the_straggler_is_the_one_that_is_waited_for(analysis: StudyAnalysis) -> None:
    found = {cell.id: cell.communication for cell in analysis.cells if cell.communication}
    sent = found[LARGE].messages.filter(pl.col("kind") == "all_reduce")
    assert set(sent["last_rank"]) == {MADE.straggler}
    # It computes 30 ms longer than the others, and the last message is issued after all of that.
    last = sent.filter(pl.col("number") == 3)["waited_ns"].mean()
    assert last == pytest.approx(1e9 * 0.3 * 0.09, rel=0.1)
    assert found[SMALL].wait_s < 0.1 * found[LARGE].wait_s


def test_each_rank_has_its_loss_and_its_step(folder: Path) -> None:
    cell = load_run(folder).cells[LARGE]
    found = ranks(cell, (20, 1000))
    assert [each.rank for each in found] == list(range(40))
    for each in found[::13]:
        mine = cell.steps.filter(rank=each.rank)
        assert each.loss_at == {20: mine.filter(step=19)["loss"].item(), 1000: None}
        assert each.mean_loss == pytest.approx(mine["loss"].mean())
        assert each.step_s == pytest.approx(mine.filter(pl.col("step") > 0)["step_s"].mean())


def test_steps_that_were_run_again_are_there_once(tmp_path: Path, folder: Path) -> None:
    """Two sessions: the second went on at step 100, and the first had already been at 119."""
    place = Path(shutil.copytree(folder / "cells" / SMALL, tmp_path / "cell"))
    for rank in range(4):
        path = place / f"rank{rank}.jsonl"
        again = [line.replace('"session":0', '"session":1') for line in path.read_text().splitlines()]
        path.write_text("\n".join([path.read_text().strip(), *again[100:]]) + "\n")
    cell = Cell(place, load_run(folder).cells[SMALL].record)
    once = training_steps(cell, "step_s")
    assert once.columns == ["rank", "session", "step", "step_s"]
    assert once.select("rank", "step").rows() == [(rank, step) for rank in range(4) for step in range(120)]
    newest = cell.steps.sort("session").group_by("rank", "step").agg(pl.col("session").last())
    assert once.join(newest, on=["rank", "session", "step"]).height == once.height


def by_a_loop(cell: Cell) -> dict[str, Any]:
    """Waits and transfers of each step of each rank, one after the other."""
    comm = transfer = 0
    for _, step in messages(cell).group_by("rank", "session", "step"):
        comm += length(union(step.select("issued_ns", "done_ns").iter_rows()))
        transfer += length(union(step.select("started_ns", "done_ns").iter_rows()))
    return {"comm_ns": comm, "transfer_ns": transfer}


def whole(found: Collectives | None) -> dict[str, Any]:
    assert found is not None
    return found.unions.select("comm_ns", "transfer_ns").sum().row(0, named=True)


def as_it_is(spans: pl.DataFrame) -> pl.DataFrame:
    return spans


def ragged(spans: pl.DataFrame) -> pl.DataFrame:
    """Of some steps messages are missing, of others all."""
    lists = pl.col("kind", "payload_bytes", "issued_s", "done_s")
    return spans.with_columns(lists.list.head(pl.col("step") % 5))


def out_of_order(spans: pl.DataFrame) -> pl.DataFrame:
    return spans.with_columns(pl.col("kind", "payload_bytes", "issued_s", "done_s").list.reverse())


def steps_missing(spans: pl.DataFrame) -> pl.DataFrame:
    return spans.filter(pl.col("step") % 7 != 0)


@pytest.mark.parametrize("most", [1, 1500, 1_000_000], ids="at most {} at a time".format)
@pytest.mark.parametrize("change", [as_it_is, ragged, out_of_order, steps_missing])
def test_waits_and_transfers_are_what_a_loop_finds(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pl.DataFrame], pl.DataFrame],
    most: int,
) -> None:
    place = Path(shutil.copytree(folder / "cells" / SMALL, tmp_path / "cell"))
    for path in [place / f"rank{rank}.spans.jsonl" for rank in (0, 2)]:
        change(pl.read_ndjson(path)).write_ndjson(path)
    cell = Cell(place, load_run(folder).cells[SMALL].record)
    monkeypatch.setattr(of_messages, "MAX_MESSAGES", most)
    monkeypatch.setattr(of_messages, "MAX_KEPT", 5 * most if most > 1 else 0)
    assert whole(collectives(cell)) == by_a_loop(cell)


def test_messages_without_their_end_are_left_out_and_told(folder: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(folder / "cells" / SMALL, tmp_path / "cell"))
    path = place / "rank2.spans.jsonl"
    spans = pl.read_ndjson(path)
    for times in (pl.col("done_s").list.head(3), pl.col("done_s").list.eval(pl.element().shift())):
        spans.with_columns(times).write_ndjson(path)
        cell = Cell(place, load_run(folder).cells[SMALL].record)
        communication(cell)
        assert [warning.code for warning in cell.warnings] == ["damaged-samples"]


@given(
    st.integers(1, 5).flatmap(
        lambda count: st.lists(
            st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=count, max_size=count), min_size=1
        )
    )
)
def test_lengths_of_unions_are_those_of_single_ones(rows: list[list[tuple[int, int]]]) -> None:
    times = np.array(rows, dtype=np.int64)
    found = union_lengths(times[:, :, 0], times[:, :, 1])
    assert found.tolist() == [length(union(row)) for row in rows]
