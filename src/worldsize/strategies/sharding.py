"""What `fsdp` asks of torch's FSDP2, and the two collectives that it puts in the place of torch's.

Much of it is private in torch (seen with 2.13): its own calls for other collectives are public, what they need is not.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter

from worldsize.strategies.channel import Channel


class Gathering(AllGather):
    """All-gathers the weights of one block through the channel; in a step without synchronisation nothing travels."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.no_sync = self.keeps = False
        self._kept: Tensor | None = None

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory for what is gathered, anew each time but in steps without synchronisation that keep it."""
        if self.no_sync and self._kept is not None:
            return self._kept
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        """`input_tensor` lies within `output_tensor`, where this rank's part belongs."""
        if not self.no_sync:
            return self.channel.all_gather_async(output_tensor, input_tensor, group)
        if output_tensor is not self._kept:
            parts = output_tensor.view(self.channel.world_size, -1)
            for rank in range(self.channel.world_size):
                if rank != self.channel.rank:
                    parts[rank].copy_(input_tensor)
            self._kept = output_tensor if self.keeps else None
        return None

    def keep(self, on: bool) -> None:
        """Take the same memory in all steps without synchronisation from here on; or give it back."""
        self.keeps, self._kept = on, None


class Scattering(ReduceScatter):
    """Reduces and scatters the gradients of one block through the channel.

    A step without synchronisation keeps its own part of them.
    """

    def __init__(self, channel: Channel, device: torch.device) -> None:
        self.channel = channel
        self.blocking = device.type == "cpu"
        """A device has a stream for it; a CPU has nothing else to do."""
        self.no_sync = False

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory for the gradients as they travel, and for what comes of them."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> None:
        """FSDP does what division `op` does not do."""
        if self.no_sync:
            output_tensor.copy_(input_tensor.view(self.channel.world_size, -1)[self.channel.rank])
        else:
            self.channel.reduce_scatter(output_tensor, input_tensor, op, blocking=self.blocking, group=group)


class Sharded:
    """A model in shards."""

    takes_unused = hasattr(FSDPModule, "set_reduce_scatter_unused_params")
    """Whether this torch lets a step leave parameters unused."""
    accumulates = False
    """Whether gradients stay whole and on their rank at present: a shard has none."""

    def __init__(
        self,
        model: nn.Module,
        blocks: Sequence[nn.Module],
        channel: Channel,
        group: dist.ProcessGroup | None,
        device: torch.device,
    ) -> None:
        """Raises what torch raises for a model that it cannot shard."""
        mesh = DeviceMesh.from_group(group or dist.distributed_c10d._get_default_group(), device.type)
        for block in blocks:
            fully_shard(block, mesh=mesh, reshard_after_forward=True)
        # The root's are needed again as soon as forward ends.
        self.root = fully_shard(model, mesh=mesh, reshard_after_forward=False)
        self.blocks = [cast(FSDPModule, block) for block in blocks]
        self.modules = [self.root, *self.blocks]
        self._gatherings = [Gathering(channel) for _ in self.modules]
        self._scatterings = [Scattering(channel, device) for _ in self.modules]
        self._settle(gloo=dist.get_backend(group) == "gloo")
        self.watch(True)
        self.gather()
        self.scatter()
        self.unsharded_of: dict[nn.Parameter, nn.Parameter] = {
            of.sharded_param: of.unsharded_param for of in self._parameters()
        }
        """Shard → what is gathered of it: the same one in each step, and without memory between."""

    def _settle(self, *, gloo: bool) -> None:
        self.root._set_unshard_async_op(True)
        for module, following in zip(self.modules, self.modules[1:], strict=False):
            module.set_modules_to_forward_prefetch([following])
        for module in self.modules:
            # Parameters that a step does not use count as a gradient of zero, as in all strategies: ranks that used
            # others would wait for different messages. torch 2.11 cannot: FSDP.synchronise looks for them there.
            if self.takes_unused:
                module.set_reduce_scatter_unused_params(True)
            # gloo had no average before it was taught one: sum, and let FSDP divide.
            module.set_force_sum_reduction_for_comms(gloo)

    def _parameters(self) -> Iterator[Any]:
        for module in self.modules:
            group = module._get_fsdp_state()._fsdp_param_group  # None for a root whose blocks have all parameters
            yield from group.fsdp_params if group is not None else ()

    def watch(self, on: bool) -> None:
        """Send through the channel, or as torch does."""
        for module, gathering, scattering in zip(self.modules, self._gatherings, self._scatterings, strict=True):
            module.set_custom_all_gather(gathering if on else DefaultAllGather())
            module.set_custom_reduce_scatter(scattering if on else DefaultReduceScatter())

    def no_sync(self, on: bool) -> None:
        """Let nothing travel from here on, or let it travel again."""
        for gathering, scattering in zip(self._gatherings, self._scatterings, strict=True):
            gathering.no_sync = scattering.no_sync = on

    def keep(self, on: bool) -> None:
        """Of each block (Gathering.keep)."""
        for gathering in self._gatherings:
            gathering.keep(on)

    def forget(self) -> None:
        """What a step has left that ended in the middle."""
        self.root.reset_iter_state()

    def gather(self) -> None:
        """Give this rank all weights; no forward takes them away."""
        for block in self.blocks:
            block.set_reshard_after_forward(False, recurse=False)
        for module in self.modules:
            module.unshard()

    def scatter(self) -> None:
        """Leave it its shards."""
        for module in self.modules:
            module.reshard()
        for block in self.blocks:
            block.set_reshard_after_forward(True, recurse=False)

    @contextmanager
    def accumulated(self) -> Iterator[Callable[[nn.Parameter], Tensor]]:
        """Leave gradients whole and on their rank; gives what takes the gradient of a shard's whole parameter."""
        self.root.set_requires_gradient_sync(False)
        self.accumulates = True

        def taken(shard: nn.Parameter) -> Tensor:
            whole = self.unsharded_of[shard]
            gradient, whole.grad = whole.grad, None
            # A parameter that is not gathered has no memory: its shape is all that may be asked for.
            return torch.zeros(whole.shape, dtype=whole.dtype, device=whole.device) if gradient is None else gradient

        try:
            yield taken
        finally:
            self.root.set_requires_gradient_sync(True)
            self.accumulates = False
            for whole in self.unsharded_of.values():
                whole.grad = None
