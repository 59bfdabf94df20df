"""One rank of the collective benchmark: takes the samples that it is asked for, and checks the results.

And how fast each rank reaches rank 0, one after the other: one on the wrong interface is far slower than the others.
"""

import sys
import time
from typing import Any

import torch
import torch.distributed as dist

from worldsize.collectives.links import test_link
from worldsize.collectives.operations import OPERATIONS, Operation
from worldsize.config import Hosts
from worldsize.measure.accelerator import wait_for
from worldsize.measure.alignment import Offset, align
from worldsize.ranks.heartbeat import beat
from worldsize.ranks.host_collectives import between_cpus
from worldsize.ranks.setup import Rank, choose_device, pin, process_group, where
from worldsize.ranks.turns import Reply, Turn, Turns, run_turns
from worldsize.results.base import Record
from worldsize.results.comm_records import CommSample
from worldsize.results.records import Placement

SIZE_BYTES = 512 * 2**10
TURNS = 3
FEWEST = 3
"""Ranks from which on one can be told from the others."""


def rate_to_first(device: torch.device) -> float | None:
    """Bytes per second between this rank and rank 0, the best of a few turns; None on rank 0, or of two ranks.

    All ranks call it together.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size < FEWEST:
        return None
    box = torch.zeros(SIZE_BYTES, dtype=torch.uint8, device=device)
    best_s = float("inf")
    for other in range(1, world_size):
        for _ in range(TURNS):
            dist.barrier()
            if rank in (0, other):
                best_s = min(best_s, _there_and_back(box, rank, other))
    return None if rank == 0 else 2 * SIZE_BYTES / best_s


def _there_and_back(box: torch.Tensor, rank: int, other: int) -> float:
    began = time.perf_counter()
    if rank == 0:
        dist.recv(box, other)
        dist.send(box, other)
    else:
        dist.send(box, 0)
        dist.recv(box, 0)
    wait_for(box.device)
    return time.perf_counter() - began


class Task(Record):
    """Where the ranks run; what they time is told turn by turn."""

    placement: Placement
    hosts: Hosts | None = None
    """The emulated hosts, where their links are tested."""


def main() -> int:
    """Say on stdout how many GPUs there are, before any worker is started (study/comm_devices.py)."""
    sys.stdout.write(f"\n{torch.cuda.device_count()}\n")
    return 0


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """The entry that launch calls in each worker; answers a turn with a sample of this rank."""
    task = Task.model_validate(payload)
    rank = Rank.from_environment()
    pin(rank, task.placement)
    device = choose_device(rank, task.placement)
    with process_group(rank, task.placement, device):
        run_turns(turns, ready(task.placement, device), Bench(device, task.hosts).do)


def ready(placement: Placement, device: torch.device) -> Reply:
    """Where this rank runs, and how it reaches rank 0. All ranks call it together."""
    return Reply(place=where(placement), to_first_bytes_per_s=rate_to_first(device))


class Bench:
    """What one rank keeps from turn to turn. All ranks make it together, and give it the same turns."""

    def __init__(self, device: torch.device, hosts: Hosts | None = None) -> None:
        self.device, self.hosts = device, hosts
        self._between_cpus = None if dist.get_backend() == "gloo" else between_cpus()
        self._clock, self._aligned_ns = Offset(), 0
        self._block: int | None = None
        self._wrong: dict[tuple[str, int], int] = {}

    def do(self, turn: Turn) -> Reply:
        """Take one sample (op `collective`), the first of each size a single call, which is checked; or test a link."""
        if turn.op == "link" and self.hosts is not None:
            return Reply(links=[test_link(self.hosts)])
        if turn.op != "collective":
            return Reply()
        assert turn.collective is not None
        if turn.block != self._block:  # clocks of different hosts drift apart
            self._clock, self._block = align(time.perf_counter_ns, self._between_cpus), turn.block
            self._aligned_ns = time.perf_counter_ns()
        operation = OPERATIONS[turn.collective](turn.size_bytes, self.device)
        if (turn.collective, turn.size_bytes) not in self._wrong and self.device.type != "cpu":
            operation.fill()
            operation.call()  # opens the connections that later calls find open
        operation.fill()
        begin_ns, end_ns = _time(operation, turn.count, self.device)
        sample = CommSample(
            collective=turn.collective,
            size_bytes=operation.size_bytes,
            begin_ns=begin_ns + self._clock.offset_ns,
            end_ns=end_ns + self._clock.offset_ns,
            clock_error_ns=self._clock.aged(end_ns - self._aligned_ns).error_ns,
            calls=turn.count,
            wrong_elements=self._wrong_elements(operation, turn),
        )
        return Reply(comm=[sample])

    def _wrong_elements(self, operation: Operation, turn: Turn) -> int:
        """Over all ranks, as the first call of this size left them: sums of sums would overflow."""
        key = turn.collective or "", turn.size_bytes
        if key not in self._wrong:
            assert turn.count == 1, "the result of one call can be checked"
            self._wrong[key] = _total(operation.wrong(), self.device)
        return self._wrong[key]


def _time(operation: Operation, calls: int, device: torch.device) -> tuple[int, int]:
    """When some calls began and had ended on this rank (ns of its clock), after all ranks have met."""
    beat()
    dist.barrier()
    begin_ns = time.perf_counter_ns()
    for _ in range(calls):
        operation.call()
    wait_for(device)
    return begin_ns, time.perf_counter_ns()


def _total(value: int, device: torch.device) -> int:
    box = torch.tensor(value, device=device)
    dist.all_reduce(box)
    return int(box)
