"""Names and links in a run folder from elsewhere lead to nothing outside of it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from made_runs import make_run, usual_cells
from made_traces import rank_of, record, write_traces
from worldsize.analysis.study import analyse
from worldsize.errors import OutputError
from worldsize.report.write import write_report
from worldsize.results.checkpoints import CheckpointRecord, Part, check_parts, find_checkpoint, write_index
from worldsize.results.columns import INDEX, pack, parquet_file
from worldsize.results.files import cell_folder, own, read_record, write_whole
from worldsize.results.folder import load_run
from worldsize.results.records import CellRecord
from worldsize.results.samples import STEPS
from worldsize.results.traces import ProfiledRank

CELL = "ddp-w2-b32"
SECRET = "the secret of another folder"
OUTSIDE = ("../../x.pt", "/etc/passwd", "..", "../model-3.pt", "a/b.pt", "x\0.pt", "", "model-3.pt\n")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cells = [cell for cell in usual_cells(blocks=2) if cell.id in (CELL, "single-w1-b32")]
    return make_run(tmp_path_factory.mktemp("made") / "run", cells)


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the run, with a file that nobody may read or write through it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    return folder


def told(work: Callable[[], object]) -> str:
    with pytest.raises(OutputError) as caught:
        work()
    message = str(caught.value)
    assert len(message.splitlines()) <= 2
    assert SECRET not in message
    return message


def replaced(path: Path, target: Path) -> Path:
    """A link in the place of a file or folder; what was there lies at the target now."""
    target.unlink(missing_ok=True)
    if path.exists():
        shutil.move(path, target)
    path.symlink_to(target)
    return path


@pytest.mark.parametrize(
    "name",
    [
        *("study.json", "cells", f"cells/{CELL}", f"cells/{CELL}/cell.json", f"cells/{CELL}/rank0.jsonl"),
        *(f"cells/{CELL}/rank7.spans.jsonl", "comm", "parts"),
    ],
)
def test_a_link_that_leads_out_is_not_followed(run: Path, outside: Path, name: str) -> None:
    path = replaced(run / name, outside / "moved")
    if not path.exists():
        path.unlink()
        path.symlink_to(outside / "secret" if "jsonl" in name else outside)
    if name.startswith("cells"):
        unread = analyse(load_run(run)).run.unread
        assert CELL in unread
        message = unread[CELL]
        assert SECRET not in message
    else:
        message = told(lambda: analyse(load_run(run)))
    assert message.startswith(f"{path} is a link that leads out of ")


def test_a_link_within_the_folder_is_followed(run: Path) -> None:
    path = cell_folder(run, CELL) / "rank0.jsonl"
    replaced(path, path.with_name("first"))
    assert load_run(run).cells[CELL].steps["rank"].unique().to_list() == [0, 1]


@pytest.mark.parametrize("name", [f"cells/{CELL}/{INDEX}", f"cells/{CELL}/{STEPS.name}.parquet"])
def test_columns_behind_a_link_are_not_read(run: Path, outside: Path, name: str) -> None:
    place = cell_folder(run, CELL)
    pack(place)
    path = replaced(run / name, outside / "moved")
    cell = load_run(run).cells[CELL]
    assert cell.steps.height == 2 * 8, "the lines are there"
    assert str(cell.problem).startswith(f"{path} is a link that leads out of ")


def test_names_in_the_index_of_columns_are_only_compared(run: Path, outside: Path) -> None:
    place = cell_folder(run, CELL)
    pack(place)
    index = json.loads((place / INDEX).read_text())
    for name in ("../../../../outside/secret", str(outside / "secret"), ".."):
        index["lines"][name] = len(SECRET)
        index["files"][name] = {"size_bytes": len(SECRET), "sha256": "0"}
    (place / INDEX).write_text(json.dumps(index))
    assert load_run(run).cells[CELL].steps.height == 2 * 8
    assert parquet_file(place, STEPS).parent == place


def test_parts_that_lead_in_a_circle_are_not_followed(run: Path) -> None:
    (run / "parts").mkdir()
    for name in ("a", "b"):
        (run / "parts" / name).symlink_to("..")
    found = load_run(run)
    assert found.parts == {}
    assert all("is a link that leads out of" in found.unread[f"parts/{name}"] for name in ("a", "b"))


def checkpoint(run: Path, name: str) -> Path:
    """A checkpoint whose index names one part; returns its folder."""
    settings = read_record(CellRecord, cell_folder(run, CELL) / "cell.json").settings
    assert settings is not None
    part = Part.model_construct(name=name, size_bytes=len(SECRET), sha256="0")
    record = CheckpointRecord(settings=settings, processes=1, device="cpu", step=3, epoch=0, epoch_step=3, parts=[[]])
    record.parts[0].append(part)
    folder = cell_folder(run, CELL) / "checkpoint"
    folder.mkdir()
    write_index(folder, record)
    return folder


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_part_of_a_checkpoint_has_the_name_of_a_file(run: Path, name: str) -> None:
    folder = checkpoint(run, name)
    assert "parts.0.0.name: String should match pattern" in told(lambda: find_checkpoint(folder))


@pytest.mark.parametrize("linked", ["model-3.pt", "checkpoint.json", ""])
def test_a_checkpoint_behind_a_link_is_not_read(run: Path, outside: Path, linked: str) -> None:
    folder = checkpoint(run, "model-3.pt")
    path = folder / linked if linked else folder
    replaced(path, outside / "moved") if path.exists() else path.symlink_to(outside / "secret")

    def look() -> None:
        found = find_checkpoint(own(folder.parent, "checkpoint"))
        assert found is not None
        check_parts(folder, found.parts)

    assert told(look).startswith(f"{path} is a link that leads out of ")


@pytest.mark.parametrize("linked", ["profile", "profile/profile.json", "profile/rank0.json"])
def test_a_profile_behind_a_link_is_not_read(run: Path, outside: Path, linked: str) -> None:
    place = cell_folder(run, CELL)
    (place / "profile").mkdir()
    write_traces(place, [rank_of(0), rank_of(1)])
    replaced(place / linked, outside / "moved")
    page = write_report(run)
    assert "is a link that leads out of" in page.read_text()
    traces = list(page.parent.glob("trace-*.json"))
    assert [trace for trace in traces if linked != "profile/rank0.json"] == []


@pytest.mark.parametrize("rank", [-1, 2**20, "../../../outside/secret", "0/../.."])
def test_a_rank_of_a_profile_is_a_number(rank: object) -> None:
    content = record(0).model_dump()
    ProfiledRank.model_validate(content)
    with pytest.raises(ValueError, match="rank"):
        ProfiledRank.model_validate({**content, "rank": rank})


def test_a_report_is_not_written_through_a_link(run: Path, outside: Path) -> None:
    (run / "report").symlink_to(outside)
    assert "is a link that leads out of" in told(lambda: write_report(run))
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_files_of_a_report_take_the_place_of_links(run: Path, outside: Path) -> None:
    (run / "report").mkdir()
    (run / "report" / "index.html").symlink_to(outside / "secret")
    (run / "report" / f".summary.md.{os.getpid()}").symlink_to(outside / "secret")
    page = write_report(run)
    assert not page.is_symlink()
    assert (outside / "secret").read_text() == SECRET


def test_a_half_written_file_of_a_crash_is_written_over(tmp_path: Path) -> None:
    (tmp_path / f".study.json.{os.getpid()}").write_text("half")
    write_whole(tmp_path / "study.json", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]
