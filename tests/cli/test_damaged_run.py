"""Files of a run that are lost or damaged: all the rest is reported, and the exit status says that something is not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from in_process import worldsize
from tiny import MODEL
from worldsize.results.columns import INDEX

STUDY = ("study", "--model", "tiny_model.py:net", "--data", "digits", "--strategies", "single,all-reduce")
GRID = ("--world-sizes", "1,2", "--baseline", "single", "--batch-sizes", 16, "--threads-per-worker", 1)
STEPS = ("--steps", 8, "--block-steps", 2, "--target-interval", 0, "--warmup-steps", 1, "--evaluate", "never")
CELL, OTHER = "all-reduce-w2-b16", "single-w1-b16"
DAMAGED = 4

pytestmark = pytest.mark.usefixtures("no_link_benchmark")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study that is whole."""
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "tiny_model.py").write_text(MODEL)
    done = worldsize(*STUDY, *GRID, *STEPS, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "run" / "cells" / CELL / "steps.parquet").exists()
    return folder


@pytest.fixture(scope="module")
def whole(made: Path) -> Any:
    """What a report says before there is any damage."""
    status, content = report(made)
    assert status == 0
    return content


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy of it, with its times."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def cell(place: Path, name: str = CELL) -> Path:
    return place / "run" / "cells" / name


def cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


def unpacked(place: Path) -> None:
    for name in ("steps.parquet", "spans.parquet", INDEX):
        (cell(place) / name).unlink()


def without_lines(place: Path) -> None:
    for path in cell(place).glob("rank*.jsonl"):
        path.unlink()


def record_lost(place: Path) -> None:
    (cell(place) / "cell.json").unlink()


def folder_lost(place: Path) -> None:
    shutil.rmtree(cell(place))


def record_lost_before_packing(place: Path) -> None:
    unpacked(place)
    (cell(place) / "cell.json").unlink()


def record_truncated(place: Path) -> None:
    cut(cell(place) / "cell.json", 0.5)


def record_empty(place: Path) -> None:
    (cell(place) / "cell.json").write_bytes(b"")


def rank_lost(place: Path) -> None:
    unpacked(place)
    (cell(place) / "rank1.jsonl").unlink()


def all_ranks_lost(place: Path) -> None:
    unpacked(place)
    without_lines(place)


def rank_truncated_in_a_line(place: Path) -> None:
    unpacked(place)
    cut(cell(place) / "rank1.jsonl", 0.6)


def rank_truncated_after_a_line(place: Path) -> None:
    unpacked(place)
    path = cell(place) / "rank0.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:6]))


def rank_garbled_in_the_middle(place: Path) -> None:
    unpacked(place)
    path = cell(place) / "rank1.jsonl"
    content = path.read_bytes()
    path.write_bytes(content[:1000] + b"\0" * 300 + content[1300:])


def packed_lost(place: Path) -> None:
    without_lines(place)
    (cell(place) / "steps.parquet").unlink()


def packed_truncated(place: Path) -> None:
    without_lines(place)
    cut(cell(place) / "steps.parquet", 0.5)


def packed_messages_truncated(place: Path) -> None:
    without_lines(place)
    cut(cell(place) / "spans.parquet", 0.5)


def index_lost(place: Path) -> None:
    without_lines(place)
    (cell(place) / INDEX).unlink()


UNREADABLE: dict[Callable[[Path], None], str] = {
    folder_lost: "is gone, and the cell was complete. The study measures this cell again with --resume.",
    record_lost: "cell.json is gone, and samples of the cell are there",
    record_lost_before_packing: "cell.json is gone, and samples of the cell are there",
    record_truncated: "cell.json is not a valid CellRecord",
    record_empty: "cell.json is not a valid CellRecord",
    rank_lost: "no sample of rank 1 is left",
    all_ranks_lost: "no sample of rank 0 and 1 more ranks is left",
    rank_truncated_in_a_line: "of its 8 timed steps are gone",
    rank_truncated_after_a_line: "of its 8 timed steps are gone",
    rank_garbled_in_the_middle: "rank1.jsonl holds lines that are not step records",
    packed_lost: "steps.parquet",
    packed_truncated: "steps.parquet is not what columns.json says",
    packed_messages_truncated: "spans.parquet is not what columns.json says",
    index_lost: "no sample of rank 0",
}


def report(place: Path) -> tuple[int, Any]:
    done = worldsize("report", "run", "--json", cwd=place)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def rows(content: Any) -> dict[str, Any]:
    return {row["cell"]: row for row in content["results"]}


