"""Which world sizes are planned where nobody gave any, and that no strategy is left out of one without a word."""

from pathlib import Path
from typing import Any

import pytest

from fake_cells import findings
from nodes_here import NodesHere
from tiny import tiny_settings
from worldsize.config import LaunchSettings, Room, StudySettings, chosen_world_sizes
from worldsize.errors import UsageError
from worldsize.measure.cores import Cores
from worldsize.ranks.setup import Rank
from worldsize.results.records import Findings
from worldsize.study.inside import _fitting
from worldsize.study.plan import left_out, make_plan
from worldsize.study.probe import probe, room_of
from worldsize.training.probe import look

PICKY = """
from worldsize.errors import UsageError
from worldsize.strategies.ddp import DDP

class Even(DDP):
    @classmethod
    def processes(cls, world_size):
        if world_size % 2:
            raise UsageError(f"Even needs pairs of workers; {world_size} was given")
        return world_size
"""


def planned(settings: StudySettings, found: Findings, cluster: NodesHere | None = None) -> set[int]:
    return {cell.settings.world_size for cell in make_plan(settings, found, (0, 1), cluster)}


def test_eight_nodes_are_planned_for_eight_workers(tmp_path: Path) -> None:
    """The look before the start is the real one, in a process of its own."""
    settings = StudySettings(model=tiny_settings(tmp_path).model, data="digits", strategies=("single", "ddp"))
    cluster = NodesHere((1,) * 8)
    assert planned(settings, probe(settings, cluster), cluster) == {1, 2, 4, 8}


@pytest.mark.parametrize("rooms", [(2,) * 8, (16,), (10, 6)])
def test_all_workers_of_the_nodes_whatever_this_machine_has(rooms: tuple[int, ...]) -> None:
    cluster = NodesHere(rooms)
    assert room_of(cluster) == Room(on_nodes=16)
    for gpus in (0, 2):
        assert chosen_world_sizes(StudySettings(), room_of(cluster), gpus) == (1, 2, 4, 8, 16)


@pytest.mark.parametrize(
    ("cores", "gpus", "sizes"),
    [
        (1, 0, (1,)),
        (2, 0, (1, 2)),
        (3, 0, (1, 2, 3)),
        (4, 0, (1, 2, 4)),
        (64, 0, (1, 2, 4)),
        (64, 1, (1,)),
        (2, 2, (1, 2)),
        (2, 6, (1, 2, 4, 6)),
        (2, 8, (1, 2, 4, 8)),
    ],
)
def test_all_gpus_or_the_cores_up_to_four(cores: int, gpus: int, sizes: tuple[int, ...]) -> None:
    settings = StudySettings(strategies=("ddp",))
    assert chosen_world_sizes(settings, Room(cores=cores), gpus) == sizes
    assert planned(settings, findings(gpus=gpus, samples=1000, world_sizes=sizes)) == {*sizes}
    on_cores = settings.model_copy(update={"backend": "gloo"})
    assert max(chosen_world_sizes(on_cores, Room(cores=cores), gpus)) == min(cores, 4), "no GPU is used"


@pytest.mark.parametrize(("hosts", "gpus", "sizes"), [(8, 0, (1, 2, 4, 8)), (3, 0, (1, 2, 3)), (4, 2, (1, 2))])
def test_all_emulated_hosts(hosts: int, gpus: int, sizes: tuple[int, ...]) -> None:
    assert chosen_world_sizes(StudySettings(hosts=hosts), Room(cores=2), gpus) == sizes


def test_what_was_asked_for_is_what_is_planned() -> None:
    asked = StudySettings(world_sizes=(5, 3))
    for room in (Room(), Room(cores=64), Room(on_nodes=2)):
        assert chosen_world_sizes(asked, room, 8) == (5, 3)


def test_threads_of_one_core_are_not_two_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores of two threads each: two workers, each with a thread on a core of its own."""
    cores = Cores((0, 2, 1, 3), whole=2)
    monkeypatch.setattr("worldsize.launch.cluster.usable_cores", lambda allowed: cores)
    settings = StudySettings(strategies=("ddp",))
    sizes = chosen_world_sizes(settings, room_of(NodesHere(())), 0)
    assert sizes == (1, 2)
    cells = make_plan(settings, findings(samples=1000, world_sizes=sizes), cores)
    assert {cell.placement.cores[-1:] for cell in cells} == {((0,),), ((2,),)}
    assert not any(cell.placement.oversubscribed for cell in cells)


def test_a_quota_leaves_room_for_fewer_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight cores a container may use three; of two and a half, two workers have a whole one each."""
    for quota, sizes in ((3.0, (1, 2, 3)), (2.5, (1, 2)), (0.5, (1,))):
        cores = Cores((*range(8),), whole=8, quota=quota)
        monkeypatch.setattr("worldsize.launch.cluster.usable_cores", lambda allowed, cores=cores: cores)
        assert chosen_world_sizes(StudySettings(), room_of(NodesHere(())), 0) == sizes


