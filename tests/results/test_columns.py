"""Samples as Parquet: the same as the lines, used only while it is, and of no harm where it is damaged or half made."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from large_folder import make_large_run
from large_samples import LargeRun
from worldsize.analysis.study import analyse
from worldsize.errors import OutputError
from worldsize.results import columns, folder, samples
from worldsize.results.columns import INDEX, Digest, pack, parquet_file
from worldsize.results.folder import Cell, cell_folder, load_run
from worldsize.results.samples import SPANS, STEPS

WORLD = 12
"""Two digits: rank 10 comes after rank 2."""
CELL = f"ddp-w{WORLD}-b32"
MADE = LargeRun(worlds=(1, WORLD), steps=21)


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


def read(place: Path) -> Cell:
    return load_run(place.parents[1]).cells[CELL]


def frames(cell: Cell) -> list[pl.DataFrame]:
    return [cell.steps, cell.unsynchronised, cell.spans]


def same(cell: Cell, others: list[pl.DataFrame]) -> bool:
    return all(one.equals(other) for one, other in zip(frames(cell), others, strict=True))


def lines(place: Path) -> list[Path]:
    return sorted(place.glob("rank*.jsonl"))


def without_lines(place: Path) -> Path:
    for path in lines(place):
        path.unlink()
    return place


def from_lines(place: Path) -> list[pl.DataFrame]:
    """What the lines hold, whatever else is there."""
    bare = Path(shutil.copytree(place, place.parent / "bare", ignore=shutil.ignore_patterns(INDEX, "*.parquet")))
    found = frames(Cell(bare, read(place).record))
    shutil.rmtree(bare)
    return found


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
    assert steps.columns == ["rank", *folder.STEP_SCHEMA]
    assert steps["rank"].unique(maintain_order=True).to_list() == list(range(WORLD))
    assert steps.filter("synchronised").equals(read(place).steps)


def test_some_columns_of_the_steps(place: Path) -> None:
    cell = read(place)
    assert cell.step_columns("step_s", "rank").equals(cell.steps.select("step_s", "rank"))


def grown(place: Path) -> None:
    with (place / "rank3.jsonl").open("a") as file:
        file.write((place / "rank4.jsonl").read_text().splitlines()[0] + "\n")


def torn(place: Path) -> None:
    with (place / "rank3.jsonl").open("a") as file:
        file.write('{"session":0,"blo')


def cut_short(place: Path) -> None:
    path = place / "rank3.spans.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def of_another_rank(place: Path) -> None:
    shutil.copy(place / "rank3.jsonl", place / f"rank{WORLD}.jsonl")


def changed_in_place(place: Path) -> None:
    path, index = place / "rank3.jsonl", (place / INDEX).stat()
    path.write_text(path.read_text().replace('"samples":32', '"samples":31'))
    os.utime(path, ns=(index.st_atime_ns, index.st_mtime_ns + 1))


@pytest.mark.parametrize("change", [grown, torn, cut_short, of_another_rank, changed_in_place])
def test_columns_that_are_not_the_lines_any_more_are_not_used(place: Path, change: Callable[[Path], None]) -> None:
    before = frames(read(place))
    change(place)
    wanted = from_lines(place)
    assert all(one.equals(other) for one, other in zip(before, wanted, strict=True)) == (change is torn)
    assert same(read(place), wanted)
    assert read(place).problem is None, "that is no damage"
    pack(place)
    assert same(read(without_lines(place)), wanted), "they are made again"


def test_a_rank_whose_lines_are_lost_is_still_in_the_columns(place: Path) -> None:
    before = frames(read(place))
    (place / "rank3.jsonl").unlink()
    assert same(read(place), before)


def test_they_are_made_once(place: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in place.iterdir()}
    pack(place)
    assert {path.name: path.stat().st_mtime_ns for path in place.iterdir()} == before


@pytest.mark.parametrize("again", [False, True], ids=["for the first time", "in place of older ones"])
@pytest.mark.parametrize("moment", range(6))
def test_a_crash_at_any_moment_loses_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch, moment: int, again: bool
) -> None:
    """Killed before the k-th step that changes the folder: what is read is what the lines hold."""
    place = cell_folder(run, CELL)
    if again:
        pack(place)
        grown(place)
    wanted, counted = from_lines(place), iter(range(100))

    def step(work: Callable[..., object]) -> Callable[..., object]:
        def stepping(*args: object, **options: object) -> object:
            if next(counted) == moment:
                raise KeyboardInterrupt
            return work(*args, **options)

        return stepping

    with monkeypatch.context() as patch:
        patch.setattr(columns, "_write", step(columns._write))
        patch.setattr(Path, "replace", step(Path.replace))
        patch.setattr(Path, "unlink", step(Path.unlink))
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # a kill cleans nothing up
        with pytest.raises(KeyboardInterrupt):
            pack(place)
    assert same(read(place), wanted)
    pack(place)
    assert not list(place.glob(".*")), "what the crash left is cleaned up"
    assert same(read(without_lines(place)), wanted)


def shortened(place: Path) -> None:
    path = parquet_file(place, SPANS)
    path.write_bytes(path.read_bytes()[:-100])


def a_bit_flipped(place: Path) -> None:
    path = parquet_file(place, STEPS)
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)


def no_parquet(place: Path) -> None:
    parquet_file(place, STEPS).write_text("mine\n")
    agree(place)


def other_columns(place: Path) -> None:
    steps = parquet_file(place, STEPS)
    pl.read_parquet(steps).with_columns(pl.col("step_s").cast(pl.String)).write_parquet(steps)
    agree(place)


def one_is_lost(place: Path) -> None:
    parquet_file(place, SPANS).unlink()


def no_index(place: Path) -> None:
    (place / INDEX).write_text('{"lines": ')


def of_a_newer_version(place: Path) -> None:
    change(place, schema_version=99)


def only_seems_right(place: Path) -> None:
    """The index agrees with a file, and so do its columns; what is in them cannot be read."""
    path = parquet_file(place, STEPS)
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    path.write_bytes(content)
    agree(place)


def change(place: Path, **values: object) -> None:
    index = place / INDEX
    index.write_text(json.dumps({**json.loads(index.read_text()), **values}))


def agree(place: Path) -> None:
    """Let the index say that the files are as they should be."""
    files = {kind.name: columns._digest(parquet_file(place, kind)).model_dump() for kind in (STEPS, SPANS)}
    change(place, files=files)


DAMAGES = [
    shortened,
    a_bit_flipped,
    no_parquet,
    other_columns,
    one_is_lost,
    no_index,
    of_a_newer_version,
    only_seems_right,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_where_columns_are_damaged_the_lines_are_read(place: Path, damage: Callable[[Path], None]) -> None:
    wanted = from_lines(place)
    damage(place)
    run = load_run(place.parents[1])
    assert same(run.cells[CELL], wanted)
    [(where, warning)] = [each for each in analyse(run).warnings if each[1].code == "unread-columns"]
    assert where == CELL
    assert str(place) in warning.message
    if damage is only_seems_right:  # which only reading it tells
        (place / INDEX).unlink()
    pack(place)
    assert same(read(without_lines(place)), wanted), "they are made again"


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_columns_without_lines_are_an_error_in_plain_lines(place: Path, damage: Callable[[Path], None]) -> None:
    damage(without_lines(place))
    with pytest.raises(OutputError) as caught:
        frames(read(place))
    assert len(str(caught.value).splitlines()) <= 2
    assert str(place) in str(caught.value)


def test_large_columns_are_not_read_as_a_whole(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = frames(read(place))
    monkeypatch.setattr(folder, "IN_MEMORY_COLUMNS", 0)
    assert same(read(place), wanted)
    only_seems_right(place)
    with pytest.raises(OutputError) as caught:
        analyse(load_run(place.parents[1]))
    assert len(str(caught.value).splitlines()) == 1
    assert str(place) in str(caught.value)


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
    monkeypatch.setattr(samples, "BLOCK_BYTES", 1000)
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
