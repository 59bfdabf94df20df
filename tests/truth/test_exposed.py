"""Exposed communication of DDP over a slow link, found in two independent ways (needs root; CI has it)."""

from pathlib import Path

import pytest

import worldsize
from known import WIDE_MODEL
from repeated import Repeated
from rights import needs_rights
from worldsize.analysis.communication import Exposed, exposed
from worldsize.results.folder import Cell

pytestmark = [*needs_rights, pytest.mark.usefixtures("clean_imports", "no_link_benchmark")]

OF_THE_STEP = 0.05


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Repeated[Cell]:
    return Repeated(lambda: studied(tmp_path_factory.mktemp("exposed")))


def studied(folder: Path) -> Cell:
    (folder / "wide.py").write_text(WIDE_MODEL)
    run = worldsize.study(
        out=folder / "run",
        model=f"{folder / 'wide.py'}:net",
        strategies=("ddp",),
        world_sizes=(2,),
        batch_sizes=(128,),
        bucket_mb=0.25,
        threads_per_worker=1,
        steps=16,
        block_steps=4,
        hosts=2,
        link="100mbit",
        report=False,
    )
    cells: dict[int, Cell] = {cell.record.world_size: cell for cell in run.cells.values()}
    return cells[2]


def both_ways(cell: Cell) -> tuple[Exposed, float]:
    """What is exposed, and the time of a step."""
    found, summary = exposed(cell), cell.record.summary
    assert found is not None
    assert summary is not None
    return found, summary.step_s.value


def test_both_ways_agree(studies: Repeated[Cell]) -> None:
    def holds(cell: Cell) -> None:
        both, step_s = both_ways(cell)
        assert both.difference.low is not None
        assert both.difference.high is not None
        assert both.difference.high - both.difference.low < 4 * OF_THE_STEP * step_s, "too vague to agree on anything"
        assert abs(both.difference.value) <= OF_THE_STEP * step_s or not both.disagree

    studies.check(holds)


def test_both_ways_find_what_the_link_costs(studies: Repeated[Cell]) -> None:
    """Most of these steps is sending: to agree on nothing would be no proof."""

    def holds(cell: Cell) -> None:
        both, step_s = both_ways(cell)
        assert both.timeline.value > 0.5 * step_s
        assert both.pairing.value > 0.5 * step_s

    studies.check(holds)
