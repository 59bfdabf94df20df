"""The cell that goes on with fewer workers is placed as if it had been planned so."""

from pathlib import Path

import pytest

from fake_cells import findings
from nodes_here import NodesHere
from worldsize.config import StudySettings
from worldsize.measure.cores import Cores
from worldsize.study.ledger import Ledger
from worldsize.study.plan import make_plan
from worldsize.study.restarts import Shrink


@pytest.mark.parametrize("evenly", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_on_several_nodes_each_has_cores_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evenly: bool, threads: int
) -> None:
    """Cores of the same number on two nodes are two cores."""
    monkeypatch.setattr("worldsize.launch.cluster.usable_cores", lambda allowed: Cores((0, 1), whole=2))
    settings = StudySettings(strategies=("ddp",), world_sizes=(4, 3), batch_sizes=(12,), threads_per_worker=threads)
    cluster, found = NodesHere((2, 2), evenly=evenly), findings(samples=1000)
    three, four = make_plan(settings, found, cluster.cores, cluster)
    assert (three.placement.processes, four.placement.processes) == (3, 4)

    smaller = Shrink(tmp_path, 1, found.processes, Ledger(tmp_path, 0, {}), cluster)._smaller(four, 1)
    assert smaller is not None
    assert (smaller.settings.world_size, smaller.settings.batch_size) == (3, 16)
    assert smaller.placement == three.placement
    assert smaller.placement.oversubscribed is (threads == 2)
