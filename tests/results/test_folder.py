"""The run folder: written so that a crash loses nothing, read back, and refused in plain lines where it is damaged."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from made_runs import make_run, usual_cells
from worldsize.errors import OutputError
from worldsize.results.files import append_lines, cell_folder, line_of, read_record, write_whole
from worldsize.results.folder import load_run, new_run_folder, write_cell, write_study
from worldsize.results.rank_files import line_blocks
from worldsize.results.records import SCHEMA_VERSION, CellRecord, StudyRecord
from worldsize.results.samples import STEP_SCHEMA, TakenApartStep

CELL = "ddp-w2-b32"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", usual_cells(blocks=2))


def read_all(path: Path) -> int:
    """Read everything in a run folder; how many samples there are."""
    return sum(cell.steps.height + cell.spans.height for cell in load_run(path).cells.values())


def refusal(path: Path) -> str:
    """The message with which a folder is refused, or CELL in it; one or two lines."""
    try:
        read_all(path)
        told = load_run(path).unread[CELL]
    except OutputError as error:
        told = str(error)
    assert len(told.splitlines()) <= 2
    return told


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_old_content_stays_if_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    file = tmp_path / "study.json"
    write_whole(file, "old")

    def fail(descriptor: int) -> None:
        raise fault

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((OutputError, KeyboardInterrupt)) as caught:
        write_whole(file, "new" * 10_000)
    assert file.read_text() == "old"
    if isinstance(fault, OSError):
        assert str(caught.value).splitlines()[0] == f"cannot write {file}: No space left on device"
        assert [entry.name for entry in tmp_path.iterdir()] == ["study.json"]


def test_a_reader_sees_the_old_content_or_the_new(tmp_path: Path) -> None:
    file = tmp_path / "study.json"
    write_whole(file, "old")
    with file.open() as reader:
        write_whole(file, "new")
        assert reader.read() == "old", "a file that is being read does not change under its reader"
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    for path in (tmp_path / "file" / "run" / "study.json", tmp_path / "file" / "study.json", tmp_path / "folder"):
        with pytest.raises(OutputError) as caught:
            write_whole(path, "text")
        assert str(caught.value).startswith(f"cannot write {path}: ")
        assert "--out" in str(caught.value)
    assert (tmp_path / "file").read_text() == "mine"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


def test_text_is_kept_as_it_is(tmp_path: Path) -> None:
    write_whole(tmp_path / "a" / "b.json", "3 × 2 → α\n")
    assert (tmp_path / "a" / "b.json").read_bytes() == "3 × 2 → α\n".encode()


def test_a_run_is_read_back_as_it_was_written(run: Path) -> None:
    first = load_run(run)
    write_study(run, first.study)
    for cell in first.cells.values():
        write_cell(run, cell.record)
    second = load_run(str(run))
    assert second.study == first.study
    assert list(second.cells) == first.study.plan
    assert {name: cell.record for name, cell in second.cells.items()} == {
        name: cell.record for name, cell in first.cells.items()
    }


def test_cells_that_were_never_started_are_not_there(tmp_path: Path) -> None:
    started, *others = usual_cells(blocks=1)
    run = load_run(make_run(tmp_path, [started], never_started=others))
    assert list(run.cells) == [started.id]
    assert len(run.study.plan) == 1 + len(others)


def test_steps_of_all_ranks_as_columns(run: Path) -> None:
    steps = load_run(run).cells[CELL].steps
    assert steps.columns == ["rank", *STEP_SCHEMA]
    assert steps["rank"].unique().sort().to_list() == [0, 1]
    files = [(cell_folder(run, CELL) / f"rank{rank}.jsonl").read_text().splitlines() for rank in range(2)]
    no_stretches = {"phases": None, "phase_ends_s": None}  # left out of a line that has none
    assert steps.rows(named=True) == [
        {"rank": rank, **no_stretches, **json.loads(line)} for rank, lines in enumerate(files) for line in lines
    ]


def test_ranks_are_in_the_order_of_their_numbers(run: Path) -> None:
    folder = cell_folder(run, CELL)
    for rank in (10, 2):
        (folder / f"rank{rank}.jsonl").write_bytes((folder / "rank0.jsonl").read_bytes())
    (folder / "rankings.jsonl").write_text("not ours\n")
    assert load_run(run).cells[CELL].steps["rank"].unique(maintain_order=True).to_list() == [0, 1, 2, 10]


def test_appended_lines_are_whole(tmp_path: Path, run: Path) -> None:
    line = (cell_folder(run, CELL) / "rank0.jsonl").read_text().splitlines()[0]
    record = TakenApartStep.model_validate_json(line)
    file = os.open(tmp_path / "rank0.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    append_lines(file, map(line_of, [record, record.model_copy(update={"loss": None})]))
    append_lines(file, [line_of(record)])
    os.close(file)
    lines = (tmp_path / "rank0.jsonl").read_text().splitlines()
    assert [TakenApartStep.model_validate_json(text).loss for text in lines] == [record.loss, None, record.loss]


@pytest.mark.parametrize("torn", [b'{"session":0,"blo', b"{", b'{"session":0}', b"\0\0\0"])
def test_a_last_line_that_a_crash_cut_short_is_left_out(run: Path, torn: bytes) -> None:
    before = load_run(run).cells[CELL].steps
    file = cell_folder(run, CELL) / "rank1.jsonl"
    with file.open("ab") as stream:
        stream.write(torn)
    assert load_run(run).cells[CELL].steps.equals(before)
    assert b"".join(line_blocks(file)) + torn == file.read_bytes()


def test_no_file_and_an_empty_file_hold_no_steps(run: Path) -> None:
    folder = cell_folder(run, CELL)
    (folder / "rank0.jsonl").write_text("")
    (folder / "rank1.jsonl").unlink()
    cell = load_run(run).cells[CELL]
    assert cell.steps.is_empty()
    assert cell.spans.is_empty()
    assert list(line_blocks(folder / "rank1.jsonl")) == []


@pytest.mark.parametrize(
    "line", [b"garbage", b"[1]", b"null", b'{"session":"first"}', b'{"step":0.5}', b"\xff\xfe", b"\0\0\0", b'{"step":1']
)
@pytest.mark.parametrize("kind", ["rank1.jsonl", "rank1.spans.jsonl"])
def test_a_damaged_line_in_the_middle_is_refused_by_the_name_of_its_file(run: Path, line: bytes, kind: str) -> None:
    file = cell_folder(run, CELL) / kind
    whole = file.read_bytes() if file.exists() else b""
    file.write_bytes(line + b"\n" + whole)
    assert refusal(run).startswith(f"{file} holds lines that are not ")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "Invalid JSON"),
        ('{"name": ', "Invalid JSON"),
        ("[]", "Input should be an object"),
        ("\x00" * 50, "Invalid JSON"),
        ('{"name": "x"}', "plan: Field required"),
    ],
)
def test_a_damaged_study_json_is_refused(run: Path, content: str, told: str) -> None:
    (run / "study.json").write_text(content)
    assert refusal(run).startswith(f"{run / 'study.json'} is not a valid StudyRecord: {told}")


def test_a_damaged_cell_json_is_refused(run: Path) -> None:
    file = cell_folder(run, CELL) / "cell.json"
    content = file.read_text()
    file.write_text(content[: len(content) // 2])
    assert refusal(run).startswith(f"{file} is not a valid CellRecord: Invalid JSON")
    file.write_text(content)
    change(file, state="finished")
    assert refusal(run).startswith(f"{file} is not a valid CellRecord: state: Input should be 'planned', 'running'")
    file.write_text(content)
    change(file, speed=1)
    assert "speed: Extra inputs are not permitted" in refusal(run)


@pytest.mark.parametrize("name", ["study.json", f"cells/{CELL}/cell.json"])
def test_a_folder_of_a_newer_schema_says_to_upgrade(run: Path, name: str) -> None:
    change(run / name, schema_version=SCHEMA_VERSION + 1, something_new=True)
    assert refusal(run).splitlines() == [
        f"{run / name} has schema version {SCHEMA_VERSION + 1}; this worldsize reads versions up to {SCHEMA_VERSION}",
        "Upgrade worldsize to read it.",
    ]


@pytest.mark.parametrize("version", ["1.5", "new", None, [2]])
def test_a_schema_version_that_is_no_number_is_refused(run: Path, version: object) -> None:
    change(run / "study.json", schema_version=version)
    assert "schema_version: " in refusal(run)


@pytest.mark.parametrize("name", ["../x", "..", ".", "", "/etc", "a/b", "x/..", "../../study.json", "a/../../x"])
def test_a_cell_id_that_leaves_the_folder_is_refused(run: Path, name: str) -> None:
    with pytest.raises(OutputError, match="is not the name of a cell"):
        cell_folder(run, name)
    change(run / "study.json", plan=[name])
    assert refusal(run) == f"{name!r} is not the name of a cell"
    record = read_record(CellRecord, cell_folder(run, CELL) / "cell.json")
    with pytest.raises(OutputError):
        write_cell(run, record.model_copy(update={"id": name}))


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        assert refusal(folder) == f"{folder / 'study.json'} is missing: {folder} is not a worldsize run folder"
    (tmp_path / "file").write_text("")
    assert refusal(tmp_path / "file").startswith(f"cannot read {tmp_path / 'file' / 'study.json'}: ")
    (tmp_path / "study.json").mkdir()
    assert refusal(tmp_path).startswith(f"cannot read {tmp_path / 'study.json'}: ")


def test_new_run_folders_sort_by_time_and_are_below_runs() -> None:
    folder = new_run_folder("study")
    assert folder.parent == Path("runs")
    assert folder.name.startswith("study-20")
    assert not folder.exists()


def test_a_study_record_needs_no_cell_to_be_read(tmp_path: Path) -> None:
    make_run(tmp_path, [])
    assert read_record(StudyRecord, tmp_path / "study.json").plan == []
    assert load_run(tmp_path).cells == {}


def test_a_record_of_another_cell_is_refused(run: Path) -> None:
    change(run / "cells" / CELL / "cell.json", id="../../../outside")
    assert "is the record of '../../../outside'" in refusal(run)


def test_a_part_that_is_damaged_takes_nothing_else_with_it(run: Path) -> None:
    for name in ("whole", "damaged"):
        make_run(run / "parts" / name, [])
    (run / "parts" / "damaged" / "study.json").write_text("{")
    found = load_run(run)
    assert [*found.parts] == ["whole"]
    assert CELL in found.cells
    assert "study.json" in found.unread["parts/damaged"]
