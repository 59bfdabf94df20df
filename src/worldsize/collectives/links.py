"""The self-test of emulated links: what each carries while all hosts send, its largest burst, and its round trip.

Counted where it arrives, by the kernel: what a program reads comes late, and then all at once, on a busy machine.
"""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

from worldsize.config import Hosts
from worldsize.ranks.heartbeat import beat
from worldsize.results.comm_records import HostLink

SECONDS = 0.6
"""How long a link carries the test at its rate."""
MOST_BYTES = 1_500_000_000
"""Of all hosts together: what two cores carry in about a second."""
UNLIMITED_BYTES = 64 * 2**20
"""What each host sends over links without a rate."""
CHUNK_BYTES = 2**20
PINGS = 9
WINDOW_S = 0.1
"""The burst is the most that arrives within so long."""
EVERY_S = 0.004
WIRE_BYTES = 1514 / 1448
"""Bytes on the wire for each byte that TCP carries."""


class Count(NamedTuple):
    """How much had arrived by a moment that lies between these two: the thread that counts may lose its core."""

    before_s: float
    after_s: float
    bytes: int


def test_link(hosts: Hosts) -> HostLink:
    """Send to the next rank while all others do; all ranks call it together."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    payloads = [_payload(hosts, other, (other + 1) % world_size) for other in range(world_size)]
    round_trip_s = _round_trip_s(rank, world_size)
    mine, expected = (_chunks(payloads[each], world_size) for each in (rank, rank - 1))
    # All of them before the first is sent: gloo tells its peer of each, and would do so behind the data that it sends.
    inbox = torch.zeros(CHUNK_BYTES, dtype=torch.uint8)
    awaited = [dist.irecv(inbox[:size], (rank - 1) % world_size) for size in expected]
    dist.barrier()
    with Counter() as counter:
        took_s = _carry(mine, awaited, (rank + 1) % world_size)
    payload = payloads[rank - 1]
    return HostLink(
        host=rank,
        payload_bytes_per_s=payload,
        steady_bytes_per_s=sum(expected) / took_s,
        burst=None if payload is None else burst(counter.counts, payload * WIRE_BYTES),
        round_trip_s=round_trip_s,
    )


def burst(counts: Sequence[Count], wire_bytes_per_s: float) -> float | None:
    """Largest share of the link's rate that arrived within WINDOW_S, at least; None if the test was shorter."""
    found, end = [], 0
    for begin in counts:
        while end < len(counts) and counts[end].after_s - begin.before_s < WINDOW_S:
            end += 1
        if end == len(counts):
            break
        found.append((counts[end].bytes - begin.bytes) / (counts[end].after_s - begin.before_s))
    return max(found) / wire_bytes_per_s if found else None


def _payload(hosts: Hosts, sender: int, receiver: int) -> float | None:
    """What the slower of two links lets TCP carry; None where neither has a rate."""
    known = [rate for rate in (hosts.payload_of(sender), hosts.payload_of(receiver)) if rate is not None]
    return min(known, default=None)


def _chunks(payload_bytes_per_s: float | None, world_size: int) -> list[int]:
    """Sizes of the messages of the test."""
    wanted = UNLIMITED_BYTES if payload_bytes_per_s is None else round(payload_bytes_per_s * SECONDS)
    total = max(1, min(wanted, MOST_BYTES // world_size))
    return [min(CHUNK_BYTES, total - begin) for begin in range(0, total, CHUNK_BYTES)]


def _carry(mine: Sequence[int], awaited: Sequence[dist.Work | None], receiver: int) -> float:
    """Send all, and wait for what comes; how long it took until the last had arrived (s)."""
    box, began_s = torch.zeros(CHUNK_BYTES, dtype=torch.uint8), time.perf_counter()
    sent = [dist.isend(box[:size], receiver) for size in mine]
    _wait_for(awaited)
    took_s = time.perf_counter() - began_s
    _wait_for(sent)
    return took_s


def _wait_for(works: Sequence[dist.Work | None]) -> None:
    for work in works:
        assert work is not None, "this rank is one of the group"
        work.wait()
        beat()


def _round_trip_s(rank: int, world_size: int) -> float:
    """To the next rank and back, one rank after the other; the least, for all beyond it is time of the cores."""
    box, times = torch.zeros(1), []
    for first in range(world_size):
        second = (first + 1) % world_size
        dist.barrier()
        for _ in range(PINGS):
            began_s = time.perf_counter()
            if rank == first:
                dist.send(box, second)
                dist.recv(box, second)
                times.append(time.perf_counter() - began_s)
            elif rank == second:
                dist.recv(box, first)
                dist.send(box, first)
    return min(times)


class Counter:
    """Counts what arrives at the interface of this rank's host, while it is entered."""

    def __init__(self) -> None:
        self.counts: list[Count] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)

    def __enter__(self) -> "Counter":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _count(self) -> None:
        while not self._over.wait(EVERY_S):
            before_s, arrived = time.perf_counter(), _arrived_bytes()
            self.counts.append(Count(before_s, time.perf_counter(), arrived))


def _arrived_bytes() -> int:
    """Bytes that the interfaces of this network have received, but for its loopback."""
    lines = Path("/proc/thread-self/net/dev").read_text(encoding="ascii").splitlines()[2:]
    fields = (line.split(":", 1) for line in lines)
    return sum(int(counted.split()[0]) for name, counted in fields if name.strip() != "lo")
