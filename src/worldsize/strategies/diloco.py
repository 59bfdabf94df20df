"""`diloco`: as local-sgd, and an outer optimizer makes more of what a period has changed (Douillard et al. 2023).

The inner optimizer is that of the settings, on each rank by itself. After `--sync-every` steps the mean of (anchor −
weights) over the ranks is the outer gradient, by which SGD with Nesterov momentum moves the anchor; all ranks go on
from there. One worker by itself has an outer optimizer as well: it is another training than `single`.
"""

import torch
from torch import Tensor, nn

from worldsize.strategies.local_sgd import PeriodicAveraging, average
from worldsize.traits import TRAITS


class DiLoCo(PeriodicAveraging):
    """The anchor are the weights that all ranks began the period with."""

    traits = TRAITS["diloco"]

    def wrap(self, model: nn.Module) -> nn.Module:
        """Give every rank the weights of rank 0, which are the first anchor."""
        wrapped = super().wrap(model)
        self.anchor = [weight.clone() for weight in self.weights]
        self.momentum = [torch.zeros_like(weight) for weight in self.weights]
        return wrapped

    def begin(self) -> None:
        """Anchor the weights that the warm-up has led to."""
        for anchor, weight in zip(self.anchor, self.weights, strict=True):
            anchor.copy_(weight)

    def meet(self) -> None:
        """An outer step; its gradient is made in the memory of the weights, which it then replaces."""
        options = self.world.options
        for anchor, weight in zip(self.anchor, self.weights, strict=True):
            torch.sub(anchor, weight, out=weight)
        average(self.channel, self.weights)
        for anchor, momentum, weight in zip(self.anchor, self.momentum, self.weights, strict=True):
            momentum.mul_(options.outer_momentum).add_(weight)
            anchor.sub_(weight.add_(momentum, alpha=options.outer_momentum), alpha=options.outer_learning_rate)
            weight.copy_(anchor)

    def state(self) -> dict[str, Tensor]:
        """Anchor and outer momentum as well."""
        named = {"anchor": self.anchor, "momentum": self.momentum}
        kept = {f"{name}-{number}": each for name, those in named.items() for number, each in enumerate(those)}
        return {**super().state(), **kept}
