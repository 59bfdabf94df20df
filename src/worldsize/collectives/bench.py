"""One rank of the collective benchmark: times each collective at each size, in turn, and checks the results."""

import time
from typing import Any

import torch
import torch.distributed as dist

from worldsize.collectives.operations import OPERATIONS, Operation
from worldsize.collectives.peers import rate_to_first
from worldsize.measure.alignment import align
from worldsize.ranks.pulse import beat
from worldsize.ranks.setup import Rank, choose_device, process_group, settle, where
from worldsize.ranks.turns import Reply, Turns
from worldsize.results.comm_records import CommSample
from worldsize.results.records import Placement, Record

SAMPLE_S = 0.05
"""One sample lasts about this long: the calls within it are back to back, so that its begin and end weigh little, and
so does what a link may send at once after a pause."""
MOST_CALLS = 200
TRIAL_CALLS = 2
TRIALS = 2


class Task(Record):
    """What is measured."""

    collectives: list[str]
    sizes_bytes: list[int]
    samples: int
    """Samples of each (collective, size), taken in rounds over all of them."""
    placement: Placement


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """The entry that launch calls in each worker; replies with the samples of this rank."""
    task = Task.model_validate(payload)
    rank = Rank.from_environment()
    settle(rank, task.placement)
    device = choose_device(rank, task.placement)
    with process_group(rank, task.placement, device):
        turns.reply(answer(task, device))
        turns.next()


def answer(task: Task, device: torch.device) -> Reply:
    """What this rank has measured, and where it runs. All ranks call it together."""
    return Reply(comm=measure(task, device), place=where(task.placement), to_first_bytes_per_s=rate_to_first(device))


def measure(task: Task, device: torch.device) -> list[CommSample]:
    """Time everything on this rank. All ranks call it together and get as many samples in the same order."""
    clock = align(time.perf_counter_ns, _between_cpus())
    cases = [(name, OPERATIONS[name](size, device)) for name in task.collectives for size in task.sizes_bytes]
    wrong, calls = {}, {}
    for name, operation in cases:
        operation.fill()
        operation.call()
        wrong[name, operation.size_bytes] = _total(operation.wrong(), device)
        calls[name, operation.size_bytes] = _calls(operation, device)
    samples = []
    for _ in range(task.samples):
        for name, operation in cases:
            key = name, operation.size_bytes
            operation.fill()  # sums would overflow if they were summed again and again
            begin_ns, end_ns = _time(operation, calls[key], device)
            samples.append(
                CommSample(
                    collective=name,
                    size_bytes=operation.size_bytes,
                    begin_ns=begin_ns + clock.offset_ns,
                    end_ns=end_ns + clock.offset_ns,
                    clock_error_ns=clock.error_ns,
                    calls=calls[key],
                    wrong_elements=wrong[key],
                )
            )
    return samples


def _calls(operation: Operation, device: torch.device) -> int:
    """How many calls make a sample: the same number on all ranks, from the time on the slowest."""
    trials = [_time(operation, TRIAL_CALLS, device) for _ in range(TRIALS)]
    quickest_ns = min(end_ns - begin_ns for begin_ns, end_ns in trials)  # a disturbed one would make samples short
    trial = torch.tensor(quickest_ns / TRIAL_CALLS / 1e9, device=device)
    dist.all_reduce(trial, op=dist.ReduceOp.MAX)
    return max(1, min(MOST_CALLS, round(SAMPLE_S / float(trial))))


def _between_cpus() -> dist.ProcessGroup | None:
    return None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")


def _time(operation: Operation, calls: int, device: torch.device) -> tuple[int, int]:
    """When some calls began and had ended on this rank (ns of its clock), after all ranks have met."""
    beat()
    dist.barrier()
    begin_ns = time.perf_counter_ns()
    for _ in range(calls):
        operation.call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return begin_ns, time.perf_counter_ns()


def _total(value: int, device: torch.device) -> int:
    box = torch.tensor(value, device=device)
    dist.all_reduce(box)
    return int(box)
