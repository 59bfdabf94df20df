"""Parquet is of no harm where it is damaged, half made, or being made by another process."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from large_folder import make_large_run
from packed import CELL, MADE, frames, from_lines, grown, read, same, without_lines
from worldsize.analysis.study import analyse
from worldsize.errors import OutputError
from worldsize.results import columns, folder
from worldsize.results.columns import INDEX, pack, parquet_file
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run
from worldsize.results.samples import SPANS, STEPS


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


def test_what_another_process_is_writing_stays(run: Path) -> None:
    place = cell_folder(run, CELL)
    ended = subprocess.Popen(["true"])
    ended.wait()
    scratch = {name: place / f".columns.{name}" for name in (os.getppid(), ended.pid, "mine", 1)}
    for path in scratch.values():
        path.mkdir()
    long_ago = time.time() - 2 * columns.OLD_S
    os.utime(scratch[1], (long_ago, long_ago))
    pack(place)
    assert list(place.glob(".*")) == [scratch[os.getppid()]]


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
    analysis = analyse(load_run(place.parents[1]))
    assert list(analysis.run.unread) == [CELL]
    assert str(place) in analysis.run.unread[CELL]


def test_columns_of_an_earlier_version_lack_what_came_later(place: Path) -> None:
    before, steps = frames(read(place)), parquet_file(place, STEPS)
    pl.read_parquet(steps).drop("reference_s").write_parquet(steps)
    agree(place)

    cell = read(without_lines(place))

    wanted = [frame.with_columns(reference_s=None) if "reference_s" in frame.columns else frame for frame in before]
    assert all(
        one.equals(other.cast(dict(one.schema)))  # type: ignore[arg-type] # the names of a Mapping
        for one, other in zip(frames(cell), wanted, strict=True)
    )
    assert cell.problem is None
