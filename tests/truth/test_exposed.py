"""Exposed communication of DDP over a slow link, found in two independent ways (needs root; CI has it)."""

import pytest

import worldsize
from known import WIDE_MODEL
from rights import needs_rights
from worldsize.analysis.communication import Exposed, exposed
from worldsize.results.folder import Cell

pytestmark = [*needs_rights, pytest.mark.usefixtures("clean_imports")]

OF_THE_STEP = 0.05


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    folder = tmp_path_factory.mktemp("exposed")
    (folder / "wide.py").write_text(WIDE_MODEL)
    run = worldsize.study(
        out=folder / "run",
        model=f"{folder / 'wide.py'}:net",
        strategies=("ddp",),
        world_sizes=(2,),
        batch_sizes=(128,),
        bucket_mb=0.25,
        threads_per_worker=1,
        steps=30,
        hosts=2,
        link="100mbit",
    )
    cells: dict[int, Cell] = {cell.record.settings.world_size: cell for cell in run.cells.values()}
    return cells[2]


@pytest.fixture(scope="module")
def both(cell: Cell) -> Exposed:
    found = exposed(cell)
    assert found is not None
    return found


def test_both_ways_agree(cell: Cell, both: Exposed) -> None:
    summary = cell.record.summary
    assert summary is not None
    step_s = summary.step_s.value
    assert both.difference.low is not None
    assert both.difference.high is not None
    assert both.difference.high - both.difference.low < 4 * OF_THE_STEP * step_s, "too vague to agree on anything"
    assert abs(both.difference.value) <= OF_THE_STEP * step_s or not both.disagree


def test_both_ways_find_what_the_link_costs(cell: Cell, both: Exposed) -> None:
    """Most of these steps is sending: to agree on nothing would be no proof."""
    summary = cell.record.summary
    assert summary is not None
    assert both.timeline.value > 0.5 * summary.step_s.value
    assert both.pairing.value > 0.5 * summary.step_s.value
