"""A cell of many ranks whose samples are gathered in Parquet, and what can be asked of it."""

import shutil
from pathlib import Path

import polars as pl

from large_samples import LargeRun
from worldsize.results.columns import INDEX
from worldsize.results.folder import Cell, load_run

WORLD = 12
"""Two digits: rank 10 comes after rank 2."""
CELL = f"ddp-w{WORLD}-b32"
MADE = LargeRun(worlds=(1, WORLD), steps=21)


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


def grown(place: Path) -> None:
    with (place / "rank3.jsonl").open("a") as file:
        file.write((place / "rank4.jsonl").read_text().splitlines()[0] + "\n")
