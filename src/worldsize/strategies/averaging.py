"""How one bucket of gradients becomes its mean over the ranks: as it is, or in fewer bytes.

DDP's hook and our own buckets hand over a bucket as soon as it is full, and go on with the rest of backward. What an
averaging costs the cores (packing, unpacking) is beside backward, as its messages are.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.futures import Future

from worldsize.strategies.channel import Channel


@dataclass(frozen=True)
class Full:
    """A bucket that has all of its gradients."""

    flat: Tensor
    """They, side by side in the order of their memory; whoever averages may overwrite it."""
    parts: Sequence[Tensor]
    """The flat view of each gradient in it."""
    parameters: Sequence[nn.Parameter]
    ready: Any = None
    """The channel's mark of the moment at which it had them all."""


class Averaging(ABC):
    """One for all buckets of a model in one process. `parameters` are the trained ones, in the model's order."""

    def __init__(self, channel: Channel, parameters: Sequence[nn.Parameter], options: Any) -> None:
        self.channel, self.parameters, self.options = channel, parameters, options

    @abstractmethod
    def begin(self, bucket: Full) -> Future[Tensor]:
        """Begin to average; the future holds the mean, flat as the bucket was. All ranks call it in the same order."""

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
