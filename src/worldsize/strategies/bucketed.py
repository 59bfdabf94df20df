"""`bucketed`: gradients are all-reduced in buckets, from gradient hooks, while backward goes on.

What DDP does in C++, in code that can be read in one sitting (Li et al. 2020, PyTorch Distributed, §3.2). Gradients
become ready roughly in the reverse order of the parameters. A bucket is sent as soon as all of its gradients are
there and all buckets before it are on their way, so that all ranks send in the same order.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from worldsize import sending
from worldsize.strategies.averaging import Averaging, Exact, Full
from worldsize.strategies.base import Strategy, agree, trained
from worldsize.strategies.channel import flat, payload_bytes
from worldsize.traits import TRAITS


class Bucket:
    """Some parameters whose gradients travel together."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        self.missing = len(parameters)
        self.ready: Any = None
        self.sent: torch.futures.Future[Tensor] | None = None

    def pack(self) -> Full:
        """All gradients side by side; a parameter that this step did not use counts as zeros."""
        packed = torch.cat([flat(torch.zeros_like(p) if p.grad is None else p.grad) for p in self.parameters])
        return Full(packed, partial(self._split, packed), self.parameters, self.ready)

    def _split(self, packed: Tensor) -> Sequence[Tensor]:
        pieces: Sequence[Tensor] = packed.split([p.numel() for p in self.parameters])
        return pieces

    def unpack(self, averages: Tensor) -> None:
        """Put the averages into the gradients, and get ready for the next step."""
        for parameter, piece in zip(self.parameters, self._split(averages), strict=True):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            flat(parameter.grad).copy_(piece)
        self.missing, self.ready, self.sent = len(self.parameters), None, None


class Bucketed(Strategy):
    """Overlap by hand: hooks fill buckets, full buckets are sent, `synchronise` waits for what is still on its way."""

    traits = TRAITS["bucketed"]
    averaging: ClassVar[type[Averaging]] = Exact
    """How its buckets are averaged."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Give every rank the weights of rank 0 and watch the gradients; the model is called as it is."""
        agree(model, self.channel)
        self.model = model
        parameters = trained(model)
        self.averager = self.averaging(self.channel, parameters, self.world.options)
        self.arrange(self._groups(parameters))
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)
        return model

    def _groups(self, parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
        if self.world.bucket_groups is not None:
            return [[parameters[index] for index in group] for group in self.world.bucket_groups]
        return by_size(list(reversed(parameters)), self.world.bucket_bytes or sending.DEFAULT_BUCKET_BYTES)

    def arrange(self, groups: Sequence[Sequence[nn.Parameter]]) -> None:
        """Use these buckets, in this order, from the next step on; the same on all ranks."""
        self.buckets = [Bucket(group) for group in groups]
        self._bucket_of = {parameter: bucket for bucket in self.buckets for parameter in bucket.parameters}
        self._next = 0

    def _ready(self, parameter: nn.Parameter) -> None:
        """A gradient is there (called by autograd in the middle of backward)."""
        if self.synchronising and self.world.world_size > 1:
            bucket = self._bucket_of[parameter]
            bucket.missing -= 1
            if bucket.missing == 0:
                bucket.ready = self.channel.ready()
            while self._next < len(self.buckets) and self.buckets[self._next].missing == 0:
                self._send()

    def _send(self) -> None:
        bucket = self.buckets[self._next]
        bucket.sent = self.averager.average(bucket.pack())
        self._next += 1

    def state(self) -> dict[str, Tensor]:
        """That of the averaging."""
        return self.averager.state()

    def held_back(self) -> Mapping[nn.Parameter, Tensor] | None:
        """The same."""
        return self.averager.held_back()

    def synchronise(self) -> None:
        """Send what backward left over, then wait for all buckets."""
        if not self.synchronising or self.world.world_size == 1:
            return
        while self._next < len(self.buckets):
            self._send()
        for bucket in self.buckets:
            assert bucket.sent is not None, "every bucket was sent"
            bucket.unpack(bucket.sent.wait())
        self._next = 0


def by_size(parameters: Sequence[nn.Parameter], bucket_bytes: int) -> list[list[nn.Parameter]]:
    """Consecutive groups that are closed once they reach the size; never an empty one."""
    return _groups(parameters, sending.by_size(sizes_of(parameters), bucket_bytes))


def sizes_of(parameters: Sequence[nn.Parameter]) -> list[int]:
    """Bytes of each gradient."""
    return [payload_bytes(parameter) for parameter in parameters]


def _groups(parameters: Sequence[nn.Parameter], groups: Sequence[Sequence[int]]) -> list[list[nn.Parameter]]:
    return [[parameters[number] for number in group] for group in groups]
