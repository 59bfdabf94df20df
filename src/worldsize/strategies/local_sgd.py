"""`local-sgd`: ranks step by themselves and average their weights now and then (Stich 2019; Lin et al. 2020).

After a warm-up with averaged gradients nothing travels but the weights, every `--sync-every` steps, as torch's
PostLocalSGDOptimizer does with its PeriodicModelAverager (torch.distributed.algorithms.model_averaging). That one talks
to torch.distributed by itself, and averages after the first local step already; here each period begins with weights
that are alike. What the optimizer keeps (its momentum) stays each rank's own, and so do BatchNorm statistics.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from worldsize.strategies.base import Strategy, agree, gradients, trained
from worldsize.strategies.channel import Channel, flat, payload_bytes
from worldsize.traits import TRAITS
from worldsize.wire import MESSAGE_BYTES


class PeriodicAveraging(Strategy):
    """Averages gradients in the first steps, and has a turn with the weights once per period after them."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Give every rank the weights of rank 0; the model is called as it is."""
        agree(model, self.channel)
        self.model = model
        self.weights = [parameter.detach() for parameter in trained(model)]
        self.done = torch.zeros((), dtype=torch.int64)
        """Steps so far."""
        return model

    @property
    def local_steps(self) -> int:
        """Steps since the warm-up; negative within it."""
        return int(self.done) - self.world.options.sync_warmup_steps

    def synchronise(self) -> None:
        """Average the gradients, in the first steps."""
        if self.synchronising and self.local_steps < 0 and self.world.world_size > 1:
            average(self.channel, list(gradients(self.unwrap())))

    @torch.no_grad()
    def after_step(self) -> None:
        """Count the step; after the last one of a period all ranks meet."""
        self.done += 1
        if self.local_steps == 0:
            self.begin()
        elif self.synchronising and self.local_steps > 0 and self.local_steps % self.world.options.sync_every == 0:
            self.meet()

    def begin(self) -> None:
        """The warm-up is over: from here on each rank steps by itself."""

    @abstractmethod
    def meet(self) -> None:
        """A period is over: make the weights alike."""

    @contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """The mean of the weights, in place of this rank's own; all ranks call it together."""
        with torch.no_grad():
            own = [weight.clone() for weight in self.weights]
            average(self.channel, self.weights)
        try:
            yield
        finally:
            with torch.no_grad():
                for weight, value in zip(self.weights, own, strict=True):
                    weight.copy_(value)

    def state(self) -> dict[str, Tensor]:
        """The steps so far, which tell when ranks meet."""
        return {"done": self.done}


class LocalSGD(PeriodicAveraging):
    """The weights become their mean."""

    traits = TRAITS["local-sgd"]

    def meet(self) -> None:
        """Average the weights."""
        average(self.channel, self.weights)


@torch.no_grad()
def average(channel: Channel, tensors: Sequence[Tensor]) -> None:
    """Replace tensors by their mean over the ranks, packed into few messages."""
    if channel.world_size == 1:
        return
    for group in _packed(tensors):
        packed = torch.cat([flat(each) for each in group])
        channel.all_reduce(packed)
        packed /= channel.world_size
        for each, piece in zip(group, packed.split([each.numel() for each in group]), strict=True):
            flat(each).copy_(piece)


def _packed(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Consecutive tensors of one type, of about MESSAGE_BYTES together."""
    group: list[Tensor] = []
    for tensor in tensors:
        if group and (payload_bytes(*group) >= MESSAGE_BYTES or tensor.dtype != group[0].dtype):
            yield group
            group = []
        group.append(tensor)
    if group:
        yield group
