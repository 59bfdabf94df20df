"""A short computation beside the steps: how long it takes tells what the machine gives at that moment (method.md §8).

A virtual machine cannot see that its host puts two of its cores on one physical core for a second or two: no other
process runs, and no time is stolen. Two workers then compute at 0.6 of their rate. On two cores of such a machine the
same steps of two ddp workers took 0.26 s, and 0.35 s where this computation took 1.7 times as long as usual (17 % of
210 steps; correlation of the logarithms 0.68).
"""

import time
from collections.abc import Sequence
from math import ceil

import torch

from worldsize.threads import pinned_thread

SIZE = 256
"""Rows of the matrices: three of them fit into the second cache of a core, so that it is the core that is timed."""
PRODUCTS = 15
"""How many products a time stands for, also where more were computed: times of two machines are of the same work."""
LEAST_S = 5e-3
"""So much is computed at least. Ranks end a step within a millisecond of each other, and must compute at the same time.
And another process gets the core only after a slice of Linux's scheduler, 4.0 ms with 250 ticks a second: on a core
that takes 2.5 ms for PRODUCTS, half of the computations beside a planted process did not show it, and steps beside
it counted."""
AGAIN = 1.25
"""If it takes this many times as long as the quickest so far, twice as much is computed at once, and the quicker rate
counts. Interruptions of a millisecond are frequent where there are many ranks; they disturb no step."""


class Reference:
    """Some products of matrices on the cores of each worker of this process, all at the same time."""

    def __init__(self, workers: int, cores: Sequence[Sequence[int]] = ()) -> None:
        """`workers`: how many this process drives; several compute on threads of their own, each pinned to its cores.

        Not pinned, two threads that are woken at once were seen to begin on one core and to stay there for 4 ms.
        """
        generator = torch.Generator().manual_seed(0)  # training must draw what it would have drawn
        self._factors = [torch.randn(SIZE, SIZE, generator=generator) for _ in range(workers)]
        self._products = [torch.empty(SIZE, SIZE) for _ in range(workers)]
        self._quickest_s = [float("inf")] * workers
        self._counts = [PRODUCTS] * workers
        threads = torch.get_num_threads()
        self._threads = [
            pinned_thread(f"reference-{worker}", cores[worker] if cores else (), threads)
            for worker in range(workers if workers > 1 else 0)
        ]

    def time_s(self) -> float:
        """Compute, and say how long PRODUCTS of the products took on the slowest of the workers (s)."""
        if not self._threads:
            return self._compute(0)
        computing = [thread.submit(self._compute, worker) for worker, thread in enumerate(self._threads)]
        return max(each.result() for each in computing)

    def close(self) -> None:
        """End the threads."""
        for thread in self._threads:
            thread.shutdown()

    def _compute(self, worker: int) -> float:
        took_s = self._took_s(worker, self._counts[worker]) / self._counts[worker]
        if self._counts[worker] * took_s < LEAST_S:  # the core is quicker than was known; a new process knows nothing
            self._counts[worker] = ceil(LEAST_S / took_s)
            took_s = self._took_s(worker, self._counts[worker]) / self._counts[worker]
        if took_s > AGAIN * self._quickest_s[worker]:
            more = 2 * self._counts[worker]
            took_s = min(took_s, self._took_s(worker, more) / more)
        self._quickest_s[worker] = min(took_s, self._quickest_s[worker])
        return PRODUCTS * took_s

    def _took_s(self, worker: int, count: int) -> float:
        begin_s = time.perf_counter()
        for _ in range(count):
            torch.mm(self._factors[worker], self._factors[worker], out=self._products[worker])
        return time.perf_counter() - begin_s
