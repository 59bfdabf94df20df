"""Each collective: the tensors it takes, how it is called, and what must come out.

S is the size that algbw counts (method.md §5): all of the tensor for all-reduce and broadcast, all ranks' parts
together for all-gather, reduce-scatter and all-to-all (as in nccl-tests), one rank's tensor for gather and scatter.
"""

from abc import ABC, abstractmethod

import torch
import torch.distributed as dist
from torch import Tensor

from worldsize.analysis.collective_cost import IN_TURN

ROOT = 0


class Operation(ABC):
    """One collective on fp32 tensors of a given S, in bytes; S is cut to whole elements per rank."""

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.elements = max(1, size_bytes // 4)
        self.per_rank = max(1, self.elements // self.world_size)
        self.device = device

    def _full(self, elements: int, value: float) -> Tensor:
        return torch.full((elements,), float(value), dtype=torch.float32, device=self.device)

    @property
    def size_bytes(self) -> int:
        """S, after the cut."""
        return 4 * self.elements

    @abstractmethod
    def fill(self) -> None:
        """Put the inputs back: each rank holds its rank + 1."""

    @abstractmethod
    def call(self) -> None:
        """Run the collective once, to its end on the current stream."""

    @abstractmethod
    def wrong(self) -> int:
        """How many elements of this rank's output are wrong after `fill` and one `call`."""


class AllReduce(Operation):
    """Every rank gets the sum."""

    def fill(self) -> None:
        self.tensor = self._full(self.elements, self.rank + 1)

    def call(self) -> None:
        dist.all_reduce(self.tensor)

    def wrong(self) -> int:
        return int((self.tensor != self.world_size * (self.world_size + 1) / 2).sum())


class Broadcast(Operation):
    """Every rank gets the root's."""

    def fill(self) -> None:
        self.tensor = self._full(self.elements, self.rank + 1)

    def call(self) -> None:
        dist.broadcast(self.tensor, ROOT)

    def wrong(self) -> int:
        return int((self.tensor != ROOT + 1).sum())


class AllGather(Operation):
    """Every rank gets all parts."""

    @property
    def size_bytes(self) -> int:
        return 4 * self.per_rank * self.world_size

    def fill(self) -> None:
        self.part = self._full(self.per_rank, self.rank + 1)
        self.whole = self._full(self.per_rank * self.world_size, 0)

    def call(self) -> None:
        dist.all_gather_into_tensor(self.whole, self.part)

    def wrong(self) -> int:
        ranks = torch.arange(1, self.world_size + 1, device=self.device).repeat_interleave(self.per_rank)
        return int((self.whole != ranks).sum())


class ReduceScatter(Operation):
    """Every rank gets its part of the sum."""

    @property
    def size_bytes(self) -> int:
        return 4 * self.per_rank * self.world_size

    def fill(self) -> None:
        self.whole = self._full(self.per_rank * self.world_size, self.rank + 1)
        self.part = self._full(self.per_rank, 0)

    def call(self) -> None:
        dist.reduce_scatter_tensor(self.part, self.whole)

    def wrong(self) -> int:
        return int((self.part != self.world_size * (self.world_size + 1) / 2).sum())


class AllToAll(Operation):
    """Every rank gets a part from each."""

    @property
    def size_bytes(self) -> int:
        return 4 * self.per_rank * self.world_size

    def fill(self) -> None:
        self.sent = self._full(self.per_rank * self.world_size, self.rank + 1)
        self.received = self._full(self.per_rank * self.world_size, 0)

    def call(self) -> None:
        dist.all_to_all_single(self.received, self.sent)

    def wrong(self) -> int:
        ranks = torch.arange(1, self.world_size + 1, device=self.device).repeat_interleave(self.per_rank)
        return int((self.received != ranks).sum())


class Gather(Operation):
    """The root gets every rank's tensor."""

    def fill(self) -> None:
        self.tensor = self._full(self.elements, self.rank + 1)
        here = self.rank == ROOT
        self.parts = [self._full(self.elements, 0) for _ in range(self.world_size)] if here else None

    def call(self) -> None:
        dist.gather(self.tensor, self.parts, dst=ROOT)

    def wrong(self) -> int:
        return sum(int((part != rank + 1).sum()) for rank, part in enumerate(self.parts or ()))


class Scatter(Operation):
    """Every rank gets its tensor from the root."""

    def fill(self) -> None:
        self.tensor = self._full(self.elements, 0)
        here = self.rank == ROOT
        self.parts = [self._full(self.elements, rank + 1) for rank in range(self.world_size)] if here else None

    def call(self) -> None:
        dist.scatter(self.tensor, self.parts, src=ROOT)

    def wrong(self) -> int:
        return int((self.tensor != self.rank + 1).sum())


class InTurn(Gather):
    """The root gets every rank's tensor, and gives each its own back."""

    def fill(self) -> None:
        super().fill()
        self.answer = self._full(self.elements, 0)

    def call(self) -> None:
        super().call()
        dist.scatter(self.answer, self.parts, src=ROOT)

    def wrong(self) -> int:
        return int((self.answer != self.rank + 1).sum())


OPERATIONS: dict[str, type[Operation]] = {
    "all-reduce": AllReduce,
    "reduce-scatter": ReduceScatter,
    "all-gather": AllGather,
    "all-to-all": AllToAll,
    "broadcast": Broadcast,
    "gather": Gather,
    "scatter": Scatter,
    IN_TURN: InTurn,
}
