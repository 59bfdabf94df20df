"""`all-reduce`: after backward, one all-reduce per gradient, one after the other."""

from torch import nn

from worldsize.strategies.base import Strategy, agree, gradients
from worldsize.traits import TRAITS


class AllReduce(Strategy):
    """The first thing that people write by hand: correct, and nothing is overlapped."""

    traits = TRAITS["all-reduce"]

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
