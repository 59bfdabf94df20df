"""`gather-scatter`: each gradient goes to rank 0, is averaged there, and comes back."""

import torch
from torch import Tensor, nn

from worldsize.results.records import WireBytes
from worldsize.strategies.base import Strategy, Traffic, agree, gradients, trained
from worldsize.strategies.channel import payload_bytes


class GatherScatter(Strategy):
    """The parameter server in its plainest form: rank 0's link carries everything, N−1 times."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Give every rank the weights of rank 0; the model is called as it is."""
        agree(model, self.channel)
        self.model = model
        return model

    def synchronise(self) -> None:
        """Average each gradient on rank 0 and give it back to all."""
        if not self.synchronising or self.world.world_size == 1:
            return
        for gradient in gradients(self.unwrap()):
            if self.channel.rank == 0:
                parts = [torch.empty_like(gradient) for _ in range(self.world.world_size)]
                self.channel.gather(gradient, parts)
                mean = _average(parts)
                self.channel.scatter(gradient, [mean] * self.world.world_size)
            else:
                self.channel.gather(gradient, None)
                self.channel.scatter(gradient, None)

    @property
    def copied_bytes(self) -> int:
        """On rank 0 that of each rank of one gradient at a time, the largest of them at most."""
        largest = max(map(payload_bytes, trained(self.unwrap())), default=0)
        return self.world.world_size * largest if self.channel.rank == 0 and self.world.world_size > 1 else 0

    @classmethod
    def wire_bytes(cls, world_size: int, traffic: Traffic) -> WireBytes:
        """(N−1)·S into and out of rank 0, S into and out of every other rank (method.md §4)."""
        return WireBytes(
            payload_bytes=traffic.gradient_bytes if world_size > 1 else 0,
            busiest_rank_bytes=(world_size - 1) * traffic.gradient_bytes,
            other_rank_bytes=traffic.gradient_bytes if world_size > 1 else 0,
            formula="rank 0: (N−1)·S; others: S",
        )


def _average(parts: list[Tensor]) -> Tensor:
    """The mean of the tensors, made in the first of them."""
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total.div_(len(parts))
