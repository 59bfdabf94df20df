"""`data-parallel`: one process drives all workers and copies the whole model to them in every step.

On GPUs this is torch.nn.DataParallel. On a CPU it is the same algorithm with threads for devices: replicate,
scatter, apply in parallel, gather, and reduce the gradients to the first.
"""

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from worldsize.strategies.base import Strategy, World, trained
from worldsize.strategies.channel import payload_bytes
from worldsize.threads import pinned_thread
from worldsize.traits import TRAITS

T = TypeVar("T")


class DataParallel(Strategy):
    """nn.DataParallel on GPUs; replicas on threads of this process on a CPU."""

    traits = TRAITS["data-parallel"]

    @classmethod
    def processes(cls, world_size: int) -> int:
        """One process drives all workers."""
        return 1

    def wrap(self, model: nn.Module) -> nn.Module:
        """Wrap the model; replicas are made in each forward, as nn.DataParallel does."""
        self.model = model
        if self.world.world_size == 1:
            return model
        if self.world.device.type == "cuda":
            return nn.DataParallel(model, device_ids=list(range(self.world.world_size)))
        return ThreadReplicas(model, self.world)

    def synchronise(self) -> None:
        """Nothing is left: backward reduced the gradients to the first replica."""

    @property
    def copied_bytes(self) -> int:
        """Replicas and their gradients, in the memory that all workers share; 0 on GPUs, which have one each."""
        return 0 if self.world.device.type == "cuda" else super().copied_bytes


class ThreadReplicas(nn.Module):
    """nn.DataParallel's algorithm on one CPU; each replica has a thread, and the thread its own cores.

    In eval mode, or with fewer samples than workers, the model itself is called.
    """

    def __init__(self, module: nn.Module, world: World) -> None:
        super().__init__()
        self.module = module
        self.channel = world.channel
        # A tuple keeps them out of parameters(): the replicas are copies, not part of the model.
        self.replicas = (module, *(copy.deepcopy(module) for _ in range(world.world_size - 1)))
        self.threads = [
            pinned_thread(f"worker-{worker}", world.cores[worker] if world.cores else (), world.threads_per_worker)
            for worker in range(world.world_size)
        ]

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs of all replicas, in the order of the inputs."""
        if not self.training or len(inputs) < len(self.replicas):
            outputs: Tensor = self.module(inputs)
            return outputs
        self._replicate()
        gathered: Tensor = _Replicated.apply(self, inputs, *self.module.parameters())  # type: ignore[no-untyped-call]
        return gathered

    @torch.no_grad()
    def _replicate(self) -> None:
        """Copy parameters and buffers of the model to every other replica."""
        source = [*self.module.parameters(), *self.module.buffers()]
        with self.channel.message("replicate", (len(self.replicas) - 1) * payload_bytes(*source)):
            for replica in self.replicas[1:]:
                for target, value in zip((*replica.parameters(), *replica.buffers()), source, strict=True):
                    target.copy_(value)

    def on_all(self, work: Callable[..., T], *columns: Sequence[Any]) -> list[T]:
        """Run `work(column[i] …)` for each replica i on its own thread; raise what the first failing one raised."""
        futures: list[Future[T]] = [
            thread.submit(work, *row) for thread, *row in zip(self.threads, *columns, strict=True)
        ]
        return [future.result() for future in futures]


class _Replicated(torch.autograd.Function):
    """Forward and backward of all replicas as one operation of the model's parameters.

    On a CPU autograd runs backward on the thread that called it, so the replicas' graphs must be separate and
    each be walked by its own thread.
    """

    @staticmethod
    def forward(ctx: Any, owner: ThreadReplicas, inputs: Tensor, *parameters: Tensor) -> Tensor:
        """Scatter the inputs, apply each replica, gather the outputs."""
        autocast = torch.is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu")

        def apply(replica: nn.Module, part: Tensor) -> Tensor:
            # Grad mode and autocast belong to a thread; the worker threads must be told.
            with torch.enable_grad(), torch.autocast("cpu", dtype, enabled=autocast):
                outputs: Tensor = replica.train()(part)
                return outputs

        parts = inputs.tensor_split(len(owner.replicas))
        ctx.owner = owner
        ctx.outputs = owner.on_all(apply, owner.replicas, parts)
        with owner.channel.message("gather", payload_bytes(*ctx.outputs[1:])):
            return torch.cat([outputs.detach() for outputs in ctx.outputs])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Walk each replica's graph on its thread, then sum the gradients on the first."""

        def walk(replica: nn.Module, outputs: Tensor, gradient: Tensor) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(outputs, trained(replica), gradient, allow_unused=True)

        owner: ThreadReplicas = ctx.owner
        pieces = upstream[0].split([len(outputs) for outputs in ctx.outputs])
        columns = list(zip(*owner.on_all(walk, owner.replicas, ctx.outputs, pieces), strict=True))
        ctx.outputs = None
        size = payload_bytes(*(g for column in columns for g in column[1:] if g is not None))
        with owner.channel.message("reduce", size):
            sums = iter([_sum(column) for column in columns])
        return None, None, *(next(sums) if p.requires_grad else None for p in owner.module.parameters())


def _sum(column: tuple[Tensor | None, ...]) -> Tensor | None:
    present = [gradient for gradient in column if gradient is not None]
    if not present:
        return None
    total = present[0].clone(memory_format=torch.preserve_format)
    for gradient in present[1:]:
        total += gradient
    return total
