"""`all-reduce`: after backward, one all-reduce per gradient, one after the other."""

from torch import nn

from worldsize.results.records import WireBytes
from worldsize.strategies.base import Strategy, Traffic, agree, gradients, ring_bytes


class AllReduce(Strategy):
    """The first thing that people write by hand: correct, and nothing is overlapped."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Give every rank the weights of rank 0; the model is called as it is."""
        agree(model, self.channel)
        self.model = model
        return model

    def synchronise(self) -> None:
        """Average each gradient over the ranks."""
        if self.synchronising and self.world.world_size > 1:
            for gradient in gradients(self.unwrap()):
                self.channel.all_reduce(gradient)
                gradient.div_(self.world.world_size)

    @classmethod
    def wire_bytes(cls, world_size: int, traffic: Traffic) -> WireBytes:
        """2(N−1)/N·S through each rank, for a ring (method.md §4)."""
        return ring_bytes(world_size, traffic)
