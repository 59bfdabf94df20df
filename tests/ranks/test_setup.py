"""A process becomes a rank."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist

from worldsize.errors import UsageError
from worldsize.launch.placement import place
from worldsize.measure.cores import Cores
from worldsize.measure.machine import allowed_cores
from worldsize.ranks.setup import (
    LOWER_BY,
    POLLING_THREAD,
    Rank,
    _cores_here,
    choose_device,
    further_group,
    give_way,
    pin,
    process_group,
)
from worldsize.results.records import Placement

ALONE = Rank(rank=0, processes=1, local_rank=0)
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def placed(world_size: int) -> Placement:
    return place(
        world_size=world_size,
        processes=world_size,
        threads_per_worker=1,
        cores=allowed_cores(),
        gpus=0,
        backend="gloo",
    )


@pytest.fixture(autouse=True)
def nobody_started_us(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def unpinned_after() -> Iterator[None]:
    """Undo `pin`."""
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    yield
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(threads)


def test_the_variables_of_an_agent_say_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Rank.from_environment() == ALONE
    for name, value in zip(VARIABLES, ("5", "8", "1"), strict=False):
        monkeypatch.setenv(name, value)
    assert Rank.from_environment() == Rank(rank=5, processes=8, local_rank=1)


@pytest.mark.usefixtures("unpinned_after")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_is_pinned_to_its_own_cores_with_its_threads(rank: int) -> None:
    threads = torch.get_num_threads() + 1
    placement = placed(2).model_copy(update={"threads_per_worker": threads})
    pin(Rank(rank=rank, processes=2, local_rank=rank), placement)
    assert os.sched_getaffinity(0) == set(placement.cores[rank])
    assert torch.get_num_threads() == threads
    inherited: list[set[int]] = []
    thread = threading.Thread(target=lambda: inherited.append(os.sched_getaffinity(0)))
    thread.start()
    thread.join()
    assert inherited == [set(placement.cores[rank])]


@pytest.mark.parametrize(
    ("allowed", "here"),
    [
        ((4, 5, 6, 7), [{4}, {6}, {5}]),  # as planned
        ((5, 6, 7, 8), [{5}, {7}, {6}]),  # another scheduler's gift: whole cores first here, too
        ((10, 11), [{10}, {11}, {10}]),
    ],
)
def test_a_node_with_other_cores_gives_each_worker_its_own(
    monkeypatch: pytest.MonkeyPatch, allowed: tuple[int, ...], here: list[set[int]]
) -> None:
    """Two of its cores have two threads each; what is planned for one worker may be another's here."""
    plan = place(
        world_size=3,
        processes=3,
        threads_per_worker=1,
        cores=Cores((4, 6, 5, 7), whole=2),
        gpus=0,
        backend="gloo",
    )
    siblings_last = Cores((*allowed[::2], *allowed[1::2]), whole=len(allowed) // 2)
    monkeypatch.setattr("worldsize.ranks.setup.allowed_cores", lambda: allowed)
    monkeypatch.setattr("worldsize.ranks.setup.usable_cores", lambda its: siblings_last)
    assert [_cores_here(Rank(rank=k, processes=3, local_rank=k), plan) for k in range(3)] == here


def test_without_gpus_the_device_is_the_cpu() -> None:
    assert choose_device(ALONE, placed(1)) == torch.device("cpu")


def test_a_worker_without_a_gpu_of_its_own_is_told_so() -> None:
    beyond = torch.cuda.device_count()
    on_gpu = placed(1).model_copy(update={"device": "cuda"})
    with pytest.raises(UsageError, match=f"this machine has {beyond}"):
        choose_device(Rank(rank=beyond, processes=beyond + 1, local_rank=beyond), on_gpu)


def test_a_group_of_one_needs_no_socket() -> None:
    def listening() -> int:
        return sum(c.status == psutil.CONN_LISTEN for c in psutil.net_connections("inet") if c.pid == os.getpid())

    before = listening()
    with process_group(ALONE, placed(1), torch.device("cpu")):
        assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    assert not dist.is_initialized()
    assert listening() == before


def test_a_group_is_left_when_something_fails_in_it() -> None:
    with pytest.raises(ValueError, match="no"), process_group(ALONE, placed(1), torch.device("cpu")):
        raise ValueError("no")
    assert not dist.is_initialized()


def test_gloos_polling_thread_gives_way_to_the_worker() -> None:
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    policy = os.sched_getscheduler(0)
    with process_group(ALONE, placed(1), torch.device("cpu")):
        threads = {task: (task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()}
        priorities = {name: os.getpriority(os.PRIO_PROCESS, int(task.name)) for task, name in threads.items()}
        assert priorities.get(POLLING_THREAD) == min(ours + LOWER_BY, 19), "gloo's thread has another name now?"
        policies = {name: os.sched_getscheduler(int(task.name)) for task, name in threads.items()}
        assert policies[POLLING_THREAD] == os.SCHED_BATCH, "it may not interrupt"
        assert (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)) == (ours, policy)


def test_a_thread_that_does_not_exist_is_none_of_our_business() -> None:
    assert give_way("no such thread") == 0


def test_over_nccl_there_is_no_second_group_that_could_wait_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """int8 hung between two processes on an H200: two communicators under way, and room for one of them."""
    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    monkeypatch.setattr(dist, "new_group", lambda: pytest.fail("a second communicator was made"))
    assert further_group() is None
