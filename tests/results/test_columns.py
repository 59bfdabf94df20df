"""Samples as Parquet: the same as the lines, and used only while it is."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from large_folder import make_large_run
from packed import CELL, MADE, WORLD, frames, from_lines, grown, lines, read, same, without_lines
from worldsize.errors import OutputError
from worldsize.results import columns, folder, rank_files, samples
from worldsize.results.columns import INDEX, Digest, pack, parquet_file
from worldsize.results.files import cell_folder
from worldsize.results.samples import STEPS


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_large_run(tmp_path_factory.mktemp("made") / "run", MADE)


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


@pytest.fixture
def place(run: Path) -> Path:
    """The folder of a cell whose samples were gathered."""
    pack(cell_folder(run, CELL))
    return cell_folder(run, CELL)


def test_columns_are_what_the_lines_are(run: Path) -> None:
    place = cell_folder(run, CELL)
    before = frames(read(place))
    assert [frame.height for frame in before] == [WORLD * 21, WORLD * 11, WORLD * 21]
    pack(place)
    assert len(lines(place)) == 2 * WORLD, "they stay"
    assert same(read(place), before)
    assert same(read(without_lines(place)), before), "these were the columns"


def test_anybody_can_read_them(place: Path) -> None:
    steps = pl.read_parquet(parquet_file(place, STEPS))
    assert steps.columns == ["rank", *samples.STEP_SCHEMA]
    assert steps["rank"].unique(maintain_order=True).to_list() == list(range(WORLD))
    assert steps.filter("synchronised").equals(read(place).steps)


def test_some_columns_of_the_steps(place: Path) -> None:
    cell = read(place)
    assert cell.step_columns("step_s", "rank").equals(cell.steps.select("step_s", "rank"))


def torn(place: Path) -> None:
    with (place / "rank3.jsonl").open("a") as file:
        file.write('{"session":0,"blo')


def of_another_rank(place: Path) -> None:
    shutil.copy(place / "rank3.jsonl", place / f"rank{WORLD}.jsonl")


def changed_in_place(place: Path) -> None:
    path, index = place / "rank3.jsonl", (place / INDEX).stat()
    path.write_text(path.read_text().replace('"samples":32', '"samples":31'))
    os.utime(path, ns=(index.st_atime_ns, index.st_mtime_ns + 1))


@pytest.mark.parametrize("change", [grown, torn, of_another_rank, changed_in_place])
def test_columns_that_are_not_the_lines_any_more_are_not_used(place: Path, change: Callable[[Path], None]) -> None:
    before = frames(read(place))
    change(place)
    wanted = from_lines(place)
    assert all(one.equals(other) for one, other in zip(before, wanted, strict=True)) == (change is torn)
    assert same(read(place), wanted)
    assert read(place).problem is None, "that is no damage"
    pack(place)
    assert same(read(without_lines(place)), wanted), "they are made again"


def lost(path: Path) -> None:
    path.unlink()


def cut_short(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize("damage", [lost, cut_short])
def test_a_rank_whose_lines_are_lost_is_still_in_the_columns(place: Path, damage: Callable[[Path], None]) -> None:
    before = frames(read(place))
    damage(place / "rank3.jsonl")
    cell = read(place)
    assert same(cell, before)
    [warning] = cell.warnings
    assert warning.code == "lost-lines"
    assert warning.message.startswith(f"{place / 'rank3.jsonl'} is gone or cut short; ")


def test_they_are_made_once(place: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in place.iterdir()}
    pack(place)
    assert {path.name: path.stat().st_mtime_ns for path in place.iterdir()} == before


def test_lines_that_would_fill_the_memory_are_read_through_the_disk(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = cell_folder(run, CELL)
    wanted = frames(read(place))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr(folder, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(samples, "CHUNK_ROWS", 50)
    monkeypatch.setattr(rank_files, "BLOCK_BYTES", 1000)
    cell = read(place)
    assert same(cell, wanted)
    assert len(list(scratch.glob("*/*.parquet"))) > 2
    del cell
    assert not list(scratch.iterdir()), "it goes with what was read through it"


def test_lines_that_are_no_records_cannot_be_gathered(run: Path) -> None:
    place = cell_folder(run, CELL)
    (place / "rank3.jsonl").write_text("garbage\n")
    with pytest.raises(OutputError, match=r"rank3\.jsonl holds lines that are not step records"):
        pack(place)
    assert not list(place.glob("*.parquet"))
    assert not list(place.glob(".*"))


def test_a_folder_that_cannot_be_written_is_named(run: Path) -> None:
    place = cell_folder(run, CELL)
    (place / "spans.parquet").mkdir()
    (place / "spans.parquet" / "mine").write_text("mine")
    with pytest.raises(OutputError, match=f"cannot write the columns of {place}: "):
        pack(place)
    assert (place / "spans.parquet" / "mine").exists()


def test_a_cell_without_lines_has_nothing_to_gather(run: Path) -> None:
    place = without_lines(cell_folder(run, CELL))
    pack(place)
    assert [path.name for path in place.iterdir()] == ["cell.json"]


def test_a_digest_knows_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    wanted = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert columns._digest(tmp_path / "file") == Digest(size_bytes=3, sha256=wanted)
