"""The parts of a step are measured one by one; together they are the step (method.md §2)."""

from pathlib import Path

import polars as pl
import pytest

import worldsize
from repeated import Repeated
from worldsize.analysis.parts import with_parts
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS
from worldsize.traits import BASELINE_STRATEGY, DEFAULT_STRATEGIES, TRAITS

pytestmark = pytest.mark.usefixtures("clean_imports")

NAMED = [part for part in PARTS if part != "other_s"]
LARGEST_OTHER = 0.02


OTHERS = {(t.travels, t.exact, t.feedback): name for name, t in TRAITS.items() if not t.by_default}
NAMES = (*DEFAULT_STRATEGIES, *OTHERS.values())
"""The exact ones, and one of each other kind."""
OF_SEVERAL = tuple(name for name in NAMES if name != BASELINE_STRATEGY)


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Repeated[dict[str, Cell]]:
    return Repeated(lambda: studied(tmp_path_factory.mktemp("parts")))


@pytest.fixture(scope="module")
def cells(studies: Repeated[dict[str, Cell]]) -> dict[str, Cell]:
    return studies.any()


def studied(folder: Path) -> dict[str, Cell]:
    run = worldsize.study(
        out=folder / "run",
        data="synthetic:3x32x32:10:256",
        strategies=NAMES,
        world_sizes=(1, 2),
        batch_sizes=(8,),
        baseline="single",
        threads_per_worker=1,
        steps=3,
        warmup_steps=1,
    )
    return {cell.record.strategy: cell for cell in run.cells.values()}


@pytest.mark.parametrize("strategy", NAMES)
def test_what_no_part_explains_is_small(studies: Repeated[dict[str, Cell]], strategy: str) -> None:
    def holds(cells: dict[str, Cell]) -> None:
        steps = with_parts(cells[strategy]).filter("timed").collect()
        explained = steps.select((pl.sum_horizontal(*NAMED) / pl.col("step_s")).alias("share"))["share"]
        assert not explained.is_empty()
        # A wrong clock would leave a part out of every step; a shared machine stands still in some of them.
        assert explained.quantile(0.75) == pytest.approx(1, abs=LARGEST_OTHER)

    studies.check(holds)


@pytest.mark.parametrize("strategy", NAMES)
def test_all_parts_together_are_the_step(cells: dict[str, Cell], strategy: str) -> None:
    steps = with_parts(cells[strategy]).collect()
    added = steps.select(pl.sum_horizontal(*PARTS).alias("s"))["s"]
    assert added.to_list() == pytest.approx(steps["step_s"].to_list(), rel=1e-6)
    assert steps.select(pl.min_horizontal(*PARTS).min()).item() >= -1e-6, "no part is counted twice"


IN_PROCESS = {"replicate", "reduce"}
"""Copies inside a process: no collective."""


@pytest.mark.parametrize("strategy", OF_SEVERAL)
def test_the_traits_are_what_was_seen(cells: dict[str, Cell], strategy: str) -> None:
    cell, traits = cells[strategy], TRAITS[strategy]
    processes = cell.record.placement.processes if cell.record.placement else 0
    kinds = set(cell.spans["kind"].explode().drop_nulls()) if processes > 1 else set()
    assert {kind.replace("_", "-") for kind in kinds} - IN_PROCESS == {*traits.collectives}
    assert cell.record.summary is not None
    assert (cell.record.summary.overlapped_s or 0) > 0 if traits.overlaps else not cell.record.summary.overlapped_s


def test_the_report_shows_what_is_left_over(cells: dict[str, Cell]) -> None:
    folder: Path = cells["ddp"].folder.parents[1]
    assert "Other (ms)" in (folder / "report" / "parts.md").read_text()