def alike(row: dict[str, Any]) -> dict[str, Any]:
    """What another row must be: all cells are estimated together, so with one less the last bits may be others.

    Not rounded on both sides: a number next to an edge of rounding would fall to either side of it.
    """
    return {key: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value for key, value in row.items()}


@pytest.mark.parametrize("damage", UNREADABLE, ids=lambda damage: damage.__name__)
def test_one_cell_is_a_row_with_its_reason_and_all_others_are_reported(
    whole: Any, place: Path, damage: Callable[[Path], None]
) -> None:
    damage(place)
    status, content = report(place)
    assert status == DAMAGED
    assert rows(content)[CELL]["step_s"] is None
    assert rows(content)[CELL]["state"] == "unreadable"
    assert UNREADABLE[damage] in rows(content)[CELL]["reason"]
    assert rows(content)[OTHER] == alike(rows(whole)[OTHER])
    assert [(each["where"], each["code"]) for each in content["warnings"] if each["code"] == "unreadable"] == [
        (CELL, "unreadable"),
    ]
    assert (place / "run" / "report" / "index.html").exists()


def packed_lost_beside_lines(place: Path) -> None:
    (cell(place) / "steps.parquet").unlink()


def packed_truncated_beside_lines(place: Path) -> None:
    cut(cell(place) / "steps.parquet", 0.5)


def rank_lost_beside_columns(place: Path) -> None:
    (cell(place) / "rank1.jsonl").unlink()


def rank_truncated_beside_columns(place: Path) -> None:
    cut(cell(place) / "rank1.jsonl", 0.6)


HARMLESS: dict[Callable[[Path], None], str] = {
    packed_lost_beside_lines: "unread-columns",
    packed_truncated_beside_lines: "unread-columns",
    rank_lost_beside_columns: "lost-lines",
    rank_truncated_beside_columns: "lost-lines",
}


@pytest.mark.parametrize("damage", HARMLESS, ids=lambda damage: damage.__name__)
def test_what_is_there_twice_is_not_lost(whole: Any, place: Path, damage: Callable[[Path], None]) -> None:
    damage(place)
    status, content = report(place)
    assert status == 0
    assert rows(content) == rows(whole)
    assert HARMLESS[damage] in [each["code"] for each in content["warnings"]]


def test_the_terminal_says_so_as_well(place: Path) -> None:
    record_truncated(place)
    done = worldsize("report", "run", cwd=place)
    assert done.returncode == DAMAGED
    assert f"warning ({CELL}): left out of the report: " in " ".join(done.stdout.split())
    assert [line for line in done.stdout.splitlines() if line.startswith("all-reduce") and "unreadable" in line]


def test_a_record_of_the_link_that_is_damaged(place: Path) -> None:
    (place / "run" / "comm").mkdir(exist_ok=True)
    (place / "run" / "comm" / "w2.json").write_text('{"world_size": 2')
    status, content = report(place)
    assert status == DAMAGED
    assert [each["where"] for each in content["warnings"] if each["code"] == "unreadable"] == ["comm/w2.json"]
    assert rows(content)[CELL]["step_s"] is not None


def test_without_study_json_nothing_can_be_reported(place: Path) -> None:
    cut(place / "run" / "study.json", 0.5)
    done = worldsize("report", "run", cwd=place)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_compare_names_it_and_ends_with_the_same_status(place: Path) -> None:
    shutil.copytree(place / "run", place / "whole")
    record_truncated(place)
    done = worldsize("compare", "whole", "run", "--json", cwd=place)
    content = json.loads(done.stdout)
    assert (done.returncode, content["unread"]) == (DAMAGED, [f"B: {CELL}"])
    remarks = {each["id"]: each["remark"] for each in content["cells"]}
    assert "cell.json is not a valid CellRecord" in remarks[CELL]
    assert worldsize("compare", "whole", "run", "--fail-above", "50%", cwd=place).returncode == 3, "it had numbers in A"
    assert worldsize("compare", "run", "--save", "kept.json", cwd=place).returncode == DAMAGED
    assert worldsize("compare", "kept.json", "kept.json", cwd=place).returncode == DAMAGED


@pytest.mark.parametrize("damage", [record_lost, record_truncated, folder_lost])
def test_resume_measures_a_cell_again_whose_record_is_lost(place: Path, damage: Callable[[Path], None]) -> None:
    damage(place)
    done = worldsize("study", "--resume", "--out", "run", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    assert rows(json.loads(done.stdout))[CELL]["state"] == "complete"
