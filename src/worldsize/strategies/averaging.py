"""How one bucket of gradients becomes its mean over the ranks: as it is, or in fewer bytes.

DDP's hook and our own buckets hand over a bucket as soon as it is full, and go on with the rest of backward. What an
averaging costs the cores (packing, unpacking) is beside backward, as its messages are.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.futures import Future

from worldsize.config.synchronisation import SynchronisationSettings
from worldsize.strategies.channel import Channel, completed


@dataclass(frozen=True)
class Full:
    """A bucket that has all of its gradients."""

    flat: Tensor
    """They, side by side in the order of their memory; whoever averages may overwrite it."""
    split: Callable[[], Sequence[Tensor]]
    """Gives `parts`; only until `average` has returned."""
    parameters: Sequence[nn.Parameter]
    ready: Any = None
    """The channel's mark of the moment at which it had them all."""

    @cached_property
    def parts(self) -> Sequence[Tensor]:
        """The flat view of each gradient in it. Not everybody needs them, and 62 took 0.3 ms of a step of DDP's."""
        return self.split()


class Averaging(ABC):
    """One for all buckets of a model in one process. `parameters` are the trained ones, in the model's order."""

    def __init__(self, channel: Channel, parameters: Sequence[nn.Parameter], options: SynchronisationSettings) -> None:
        self.channel, self.parameters, self.options = channel, parameters, options

    def average(self, bucket: Full) -> Future[Tensor]:
        """Begin to average; the future holds the mean, flat as the bucket was. All ranks call it in the same order.

        In a world of one a bucket is its own mean, and nothing is lost.
        """
        return completed(bucket.flat) if self.channel.world_size == 1 else self.begin(bucket)

    @abstractmethod
    def begin(self, bucket: Full) -> Future[Tensor]:
        """The same in a world of several."""

    def state(self) -> dict[str, Tensor]:
        """What it carries from step to step (Strategy.state)."""
        return {}

    def held_back(self) -> Mapping[nn.Parameter, Tensor] | None:
        """What its error feedback holds back on this rank (Strategy.held_back); None without feedback."""
        return None


class Exact(Averaging):
    """Divide, then all-reduce, as DDP does by itself."""

    def begin(self, bucket: Full) -> Future[Tensor]:
        """The mean, in the bucket's own memory."""
        return self.channel.all_reduce_async(bucket.flat.div_(self.channel.world_size), bucket.ready)


def device_of(parameters: Sequence[nn.Parameter]) -> torch.device:
    """Where they are; the CPU if there are none."""
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


class Residuals:
    """What was lost of each gradient when it was sent, to be added to the next one (error feedback).

    Karimireddy et al. 2019: with it a lossy strategy comes to where an exact one does, for nothing is lost for good:
    what all steps have applied differs from the sum of all means by what is held back now (method.md §10).
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = tuple(parameters)
        sizes = [parameter.numel() for parameter in parameters]
        first = next(iter(parameters), torch.empty(0))
        self.all = torch.zeros(sum(sizes), dtype=first.dtype, device=device_of(parameters))
        self._of = dict(zip(map(id, parameters), self.all.split(sizes), strict=True))

    def by_parameter(self) -> dict[nn.Parameter, Tensor]:
        """The flat residual of each parameter that has one."""
        return {parameter: self._of[id(parameter)] for parameter in self.parameters}

    def of(self, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
        """The flat residual of each."""
        return [self._of[id(parameter)] for parameter in parameters]

    def add_to(self, bucket: Full) -> None:
        """Add what was held back to a bucket's gradients."""
        torch._foreach_add_(list(bucket.parts), self.of(bucket.parameters))

    def keep(self, parameters: Sequence[nn.Parameter], lost: Tensor) -> None:
        """Hold back what was lost of these gradients, flat as their bucket is."""
        pieces = lost.split([parameter.numel() for parameter in parameters])
        torch._foreach_copy_(self.of(parameters), list(pieces))
