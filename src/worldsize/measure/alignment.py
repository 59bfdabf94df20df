"""Align the clocks of ranks on different hosts by round trips over the process group (method.md §3)."""

import math
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from worldsize.results.step_records import MAX_DRIFT

ROUNDS = 12
"""Round trips per rank; the quickest of them counts, for in the others something waited on the way."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Offset:
    """What to add to a rank's clock to get rank 0's, and how wrong that can be (ns)."""

    offset_ns: int = 0
    error_ns: int = 0
    """Half of the quickest round trip: the message may have taken all of it on one of its two ways."""
    one_clock: bool = False
    """Whether all ranks read one and the same clock, which need not be aligned again."""

    @property
    def exact(self) -> bool:
        """Whether nothing is left to find out."""
        return self.one_clock and not self.error_ns

    def aged(self, by_ns: int) -> "Offset":
        """The same so much later, if the clocks were not aligned since."""
        drift_ns = 0 if self.one_clock else math.ceil(by_ns * MAX_DRIFT)
        return Offset(self.offset_ns, self.error_ns + drift_ns, self.one_clock)


@dataclass(frozen=True)
class Measured:
    """What one rank has found: the boot whose monotonic clock it reads (0: not known), and its offset to rank 0."""

    boot: int
    offset: Offset


def boot_id() -> int:
    """The boot of this machine as a number; 0 where the system does not tell (Linux does, random(4))."""
    try:
        return uuid.UUID(BOOT_ID.read_text().strip()).int
    except (OSError, ValueError):
        return 0


def align(now: Callable[[], int], group: dist.ProcessGroup | None = None, boot: int | None = None) -> Offset:
    """Measure this rank's offset to rank 0; all ranks of the (CPU) group call it together.

    As NTP does: rank k notes when it asks and when the answer is there, rank 0 answers with its own time, and the
    middle of the question's way is taken for that time (RFC 5905, §8). Then `settled` looks which ranks share a clock.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    result = Offset()
    for other in range(1, world_size):
        if rank == 0:
            for _ in range(ROUNDS):
                _answer(now, other, group)
        elif rank == other:
            result = min((_ask(now, group) for _ in range(ROUNDS)), key=lambda offset: offset.error_ns)
    return settled(_gathered(Measured(boot_id() if boot is None else boot, result), world_size, group))[rank]


def settled(measured: Sequence[Measured]) -> list[Offset]:
    """The offset of each rank, where those that share a clock have the one of them that is known best.

    Ranks of one boot share its monotonic clock, unless their offsets say otherwise: a process can have a clock of its
    own (time_namespaces(7)). With rank 0's clock the offset is 0, exactly.
    """
    best = [
        min((other.offset for other in measured if _share(one, other)), key=lambda offset: offset.error_ns)
        for one in measured
    ]
    one_clock = all(offset == Offset() for offset in best)
    return [Offset(offset.offset_ns, offset.error_ns, one_clock) for offset in best]


def _share(one: Measured, other: Measured) -> bool:
    if one is other:
        return True
    apart = abs(one.offset.offset_ns - other.offset.offset_ns)
    return one.boot == other.boot != 0 and apart <= one.offset.error_ns + other.offset.error_ns


def _gathered(mine: Measured, world_size: int, group: dist.ProcessGroup | None) -> list[Measured]:
    """What every rank has measured, on every rank."""
    high, low = struct.unpack(">qq", mine.boot.to_bytes(16, "big"))
    own = torch.tensor([high, low, mine.offset.offset_ns, mine.offset.error_ns])
    everyone = [torch.empty_like(own) for _ in range(world_size)]
    dist.all_gather(everyone, own, group=group)
    found = []
    for high, low, offset_ns, error_ns in (each.tolist() for each in everyone):
        boot = int.from_bytes(struct.pack(">qq", high, low), "big")
        found.append(Measured(boot, Offset(offset_ns, error_ns)))
    return found


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
    return Offset(int(box) - (asked + answered) // 2, (answered - asked) // 2 + 1)  # the middle is rounded
