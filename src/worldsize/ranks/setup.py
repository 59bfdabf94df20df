"""Make this process a rank: cores, threads, device, process group."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from worldsize.errors import Interrupted, UsageError
from worldsize.measure.allocator import keep_freed_memory
from worldsize.measure.cores import usable_cores
from worldsize.measure.machine import allowed_cores
from worldsize.ranks.host_collectives import close_between_cpus, open_between_cpus
from worldsize.ranks.store import store_by_hand
from worldsize.results.records import Placement, RankPlace

POLLING_THREAD = "gloo_tcp_loop"
"""Name of gloo's thread that moves the bytes, where torch names it (2.13 does)."""
LOWER_BY = 5
"""In nice values. At 19 the thread starves while its worker computes: overlap on a slow link was seen to be lost."""
LOWEST_PRIORITY = 19
NCCL_PATIENCE = timedelta(days=365)


@dataclass(frozen=True)
class Rank:
    """Which process of the group this is, by the variables that torch's elastic agent (or torchrun) sets."""

    rank: int
    processes: int
    local_rank: int

    @classmethod
    def from_environment(cls) -> "Rank":
        """Read RANK, WORLD_SIZE and LOCAL_RANK; a process that no agent started is a group of one."""
        return cls(
            rank=int(os.environ.get("RANK", "0")),
            processes=int(os.environ.get("WORLD_SIZE", "1")),
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
        )


def pin(rank: Rank, placement: Placement, *, keeps_memory: bool = True) -> None:
    """Pin the calling thread, and those it starts, to the cores of its (first) worker, and set its threads.

    `keeps_memory`: the allocator keeps what each step frees (measure/allocator.py), which a user's script is left to
    say itself: with it a script of small layers was 8 to 23 % faster than as its author starts it.
    """
    if placement.cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, _cores_here(rank, placement))
    torch.set_num_threads(placement.threads_per_worker)
    if keeps_memory:
        keep_freed_memory()


def _cores_here(rank: Rank, placement: Placement) -> set[int]:
    """The planned cores; on a node whose scheduler has given others, as many of these in the same order.

    All workers of a node decide alike, from what is planned for all of them, or two could share a core.
    """
    planned, allowed = placement.cores[rank.rank], allowed_cores()
    if {core for own in placement.cores for core in own} <= set(allowed):
        return set(planned)
    ring = usable_cores(allowed).numbers
    first = rank.local_rank * len(planned)
    return {ring[(first + k) % len(ring)] for k in range(len(planned))}


def where(placement: Placement) -> RankPlace:
    """Where this process runs."""
    named = os.environ.get("NCCL_SOCKET_IFNAME" if placement.backend == "nccl" else "GLOO_SOCKET_IFNAME")
    return RankPlace(host=socket.gethostname(), cores=allowed_cores(), interface=named)


def choose_device(rank: Rank, placement: Placement) -> torch.device:
    """The device of this process; raise UsageError if there is no GPU left for it."""
    if placement.device == "cuda":
        if rank.local_rank >= torch.cuda.device_count():
            raise UsageError(f"worker {rank.rank} has no GPU of its own: this machine has {torch.cuda.device_count()}")
        device = torch.device("cuda", rank.local_rank)
        torch.cuda.set_device(device)
        return device
    return torch.device("cpu")


@contextmanager
def process_group(rank: Rank, placement: Placement, device: torch.device) -> Iterator[None]:
    """Join the group of all processes for the length of this context."""
    if rank.processes == 1 and "MASTER_ADDR" not in os.environ:
        # No launcher has started us: a group of one needs no rendezvous, and no socket.
        store = dist.HashStore()
        dist.init_process_group(placement.backend, store=store, rank=0, world_size=1)
    else:
        ours = device if device.type == "cuda" else None
        meeting = store_by_hand(rank.rank)
        place = (-1, -1) if meeting is None else (rank.rank, rank.processes)  # -1: torch asks the environment
        # NCCL's watchdog counts the time for which a worker is stopped between turns; launch/hang.py watches in them.
        patience = None if placement.backend == "gloo" else NCCL_PATIENCE
        dist.init_process_group(
            placement.backend, None, patience, store=meeting, rank=place[0], world_size=place[1], device_id=ours
        )
    if placement.backend == "gloo":
        give_way(POLLING_THREAD)
    else:
        open_between_cpus()
    stopped = False
    try:
        yield
    except (KeyboardInterrupt, Interrupted):
        stopped = True  # a thread may be within a collective, for which no other rank will come any more
        raise
    finally:
        _Further.group = None
        if not stopped:
            close_between_cpus()
            dist.destroy_process_group()


class _Alone:
    """The group of rank 0 alone, where one process of a larger group also runs what is for one worker."""

    group: dist.ProcessGroup | None = None


class _Further:
    """A second group of all processes, once it was asked for."""

    group: dist.ProcessGroup | None = None


def further_group() -> dist.ProcessGroup | None:
    """A second group of all processes, for collectives whose order among those of the first is not known.

    All processes ask for it together; a process has one, for any number of cells that it runs. None over NCCL: two
    groups that are under way at once wait for each other for ever where the GPU has room for one of them only (seen:
    int8 between two processes on an H200), and what follows a message is issued in a known order there.
    """
    if dist.get_backend() != "gloo":
        return None
    if _Further.group is None:
        _Further.group = dist.new_group()
        give_way(POLLING_THREAD)
    return _Further.group


def make_further_groups() -> None:
    """Make the group of rank 0 alone, and the one in which the others wait for it; all processes call it together."""
    _Alone.group = dist.new_group([0])
    open_between_cpus()
    give_way(POLLING_THREAD)


def group_of(processes: int) -> dist.ProcessGroup | None:
    """The group of so many processes, one or all; None is the default group."""
    return _Alone.group if processes == 1 and dist.get_world_size() > 1 else None


def give_way(thread: str, patience_s: float = 0.2) -> int:
    """Let the threads of this process that have this name interrupt no other; returns how many there are.

    gloo's thread asks again and again, without pause, for what another thread holds or has not asked for yet. On a core
    that it shares with these, pinned as all of a worker's are, it interrupts the very thread that it waits for, for
    a slice of the scheduler's: 2 ms for each of 16 all-reduces of 1 KiB in flight, 0.1 ms where Linux may not let it
    interrupt (SCHED_BATCH), and nothing is lost of what overlaps with computing (benchmarks/polling.py).
    A lower priority helps a little more. A thread that has just been started may not have its name yet.
    """
    deadline = time.monotonic() + patience_s
    while not (found := _lower(thread)) and time.monotonic() < deadline:
        time.sleep(0.005)
    return found


def _lower(thread: str) -> int:
    tasks = Path("/proc/self/task")
    priority = min(os.getpriority(os.PRIO_PROCESS, 0) + LOWER_BY, LOWEST_PRIORITY)  # we may have been started by nice
    found = 0
    for task in tasks.iterdir() if tasks.is_dir() else ():
        try:
            if (task / "comm").read_text().strip() == thread:
                with suppress(OSError):  # a sandbox may refuse it, and leave us the priority
                    if os.sched_getscheduler(int(task.name)) == os.SCHED_OTHER:
                        os.sched_setscheduler(int(task.name), os.SCHED_BATCH, os.sched_param(0))
                os.setpriority(os.PRIO_PROCESS, int(task.name), priority)
                found += 1
        except OSError:
            continue  # the thread has ended, or may not be changed: it stays as it is
    return found
