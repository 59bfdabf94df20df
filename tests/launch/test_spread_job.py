"""A job over several nodes: agents that meet, one group, one first cause, and nothing that outlives it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jobs import alive, environment, family
from nodes_here import NodesHere
from worldsize.launch.cluster import Running, share_out
from worldsize.launch.job import Job, Node
from worldsize.launch.local import JobFailed
from worldsize.results.records import ErrorRecord


@contextlib.contextmanager
def job(entry: str, folder: Path, *, hang_timeout_s: float | None = None, **payload: Any) -> Iterator[Running]:
    """Three workers on two nodes, the first of which takes two of them."""
    cluster = NodesHere((2, 1))
    described = Job(
        entry=f"launch_entries:{entry}",
        payload=payload,
        processes=3,
        folder=folder,
        environment=environment(),
        hang_timeout_s=hang_timeout_s,
        nodes=cluster.share_out(3),
    )
    with contextlib.closing(cluster.start(described)) as started:
        yield started


def workers() -> list[psutil.Process]:
    """All processes that belong to a job: this one may have others, for other tests."""
    return [
        each for each in family(os.getpid())[1:] if command_of(each).startswith(("worldsize agent", "worldsize worker"))
    ]


def command_of(process: psutil.Process) -> str:
    """Its command line; empty where it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def test_the_nodes_are_one_group_in_the_order_of_their_ranks(tmp_path: Path) -> None:
    with job("answer", tmp_path, word="here") as spread:
        about = [reply["said"] for reply in spread.receive()]
        assert [(me["rank"], me["sum_over_ranks"]) for me in about] == [(0, 3.0), (1, 3.0), (2, 3.0)]
        agents = {psutil.Process(me["pid"]).ppid() for me in about}
        assert len(agents) == 2
        spread.send({"op": "steps", "count": 4})
        assert [reply["said"] for reply in spread.receive()] == [[rank, "steps", 4] for rank in range(3)]
        running = workers()
    assert alive(running) == []


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(("how", "kind"), [("raise", "ValueError"), ("sigkill", "Signal")])
def test_the_first_cause_is_told_whatever_node_it_was_on(tmp_path: Path, rank: int, how: str, kind: str) -> None:
    error = failure(tmp_path, rank=rank, how=how)
    assert (error.rank, error.kind) == (rank, kind)


def failure(folder: Path, **payload: Any) -> ErrorRecord:
    """What the parent is told when a rank fails in its first turn; nothing of the job is left then."""
    with job("fail", folder, **payload) as failing:
        failing.receive()
        running = workers()
        failing.send({"op": "steps"})
        with pytest.raises(JobFailed) as caught:
            failing.receive()
        assert alive(running) == []
    return caught.value.error


def test_an_agent_that_was_killed_ends_the_job(tmp_path: Path) -> None:
    with job("hang", tmp_path) as headless:
        headless.receive()
        running = workers()
        agents = [process for process in running if command_of(process).startswith("worldsize agent")]
        agents[-1].kill()
        with pytest.raises(JobFailed, match="the agent ended with status -9"):
            headless.receive()
    assert alive(running) == []


def test_a_rank_that_begins_nothing_more_is_told_from_those_that_wait(tmp_path: Path) -> None:
    with job("stop_beating", tmp_path, hang_timeout_s=1.5) as hanging:
        hanging.receive()
        running = workers()
        hanging.send({"op": "steps"})
        with pytest.raises(JobFailed) as caught:
            hanging.receive()
    assert alive(running) == []
    assert (caught.value.error.kind, caught.value.error.rank) == ("Hang", 1)
    assert "rank 1 came least far, and the others wait" in caught.value.error.message


def test_nodes_that_do_not_answer_to_their_address_are_told(tmp_path: Path) -> None:
    cluster = NodesHere((1, 1), address="192.0.2.1")  # TEST-NET-1: nobody has it
    nowhere = Job(entry="launch_entries:answer", payload={}, processes=2, folder=tmp_path, nodes=cluster.nodes)
    with pytest.raises(JobFailed, match=r"192\.0\.2\.1"):
        cluster.start(nowhere)
    assert workers() == []


ROOMS = [Node(name=f"n{i}", address="", processes=room) for i, room in enumerate((2, 3, 1))]


@pytest.mark.parametrize(
    ("processes", "evenly", "shares"),
    [(2, False, []), (3, False, [2, 1]), (6, False, [2, 3, 1]), (2, True, [1, 1]), (4, True, [2, 1, 1]), (1, True, [])],
)
def test_nodes_are_filled_one_after_the_other_or_evenly(processes: int, evenly: bool, shares: list[int]) -> None:
    assert [node.processes for node in share_out(ROOMS, processes, evenly=evenly)] == shares
