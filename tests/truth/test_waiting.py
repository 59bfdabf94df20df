"""A rank that is late by a known time, on a link of a known rate: its peers wait, the link is no slower."""

from pathlib import Path

import polars as pl
import pytest

import worldsize
from known import LATE, LATE_S, WIDE_MODEL
from repeated import Repeated
from rights import needs_rights
from worldsize.analysis.communication import communication
from worldsize.analysis.messages import messages
from worldsize.results.folder import Cell

pytestmark = [*needs_rights, pytest.mark.usefixtures("clean_imports", "no_link_benchmark")]


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Repeated[dict[str, Cell]]:
    return Repeated(lambda: studied(tmp_path_factory.mktemp("late")))


def studied(folder: Path) -> dict[str, Cell]:
    (folder / "wide.py").write_text(WIDE_MODEL)
    run = worldsize.study(
        out=folder / "run",
        model=f"{folder / 'wide.py'}:net",
        strategies=("all-reduce", LATE),
        world_sizes=(2,),
        batch_sizes=(4,),
        threads_per_worker=1,
        steps=12,
        block_steps=4,
        hosts=2,
        link="100mbit",
        report=False,
    )
    return {cell.record.strategy: cell for cell in run.cells.values()}


def per_step_s(cell: Cell, rank: int, start: str, end: str) -> float:
    """Median over steps of the time that a rank's messages spend between two points; they do not overlap here."""
    mine = messages(cell).filter(rank=rank)
    each = mine.group_by("session", "step").agg(((pl.col(end) - pl.col(start)) / 1e9).sum().alias("s"))
    return float(each["s"].median())  # type: ignore[arg-type]


def test_the_other_rank_waits_as_long_as_the_late_one_slept(studies: Repeated[dict[str, Cell]]) -> None:
    def holds(cells: dict[str, Cell]) -> None:
        waits = {name: per_step_s(cell, 0, "issued_ns", "started_ns") for name, cell in cells.items()}
        assert waits[LATE] - waits["all-reduce"] == pytest.approx(LATE_S, abs=0.005)

    studies.check(holds)


def test_the_late_rank_waits_for_nobody(studies: Repeated[dict[str, Cell]]) -> None:
    def holds(cells: dict[str, Cell]) -> None:
        assert per_step_s(cells[LATE], 1, "issued_ns", "started_ns") < 0.1 * LATE_S

    studies.check(holds)


def test_transfer_and_bandwidth_are_those_of_the_link(studies: Repeated[dict[str, Cell]]) -> None:
    def holds(cells: dict[str, Cell]) -> None:
        transfers = {name: per_step_s(cell, 0, "started_ns", "done_ns") for name, cell in cells.items()}
        assert transfers[LATE] == pytest.approx(transfers["all-reduce"], rel=0.05)
        plain, late = communication(cells["all-reduce"]), communication(cells[LATE])
        assert plain is not None
        assert late is not None
        # Over all steps, those in which the machine stood still included.
        assert late.busbw_bytes_per_s == pytest.approx(plain.busbw_bytes_per_s, rel=0.1)

    studies.check(holds)
