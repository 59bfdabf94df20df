"""Which collectives a study times before its cells, and up to which size."""

from dataclasses import replace

import pytest

from fake_study import STUDY, grid
from worldsize.study.links import wanted_links
from worldsize.study.plan import PlannedCell
from worldsize.traits import TraitsRecord

MIB = 2**20


def on(device: str, backend: str) -> list[PlannedCell]:
    cells = grid("single", "ddp", "gather-scatter")
    update = {"device": device, "backend": backend}
    return [replace(cell, placement=cell.placement.model_copy(update=update)) for cell in cells]


def test_a_strategy_that_says_it_sends_nothing_has_no_link_to_time() -> None:
    cells = [replace(cell, own_traits=TraitsRecord(collectives=())) for cell in grid("ddp")]
    assert not list(wanted_links(STUDY, cells))


@pytest.mark.parametrize(("device", "backend", "top"), [("cpu", "gloo", 4 * MIB), ("cuda", "nccl", 256 * MIB)])
def test_a_link_is_filled_by_the_largest_size(device: str, backend: str, top: int) -> None:
    """At 4 MiB, which fills Ethernet, NVLink is far below its plateau: training would seem to beat the link's peak."""
    cells = on(device, backend)
    [wanted] = wanted_links(STUDY, cells)
    assert wanted.top_bytes == top
    assert wanted.backend == backend
    assert wanted.world_size == 2
    assert wanted.collectives == ("all-reduce", "broadcast", "gather", "scatter")
