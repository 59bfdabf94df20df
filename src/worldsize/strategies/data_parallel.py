"""`data-parallel`: one process drives all workers and copies the whole model to them in every step.

On GPUs this is torch.nn.DataParallel. On a CPU it is the same algorithm with threads for devices: replicate,
scatter, apply in parallel, gather, and reduce the gradients to the first.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from worldsize.strategies.base import Strategy, World, trained
from worldsize.strategies.channel import payload_bytes
from worldsize.threads import pinned_thread
from worldsize.traits import TRAITS

T = TypeVar("T")


class DataParallel(Strategy):
    """nn.DataParallel on GPUs; replicas on threads of this process on a CPU."""

    traits = TRAITS["data-parallel"]
    _threads: "ThreadReplicas | None" = None

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
        self._threads = ThreadReplicas(model, self.world)
        return self._threads

    def synchronise(self) -> None:
        """Nothing is left: backward reduced the gradients to the first replica."""

    def to_compile(self) -> Sequence[nn.Module]:
        """Every replica; those of a GPU are made anew in each step."""
        return [self.unwrap()] if self._threads is None else self._threads.replicas

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """One replica after the other: torch cannot trace on one thread while another runs what is compiled."""
        if self._threads is None:
            yield
            return
        self._threads.in_turn = True
        try:
            yield
        finally:
            self._threads.in_turn = False

    @property
    def copied_bytes(self) -> int:
        """Replicas and their gradients, in the memory that all workers share; 0 on GPUs, which have one each."""
        return 0 if self.world.device.type == "cuda" else super().copied_bytes


class ThreadReplicas(nn.Module):
    """nn.DataParallel's algorithm on one CPU; each replica has a thread, and the thread its own cores.

    Inputs and outputs may be tensors in tuples, lists and dicts. In eval mode, or with fewer samples than workers, the
    model itself is called.
    """

    def __init__(self, module: nn.Module, world: World) -> None:
        super().__init__()
        self.module = module
        self.channel = world.channel
        self.in_turn = False
        """Whether replicas work one after the other."""
        # A tuple keeps them out of parameters(): the replicas are copies, not part of the model.
        self.replicas = (module, *(copy.deepcopy(module) for _ in range(world.world_size - 1)))
        self.threads = [
            pinned_thread(f"worker-{worker}", world.cores[worker] if world.cores else (), world.threads_per_worker)
            for worker in range(world.world_size)
        ]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Outputs of all replicas, in the order of the inputs; of numbers, one of each replica."""
        parts = _scattered((inputs, named), len(self.replicas)) if self.training else None
        if parts is None:
            return self.module(*inputs, **named)
        self._replicate()
        call = _Call(parts)
        gathered = _Replicated.apply(self, call, *self.module.parameters())  # type: ignore[no-untyped-call]
        outputs = iter(gathered)
        assert call.structure is not None, "the replicas were called"
        return tree_unflatten([next(outputs) if leaf is GATHERED else leaf for leaf in call.leaves], call.structure)

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
        rows = zip(self.threads, *columns, strict=True)
        if self.in_turn:
            return [thread.submit(work, *row).result() for thread, *row in rows]
        futures: list[Future[T]] = [thread.submit(work, *row) for thread, *row in rows]
        return [future.result() for future in futures]


GATHERED = object()
"""In place of each tensor in the outputs of a replica."""


class _Call:
    """The inputs of each replica, and what their outputs look like."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts
        self.leaves: list[Any] = []
        """Of the first replica's outputs; GATHERED for a tensor."""
        self.structure: TreeSpec | None = None

    def tensors(self, outputs: Any) -> list[Tensor]:
        """Those among the outputs of a replica."""
        leaves, self.structure = tree_flatten(outputs)
        self.leaves = [GATHERED if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _scattered(inputs: Any, workers: int) -> list[Any] | None:
    """The inputs of each worker: tensors with as many samples as the first one has are cut along their first dimension.

    None where there are fewer samples than workers.
    """
    leaves, structure = tree_flatten(inputs)
    samples = next((len(leaf) for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim()), 0)
    if samples < workers:
        return None

    def parts(leaf: Any) -> Sequence[Any]:
        whole = not isinstance(leaf, Tensor) or not leaf.dim() or len(leaf) != samples
        return [leaf] * workers if whole else leaf.tensor_split(workers)

    return [tree_unflatten(row, structure) for row in zip(*map(parts, leaves), strict=True)]


class _Replicated(torch.autograd.Function):
    """Forward and backward of all replicas as one operation of the model's parameters.

    On a CPU autograd runs backward on the thread that called it, so the replicas' graphs must be separate and
    each be walked by its own thread.
    """

    @staticmethod
    def forward(ctx: Any, owner: ThreadReplicas, call: _Call, *parameters: Tensor) -> tuple[Tensor, ...]:
        """Apply each replica to its inputs, gather the tensors of their outputs."""
        autocast = torch.is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu")

        def apply(replica: nn.Module, part: Any) -> Any:
            # Grad mode and autocast belong to a thread; the worker threads must be told.
            with torch.enable_grad(), torch.autocast("cpu", dtype, enabled=autocast):
                inputs, named = part
                return replica.train()(*inputs, **named)

        ctx.owner = owner
        ctx.outputs = [call.tensors(each) for each in owner.on_all(apply, owner.replicas, call.parts)]
        with owner.channel.message("gather", payload_bytes(*(t for each in ctx.outputs[1:] for t in each))):
            gathered = tuple(_joined([t.detach() for t in column]) for column in zip(*ctx.outputs, strict=True))
        ctx.mark_non_differentiable(*(g for g, t in zip(gathered, ctx.outputs[0], strict=True) if not t.requires_grad))
        ctx.set_materialize_grads(False)
        return gathered

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        """Walk each replica's graph on its thread, then sum the gradients on the first."""

        def walk(replica: nn.Module, outputs: list[Tensor], gradients: list[Tensor]) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(outputs, trained(replica), gradients, allow_unused=True)

        owner: ThreadReplicas = ctx.owner
        used = [number for number, gradient in enumerate(upstream) if gradient is not None]
        outputs = [[each[number] for number in used] for each in ctx.outputs]
        cut = [_cut(gradient, [each[n] for each in ctx.outputs]) for n, gradient in enumerate(upstream)]
        pieces = [[cut[number][worker] for number in used] for worker in range(len(outputs))]
        columns = list(zip(*owner.on_all(walk, owner.replicas, outputs, pieces), strict=True))
        ctx.outputs = None
        size = payload_bytes(*(g for column in columns for g in column[1:] if g is not None))
        with owner.channel.message("reduce", size):
            sums = iter([_sum(column) for column in columns])
        return None, None, *(next(sums) if p.requires_grad else None for p in owner.module.parameters())


def _joined(column: Sequence[Tensor]) -> Tensor:
    """The outputs of all replicas as one: side by side, and numbers as a row."""
    return torch.cat(list(column)) if column[0].dim() else torch.stack(list(column))


def _cut(gradient: Tensor | None, outputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """The gradient of what `_joined` made of the outputs, for each of them; nothing where there is none."""
    if gradient is None:
        return ()
    return gradient.split([len(each) for each in outputs]) if outputs[0].dim() else gradient.unbind()


def _sum(column: tuple[Tensor | None, ...]) -> Tensor | None:
    present = [gradient for gradient in column if gradient is not None]
    if not present:
        return None
    total = present[0].clone(memory_format=torch.preserve_format)
    for gradient in present[1:]:
        total += gradient
    return total