def looked(folder: Path, *strategies: str, **settings: Any) -> tuple[StudySettings, Findings]:
    """A study with a strategy that takes pairs of workers alone, and what the look before the start finds."""
    (folder / "picky.py").write_text(PICKY)
    names = tuple(name.replace("even", f"{folder / 'picky.py'}:Even") for name in strategies)
    wanted = StudySettings(model=tiny_settings(folder).model, data="digits", strategies=names, **settings)
    return wanted, look(wanted, Room(cores=3))


@pytest.mark.usefixtures("clean_imports")
class TestRefused:
    def test_a_strategy_that_refuses_a_size_is_named_with_its_reason(self, tmp_path: Path) -> None:
        settings, found = looked(tmp_path, "single", "ddp", "even")
        assert found.world_sizes == (1, 2, 3)
        told = [warning.message for warning in left_out(settings, found)]
        assert [text.partition(":Even ")[2] for text in told] == [
            "with 1 worker; Even needs pairs of workers; 1 was given",
            "with 3 workers; Even needs pairs of workers; 3 was given",
        ]
        assert {warning.code for warning in left_out(settings, found)} == {"left-out"}
        cells = make_plan(settings, found, (0, 1, 2))
        assert [cell.settings.world_size for cell in cells if "Even" in cell.settings.strategy] == [2]

    def test_one_worker_is_the_baselines_where_it_was_asked_for_alone(self, tmp_path: Path) -> None:
        settings, found = looked(tmp_path, "single", "even", world_sizes=(1, 2), baseline="single")
        assert left_out(settings, found) == []

    def test_the_baseline_is_left_out_of_nothing(self, tmp_path: Path) -> None:
        settings, found = looked(tmp_path, "single", "ddp")
        assert left_out(settings, found) == []

    def test_a_strategy_that_fits_no_size_is_an_error(self, tmp_path: Path) -> None:
        settings, found = looked(tmp_path, "single", "even", world_sizes=(1, 3))
        with pytest.raises(UsageError, match="Even needs pairs of workers; 1 was given"):
            make_plan(settings, found, (0, 1, 2))

    def test_a_cell_that_was_named_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "picky.py").write_text(PICKY)
        even = {"strategy": f"{tmp_path / 'picky.py'}:Even", "world_size": 3, "batch_size": 4}
        cells = ({"strategy": "ddp", "world_size": 2, "batch_size": 4}, even)
        settings = StudySettings.model_validate({"model": tiny_settings(tmp_path).model, "cells": cells})
        found = look(settings, Room())
        with pytest.raises(UsageError, match="Even needs pairs of workers; 3 was given"):
            make_plan(settings, found, (0, 1, 2))
        assert left_out(settings, found) == [], "of what was named nothing is left out"


def test_a_group_that_others_have_started_has_one_worker_and_all() -> None:
    """Else `single`, which is among the default strategies, would be refused."""
    for processes, sizes in ((1, (1,)), (4, (1, 4))):
        rank = Rank(rank=0, local_rank=0, processes=processes)
        assert _fitting(StudySettings(), rank).world_sizes == sizes


@pytest.mark.parametrize(
    ("gpus", "rooms", "told"),
    [
        (2, (4, 4), "world size 8 puts 4 workers on one node, and a node has 2 GPU(s)"),
        (2, (8,), "world size 8 was given; this machine has 2 GPU(s)"),
    ],
)
def test_a_node_with_more_workers_than_gpus_is_refused(gpus: int, rooms: tuple[int, ...], told: str) -> None:
    settings = StudySettings(strategies=("ddp",), world_sizes=(8,))
    with pytest.raises(UsageError) as caught:
        make_plan(settings, findings(gpus=gpus, samples=1000), (0, 1), NodesHere(rooms))
    assert str(caught.value).startswith(told)


def test_the_threads_are_those_of_the_node_that_has_most_workers() -> None:
    settings = StudySettings(strategies=("ddp",), world_sizes=(1, 2))
    for evenly, threads in ((False, 2), (True, 4)):
        cells = make_plan(settings, findings(samples=1000), (0, 1, 2, 3), NodesHere((2, 2), evenly=evenly))
        assert {cell.placement.threads_per_worker for cell in cells} == {threads}


@pytest.mark.parametrize(
    ("flags", "workers"),
    [({}, 1), ({"nodes": 8, "workers_per_node": 2}, 16), ({"workers_per_node": 3}, 3)],
)
def test_a_training_has_all_workers_of_the_nodes_that_were_asked_for(flags: dict[str, int], workers: int) -> None:
    assert LaunchSettings(launcher="slurm", **flags).workers == workers  # type: ignore[arg-type]


def test_a_training_on_nodes_of_unknown_room_says_with_how_many() -> None:
    with pytest.raises(UsageError, match="Give --world-size"):
        _ = LaunchSettings(launcher="slurm", nodes=8).workers
