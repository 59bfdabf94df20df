"""Ranks that whoever started them has bound to cores of their own keep these, and no more threads than these have."""

import os
from pathlib import Path

import pytest

from fake_cells import findings
from jobs import start
from worldsize.config import StudySettings
from worldsize.launch.placement import place
from worldsize.ranks.setup import Rank
from worldsize.results.records import Placement
from worldsize.study.inside_cells import Bound, are_apart, cells_here, each_on_its_own, room_of_each

SETTINGS = StudySettings(strategies=("single", "ddp"), world_sizes=(1, 2), batch_sizes=(4,), steps=8)
several = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks cannot be bound apart on one core")


def eight_cores(root: Path) -> Path:
    """A tree of /sys with eight cores of two threads, numbered n and n + 8."""
    for cpu in range(16):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "core_cpus_list").write_text(f"{cpu % 8},{cpu % 8 + 8}\n")
    return root


def planned(threads: int, ranks: int = 2) -> Placement:
    """As all ranks of a node would be placed on the first core alone."""
    return place(world_size=ranks, processes=ranks, threads_per_worker=threads, cores=(0,), gpus=0, backend="gloo")


HALVES = ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
"""Each of two ranks on four cores, as `--cpu-bind` of whole sockets gives them."""
THREADS = ((*range(8),), (*range(8, 16),))
"""Each on a thread of every core: no CPU in common, and no core of its own."""


def test_ranks_on_cores_of_their_own_have_them_all(tmp_path: Path) -> None:
    root = eight_cores(tmp_path)
    assert room_of_each(HALVES, root) == 4
    placed = each_on_its_own(planned(4), HALVES, root)
    assert placed.cores == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert (placed.oversubscribed, placed.on_siblings, placed.room_cores) == (False, (), 8)
    fuller = each_on_its_own(planned(5), HALVES, root)
    assert fuller.cores == ((0, 1, 2, 3, 8), (4, 5, 6, 7, 12))
    assert (fuller.oversubscribed, fuller.on_siblings) == (True, (0, 1))


def test_two_threads_of_a_core_are_no_cores_of_their_own(tmp_path: Path) -> None:
    root = eight_cores(tmp_path)
    assert room_of_each(THREADS, root) == 4
    for threads in (4, 8):
        placed = each_on_its_own(planned(threads), THREADS, root)
        assert placed.cores == (THREADS[0][:threads], THREADS[1][:threads])
        assert (placed.oversubscribed, placed.on_siblings, placed.room_cores) == (True, (1,), 8)


def test_the_rank_with_the_fewest_cores_decides(tmp_path: Path) -> None:
    root, uneven = eight_cores(tmp_path), ((0, 1, 2, 3, 4), (5, 6))
    assert room_of_each(uneven, root) == 2
    assert each_on_its_own(planned(2), uneven, root).cores == ((0, 1), (5, 6))
    crowded = each_on_its_own(planned(3), uneven, root)
    assert crowded.cores == ((0, 1, 2), (5, 6, 5))
    assert crowded.oversubscribed


def test_a_core_in_common_is_none_of_ones_own() -> None:
    assert are_apart(HALVES)
    assert not are_apart(((0, 1), (1, 2)))
    assert not are_apart(((0, 1), (0, 1)))


@several
def test_a_study_puts_each_rank_where_it_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two ranks with a core each, neither gets a share of it; the second knows no other core than its own."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    first, second = ((core,) for core in sorted(os.sched_getaffinity(0))[:2])
    for rank, cores in ((0, (first, second)), (1, ((), second))):
        cells, _ = cells_here(SETTINGS, findings(samples=64), Rank(rank, 2, rank), Bound((first, second), threads=1))
        assert [cell.placement.cores for cell in cells if cell.world_size == 2] == [cores]
        assert {cell.placement.threads_per_worker for cell in cells} == {1}


@several
def test_ranks_see_how_all_of_their_node_are_bound(tmp_path: Path) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    apart, shared = [[first], [second]], [[first, second], [second]]
    job = start("launch_entries:bound", 2, tmp_path, masks=[apart, shared])
    try:
        assert [reply["said"] for reply in job.receive()] == [[[apart, 1], None]] * 2
    finally:
        job.close()
