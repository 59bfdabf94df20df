"""Folders that are damaged or made to harm: a report of what is whole, or one or two plain lines; never a traceback."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from made_messages import add_link, add_messages
from made_runs import make_run, usual_cells
from worldsize.analysis.steps import world_steps
from worldsize.analysis.study import analyse
from worldsize.errors import UsageError
from worldsize.report.write import write_report
from worldsize.results import columns, folder
from worldsize.results.columns import pack, parquet_file
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run
from worldsize.results.samples import SPANS, STEPS, TAKEN_APART
from worldsize.results.step_records import ENDS
from worldsize.study.running import pack_complete

CELL = "ddp-w2-b32"
TIMED = 2 * 3
"""Two blocks of three steps; two steps come before them."""
PARTS = ("data_wait_s", "copy_s", "forward_s", "backward_s", "exposed_sync_s", "optimizer_s", "other_s")
LISTS = ("kind", "payload_bytes", "issued_s", "done_s")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cells = [cell for cell in usual_cells(blocks=2) if cell.id in (CELL, "single-w1-b32")]
    run = make_run(tmp_path_factory.mktemp("made") / "run", cells)
    add_messages(run, cells[-1], count=3)
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def test_what_was_there_when_the_study_ended_and_is_gone_was_lost(run: Path) -> None:
    add_link(run, 2)
    pack_complete(run)
    assert load_run(run).unread == {}
    shutil.rmtree(run / "comm")
    shutil.rmtree(cell_folder(run, CELL))
    unread = load_run(run).unread
    assert set(unread) == {CELL, "comm/w2.json"}
    assert "is gone, and the cell was complete" in unread[CELL]
    assert analyse(load_run(run)).damaged
    pack_complete(run)
    assert load_run(run).unread == unread, "another session does not make it good"


def in_lines(file: str, numbers: Iterable[int], **values: Any) -> Callable[[Path], None]:
    """Damage to some lines of a file of CELL."""

    def damage(run: Path) -> None:
        path = cell_folder(run, CELL) / file
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for number in numbers:
            lines[number].update(values)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    return damage


STEP_DAMAGES: dict[str, dict[str, Any]] = {
    "parts 0": dict.fromkeys(PARTS, 0.0),
    "part null": {**dict.fromkeys(TAKEN_APART, 0.01), "forward_s": None},
    "part below 0": {"forward_s": -5.0},
    "part vast": {"forward_s": 1e300},
    "start null": {"start_ns": None},
    "start vast": {"start_ns": 2**63 - 1},
    "offset vast": {"clock_offset_ns": -(2**63)},
    "error below 0": {"clock_error_ns": -1},
    "step null": {"step": None},
    "step vast": {"step": 2**62},
    "session null": {"session": None},
    "session below 0": {"session": -1},
    "block null": {"block": None},
    "timed null": {"timed": None},
    "samples 0": {"samples": 0},
    "step_s 0": {"step_s": 0.0},
    "step_s vast": {"step_s": 1e300},
    "comm_s null": {**dict.fromkeys(TAKEN_APART, 0.01), "comm_s": None},
    "overlapped_s null": {**dict.fromkeys(TAKEN_APART, 0.01), "overlapped_s": None},
    "phase ends before its start": {"copy_end_s": 0.3, "forward_end_s": 0.1},
    "phase ends before the step begins": dict.fromkeys(ENDS, -0.1),
    "phase ends after the step": {"optimizer_end_s": 1e6},
    "phase vast": {"backward_end_s": 1e300},
    "last gradient vast": {"last_gradient_s": 1e300},
}
SPAN_DAMAGES: dict[str, dict[str, Any]] = {
    "kind null": {"kind": None},
    "a kind null": {"kind": ["all_reduce", None, "all_reduce"]},
    "one shorter": {"kind": ["all_reduce"] * 2},
    "all null": dict.fromkeys(LISTS),
    "done vast": {"done_s": [0.1, 0.2, 1e200]},
    "a blocking null": {"blocking": [True, None, True]},
    "blocking shorter": {"blocking": [True]},
    "ready shorter": {"ready_s": [0.1]},
    "ready vast": {"ready_s": [None, 1e300, None]},
    "awaited shorter": {"awaited_s": [0.1]},
    "awaited vast": {"awaited_s": [None, 1e300, None]},
    "issued null": {"issued_s": [None, 0.1, 0.2]},
    "payload below 0": {"payload_bytes": [1, -1, 1]},
    "payload vast": {"payload_bytes": [1, 2**62, 1]},
    "session null": {"session": None},
    "step null": {"step": None},
}


def warnings(run: Path) -> list[tuple[str, str]]:
    """What a report warns of in the samples; it is written in whole."""
    analysis = analyse(load_run(run))
    assert write_report(run, analysis).stat().st_size > 10_000
    codes = ("damaged-samples", "lost-lines")
    return [(where, warning.message) for where, warning in analysis.warnings if warning.code in codes]


def timed_steps(run: Path) -> int:
    [cell] = [cell for cell in analyse(load_run(run)).cells if cell.id == CELL]
    return cell.summary.timed_steps if cell.summary else 0


@pytest.mark.parametrize("values", STEP_DAMAGES.values(), ids=STEP_DAMAGES)
def test_a_damaged_step_is_left_out_on_all_ranks(run: Path, values: dict[str, Any]) -> None:
    in_lines("rank1.jsonl", [4], **values)(run)
    cell = load_run(run).cells[CELL]
    assert world_steps(cell).height == TIMED - 1
    [warning] = cell.warnings
    assert warning.message.startswith(f"1 of the steps in {cell.folder} are damaged and were left out")


@pytest.mark.parametrize("values", SPAN_DAMAGES.values(), ids=SPAN_DAMAGES)
def test_the_damaged_messages_of_a_step_are_left_out(run: Path, values: dict[str, Any]) -> None:
    in_lines("rank0.spans.jsonl", [4], **values)(run)
    cell = load_run(run).cells[CELL]
    assert cell.spans.height == 2 * 8 - 1
    [warning] = cell.warnings
    assert warning.message.startswith("1 of the spans in ")


@pytest.mark.parametrize("file", ["rank0.jsonl", "rank0.spans.jsonl"])
def test_a_report_of_what_is_whole(run: Path, file: str) -> None:
    in_lines(file, range(3, 8), **(SPAN_DAMAGES["one shorter"] if "spans" in file else STEP_DAMAGES["parts 0"]))(run)
    assert timed_steps(run) == (TIMED if "spans" in file else 1)
    [(where, message)] = warnings(run)
    assert where == CELL
    assert message.startswith("5 of the ")


def test_a_report_of_files_in_which_nothing_is_whole(run: Path) -> None:
    in_lines("rank0.jsonl", range(8), session=None)(run)
    in_lines("rank0.spans.jsonl", range(8), **dict.fromkeys(LISTS))(run)
    assert timed_steps(run) == 0
    assert [message.split(" in ")[0] for _, message in warnings(run)] == ["8 of the steps", "8 of the spans"]


def test_a_loss_that_says_nothing_costs_no_step(run: Path) -> None:
    for number, loss in enumerate((1e308, -1e308, None)):
        in_lines("rank0.jsonl", [number], loss=loss, accuracy=7.0)(run)
    assert timed_steps(run) == TIMED
    assert warnings(run) == []
    assert load_run(run).cells[CELL].steps.filter(rank=0)["loss"].is_null().sum() == 3


def test_what_is_not_finite_in_parquet_is_left_out(run: Path) -> None:
    """JSON has no such numbers, Parquet has; the index may agree with anything."""
    place = cell_folder(run, CELL)
    pack(place)
    for kind, name, bad in (
        (STEPS, "forward_s", pl.lit(float("nan"))),
        (SPANS, "done_s", pl.lit([0.1, float("nan"), 0.2], dtype=pl.List(pl.Float64))),
    ):
        path = parquet_file(place, kind)
        changed = pl.when((pl.col("rank") == 0) & (pl.col("step") == 4)).then(bad).otherwise(name).alias(name)
        pl.read_parquet(path).with_columns(changed).write_parquet(path)
    index = json.loads((place / columns.INDEX).read_text())
    index["files"] = {kind.name: columns._digest(parquet_file(place, kind)).model_dump() for kind in (STEPS, SPANS)}
    (place / columns.INDEX).write_text(json.dumps(index))
    assert timed_steps(run) == TIMED - 1
    assert sorted(message[:11] for _, message in warnings(run)) == ["1 of the sp", "1 of the st"]


def refusal(run: Path) -> str:
    """Why the whole run is refused, or CELL in it."""
    told = ""
    try:
        analysis = analyse(load_run(run))
    except UsageError as error:
        told = str(error)
    if told:
        assert len(told.splitlines()) <= 2
        return told
    assert [(cell.id, cell.state) for cell in analysis.cells] == [("single-w1-b32", "complete"), (CELL, "unreadable")]
    assert write_report(run, analysis).exists()
    return str(analysis.run.unread[CELL])


@pytest.mark.parametrize("name", ["rank0.jsonl", "rank7.jsonl", "rank1.spans.jsonl"])
def test_a_folder_in_the_place_of_a_file_is_refused(run: Path, name: str) -> None:
    path = cell_folder(run, CELL) / name
    path.unlink(missing_ok=True)
    path.mkdir()
    assert refusal(run) == f"cannot read {path}: Is a directory"


def test_a_link_to_nothing_is_refused(run: Path) -> None:
    path = cell_folder(run, CELL) / "rank7.jsonl"
    path.symlink_to("nowhere")
    assert refusal(run) == f"cannot read {path}: No such file or directory"


def test_a_rank_that_cannot_be_is_refused(run: Path) -> None:
    path = cell_folder(run, CELL) / "rank99999999999999999999.jsonl"
    path.write_text("")
    assert refusal(run) == f"{path} is the file of no rank: there are at most 1,000,000 workers"


def test_a_full_temporary_folder_is_told(run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(folder, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert "in a temporary folder: No such file or directory\nLet TMPDIR name" in refusal(run)


def in_record(file: str, where: tuple[Any, ...], value: Any) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        record = json.loads((run / file).read_text())
        inner = record
        for name in where[:-1]:
            inner = inner[name]
        inner[where[-1]] = value
        (run / file).write_text(json.dumps(record))

    return damage


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (in_record(f"cells/{CELL}/cell.json", ("settings", "world_size"), 10**30), "a number that cannot be: 1000"),
        (in_record(f"cells/{CELL}/cell.json", ("settings", "world_size"), 10**9), "less than or equal to 1000000"),
        (in_record(f"cells/{CELL}/cell.json", ("settings", "batch_size"), 10**12), "less than or equal to"),
        (in_record(f"cells/{CELL}/cell.json", ("placement", "processes"), 10**9), "less than or equal to 1000000"),
        (in_record(f"cells/{CELL}/cell.json", ("peak_memory_bytes",), -(10**400)), "a number that cannot be: -1000"),
        (in_record("study.json", ("settings", "world_sizes"), [10**9]), "each must be at most 1000000"),
        (in_record("study.json", ("plan",), [CELL, CELL]), f"'{CELL}' is there twice"),
        (in_record("study.json", ("plan",), ["ddp-w99999999999-b1"]), "allowed is STRATEGY-wN-bB"),
        (in_record("study.json", ("plan",), [f"ddp-w2-b{'1' * 300}"]), "is not the name of a cell"),
    ],
)
def test_records_that_cannot_be_are_refused(run: Path, damage: Callable[[Path], None], told: str) -> None:
    damage(run)
    assert told in refusal(run)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("ranks",), []),
        (("ranks", 1, 0, "calls"), 0),
        (("ranks", 0, 0, "size_bytes"), 0),
        (("ranks", 0, 2, "end_ns"), 0),
    ],
    ids=["no ranks", "no calls", "no bytes", "no time"],
)
def test_a_record_of_the_link_that_cannot_be_is_left_out(run: Path, where: tuple[Any, ...], value: Any) -> None:
    add_link(run, 2)
    assert load_run(run).unread == {}
    in_record("comm/w2.json", where, value)(run)
    found = load_run(run)
    assert [*found.unread] == ["comm/w2.json"]
    assert "is not a valid CommRecord: ranks" in found.unread["comm/w2.json"]
    assert timed_steps(run) == TIMED
