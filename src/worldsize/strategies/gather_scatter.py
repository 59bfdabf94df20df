"""`gather-scatter`: each gradient goes to rank 0, is averaged there, and comes back."""

import torch
from torch import Tensor, nn

from worldsize.strategies.base import Strategy, agree, gradients
from worldsize.traits import TRAITS


class GatherScatter(Strategy):
    """The parameter server in its plainest form: rank 0's link carries everything, N−1 times."""

    traits = TRAITS["gather-scatter"]

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


def _average(parts: list[Tensor]) -> Tensor:
    """The mean of the tensors, made in the first of them."""
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total.div_(len(parts))
