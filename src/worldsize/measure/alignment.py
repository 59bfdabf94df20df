"""Align the clocks of ranks on different hosts by round trips over the process group (method.md §3)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

ROUNDS = 12
"""Round trips per rank; the quickest of them counts, for in the others something waited on the way."""


@dataclass(frozen=True)
class Offset:
    """What to add to a rank's clock to get rank 0's, and how wrong that can be (ns)."""

    offset_ns: int = 0
    error_ns: int = 0
    """Half of the quickest round trip: the message may have taken all of it on one of its two ways."""


def align(now: Callable[[], int], group: dist.ProcessGroup | None = None) -> Offset:
    """Measure this rank's offset to rank 0; all ranks of the (CPU) group call it together.

    As NTP does: rank k notes when it asks and when the answer is there, rank 0 answers with its own time, and the
    middle of the question's way is taken for that time (RFC 5905, §8).
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    result = Offset()
    for other in range(1, world_size):
        if rank == 0:
            for _ in range(ROUNDS):
                _answer(now, other, group)
        elif rank == other:
            result = min((_ask(now, group) for _ in range(ROUNDS)), key=lambda offset: offset.error_ns)
    return result


def _answer(now: Callable[[], int], other: int, group: dist.ProcessGroup | None) -> None:
    box = torch.empty(1, dtype=torch.int64)
    dist.recv(box, other, group=group)
    box[0] = now()
    dist.send(box, other, group=group)


def _ask(now: Callable[[], int], group: dist.ProcessGroup | None) -> Offset:
    box = torch.zeros(1, dtype=torch.int64)
    asked = now()
    dist.send(box, 0, group=group)
    dist.recv(box, 0, group=group)
    answered = now()
    return Offset(int(box) - (asked + answered) // 2, (answered - asked) // 2)
