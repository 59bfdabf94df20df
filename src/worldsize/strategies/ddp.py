"""`ddp`: torch's DistributedDataParallel, which all-reduces buckets of gradients while backward goes on.

https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _BufferCommHookLocation

from worldsize.sending import DDP_CAP_BYTES, DDP_FIRST_BYTES
from worldsize.strategies.averaging import Averaging, Exact, Full
from worldsize.strategies.base import Strategy, trained
from worldsize.strategies.channel import Channel, flat
from worldsize.strategies.unused import UnusedParametersError, without_gradient
from worldsize.traits import TRAITS

_SHARE_BUFFERS = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters
    else "broadcast_buffers"
)
"""The argument that turns off the broadcast of buffers; torch 2.13 has renamed it."""


def _reduce_bucket(averaging: Averaging, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Average one bucket. DDP calls it when the bucket is full."""
    ready = averaging.channel.ready()
    parameters = cast(list[nn.Parameter], bucket.parameters())
    full = Full(bucket.buffer(), lambda: [flat(gradient) for gradient in bucket.gradients()], parameters, ready)
    return averaging.average(full)


def _broadcast_buffers(channel: Channel, buffers: dict[str, Tensor]) -> None:
    """Give every rank the buffers of rank 0, as DDP does without a hook."""
    channel.broadcast(list(buffers.values()))


class DDP(Strategy):
    """DistributedDataParallel with torch's defaults; its messages go through our channel, so they are seen.

    Phase timers would attribute its communication to *backward*. The hooks record when each bucket, and the broadcast
    of buffers at the start of forward, are issued and done. A hook replaces DDP's built-in reduction, so the parity
    tests (method.md §10) hold its gradients against the reference, and the instrumentation overhead against a DDP
    without one (§2).
    """

    traits = TRAITS["ddp"]
    averaging: ClassVar[type[Averaging]] = Exact
    """How its buckets are averaged."""

    wrapped: DistributedDataParallel
    _looked = False

    def wrap(self, model: nn.Module) -> nn.Module:
        """Wrap the model; at this moment DDP broadcasts parameters and buffers of rank 0."""
        self.model = model
        self.wrapped = self._without_hooks(model)
        self.averager = self.averaging(self.channel, trained(model), self.world.options)
        self.wrapped.register_comm_hook(self.averager, _reduce_bucket)
        if self.world.share_buffers:
            # Private in torch, and the only way to see this broadcast: DDP runs it inside its forward, in C++.
            before = _BufferCommHookLocation.PRE_FORWARD
            self.wrapped._register_buffer_comm_hook(self.channel, _broadcast_buffers, before)
        return self.wrapped

    def _without_hooks(self, model: nn.Module, **options: Any) -> DistributedDataParallel:
        ids = [self.world.device.index] if self.world.device.type == "cuda" else None
        # DDP's MB are MiB. A cap that is given also replaces its first bucket of 1 MiB: 25 MiB is not the default.
        cap_mb = None if self.world.bucket_bytes is None else self.world.bucket_bytes / 2**20
        if not self.world.share_buffers:
            options[_SHARE_BUFFERS] = False
        return DistributedDataParallel(
            model,
            device_ids=ids,
            bucket_cap_mb=cap_mb,
            process_group=self.world.group,
            find_unused_parameters=self.world.find_unused_parameters,
            **options,
        )

    def synchronise(self) -> None:
        """Nothing is left: backward ended after the last bucket.

        Raises UsageError if the first backward missed a parameter; DDP's next forward would.
        """
        if self._looked or not self.wrapped.require_backward_grad_sync or self.world.find_unused_parameters:
            return
        self._looked = True
        if unused := without_gradient(self.unwrap()):
            raise UnusedParametersError(unused)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """The context of DDP itself, which here holds for broadcasts of buffers at once.

        DDP itself would broadcast buffers in the first forward within it, and not in the first one after it.
        """
        # Private in torch: the flag that its forward of this step sets for the next one.
        shares = self.wrapped.require_forward_param_sync
        self.wrapped.require_forward_param_sync = False
        try:
            with self.wrapped.no_sync():
                yield
        finally:
            self.wrapped.require_forward_param_sync = shares

    @property
    def pieces_bytes(self) -> tuple[int, int] | None:
        """Those of DDP's buckets, whose first one is small where no cap is given."""
        found = super().pieces_bytes
        return (DDP_FIRST_BYTES, DDP_CAP_BYTES) if found and self.world.bucket_bytes is None else found

    def state(self) -> dict[str, Tensor]:
        """State of the averager."""
        return self.averager.state()

    def held_back(self) -> Mapping[nn.Parameter, Tensor] | None:
        """What the averager holds back."""
        return self.averager.held_back()

    @contextmanager
    def uninstrumented(self) -> Iterator[nn.Module]:
        """A second DDP around the same model, because DDP cannot unregister a communication hook.

        Its buckets are allocated and freed with it; it rebuilds them in its second forward. A compressed one keeps its
        hook, for without it the bytes would be others.
        """
        if self.averaging is not Exact:
            yield self.wrapped
            return
        hooked = self.wrapped
        assert self.model is not None, "wrap comes before unseen"
        # All ranks hold the same weights, and where they do not, steps that only measure must not change that.
        self.wrapped = self._without_hooks(self.model, init_sync=False)
        try:
            yield self.wrapped
        finally:
            self.wrapped = hooked
