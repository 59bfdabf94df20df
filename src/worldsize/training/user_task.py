"""A class of the user's own as a task: its model, batches, loss and optimizer, each as it is (docs/workload.md).

Nothing is converted: token ids stay integers, and a batch is anything that the loss takes.
"""

from collections.abc import Iterator, Sequence
from multiprocessing import active_children
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from worldsize.config import CellSettings
from worldsize.errors import FactoryError
from worldsize.factories import Factory, find_factory, raised
from worldsize.measure.accelerator import kept_random_state
from worldsize.strategies import sizes_of
from worldsize.training.carrier import on_device
from worldsize.training.recipe import make_optimizer
from worldsize.wire import Sizes

DIMENSION = "batch_dimension"
"""The attribute that says along which dimension of each tensor the samples lie; None: they cannot be counted."""


class Owned:
    """An instance of the user's class, made with torch seeded. Raises FactoryError where it cannot be made."""

    def __init__(self, settings: CellSettings) -> None:
        assert settings.workload is not None, "there is a workload"
        self.name = settings.workload
        self.factory: Factory = find_factory(settings.workload, "workload")
        torch.manual_seed(settings.seed)
        self.it: Any = self.factory()

    @property
    def dimension(self) -> int | None:
        """Along which samples lie."""
        found: int | None = getattr(self.it, DIMENSION, 0)
        return found

    @property
    def has_optimizer(self) -> bool:
        """Whether it brings one."""
        return getattr(self.it, "optimizer", None) is not None

    def raised(self, error: Exception, method: str) -> FactoryError:
        """What is told where one of its methods raises."""
        return raised(error, f"{self.name}: {method}", self.factory.file)


class OwnBatches:
    """The batches of some ranks of the user's class, side by side as one; an iterable that ends is begun anew."""

    steps_per_epoch = None
    works_ahead = True

    def __init__(self, owned: Owned, ranks: range, world_size: int, local_batch: int) -> None:
        self.owned, self.ranks = owned, ranks
        self.world_size, self.local_batch = world_size, local_batch
        self._given: dict[int, Any] = {}

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Any]:
        """Each batch until the iterable of one of the ranks ends.

        Raises FactoryError for a batch of another size, and where there is none.
        """
        assert first_step == 0, "nothing goes on within an epoch of the user's"
        step = -1
        for step, batches in enumerate(zip(*map(self._iterator, self.ranks), strict=False)):
            for batch in batches:
                check_size(self.owned, batch, self.local_batch, f"batch {step + 1} of epoch {epoch + 1}")
            yield batches[0] if len(batches) == 1 else self._joined(batches)
        if step < 0:
            raise FactoryError(
                f"{self.owned.name}: batches() gave none in epoch {epoch + 1}\n"
                "Return an iterable that can be begun anew, or a new iterator each time it is called."
            )

    def _iterator(self, rank: int) -> Iterator[Any]:
        if rank not in self._given:
            self._given[rank] = self.owned.it.batches(rank, self.world_size, self.local_batch)
        given = self._given[rank]
        iterator: Iterator[Any] = iter(given)
        if iterator is given:  # it is used up with this epoch: the next one takes another
            del self._given[rank]
        return iterator

    def _joined(self, batches: Sequence[Any]) -> Any:
        """One batch of a process that drives several workers."""
        dimension = self.owned.dimension
        if dimension != 0:
            raise FactoryError(
                f"{self.owned.name}: {DIMENSION} is {dimension}; one process that drives all workers (data-parallel) "
                "cuts batches along dimension 0\n"
                "Leave out data-parallel, or give batches whose samples lie along dimension 0."
            )
        leaves = [tree_leaves(batch) for batch in batches]
        try:
            joined = [
                torch.cat(column) if isinstance(column[0], Tensor) and column[0].dim() else column[0]
                for column in zip(*leaves, strict=True)
            ]
        except (RuntimeError, TypeError, ValueError) as error:
            said = str(error).partition("\n")[0]
            raise FactoryError(
                f"{self.owned.name}: the batches of {len(batches)} workers cannot be put together for one process "
                f"({said})\nGive batches of one shape, or leave out data-parallel."
            ) from None
        return tree_unflatten(joined, tree_flatten(batches[0])[1])

    @property
    def loader_processes(self) -> int:
        """Those that make the batches of one rank, as far as Python's multiprocessing has started them: so many now."""
        return -(-len(active_children()) // len(self.ranks))


class UserTask:
    """A task (task.py) of `settings.workload`."""

    has_loss = True

    def __init__(self, settings: CellSettings) -> None:
        self.settings = settings
        self.owned = Owned(settings)
        self.sets_rate = not self.owned.has_optimizer

    def model(self, seed: int) -> nn.Module:
        """That of the user, drawn from the seed."""
        torch.manual_seed(seed)
        model: nn.Module = self.owned.it.model()
        return model

    def put(self, model: nn.Module, device: torch.device) -> nn.Module:
        """On its device; memory format and precision are the user's business."""
        return model.to(device)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The user's, else that of the settings."""
        if not self.owned.has_optimizer:
            return make_optimizer(model, self.settings, fused=True)
        made: torch.optim.Optimizer = self.owned.it.optimizer(list(model.parameters()))
        return made

    def batches(self, rank: int, processes: int) -> OwnBatches:
        """Those of this rank, or of all workers that this process drives."""
        each = self.settings.world_size // processes
        ranks = range(rank * each, (rank + 1) * each)
        return OwnBatches(self.owned, ranks, self.settings.world_size, self.settings.batch_size)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, None]:
        """The user's loss."""
        device = next(model.parameters()).device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.settings.precision == "bf16"):
            return self.owned.it.loss(model, batch), None

    def right(self, outputs: None, batch: Any) -> None:
        """Which answers are right is unknown."""

    def order(self, batch: Any) -> None:
        """The order of samples is the user's business."""

    def some_batch(self, samples: int, device: torch.device) -> Any:
        """The first one of the first ranks."""
        processes = self.settings.global_batch // samples
        return on_device(next(self.batches(0, processes).epoch(0)), device)

    def shares(self, batch: Any, workers: int) -> Sequence[Any]:
        """What was put together, taken apart."""
        size = self.settings.batch_size

        def part(worker: int, leaf: Any) -> Any:
            whole = isinstance(leaf, Tensor) and leaf.dim() > 0
            return leaf.narrow(0, worker * size, size) if whole else leaf

        return [tree_map(lambda leaf, worker=worker: part(worker, leaf), batch) for worker in range(workers)]

    def digests(self, batch: Any, samples: int, length: int) -> list[str]:
        """None: what a rank reads at another world size is the user's business."""
        return []

    def sizes(self, model: nn.Module, samples: int, device: torch.device) -> Sizes:
        """From a batch, and one forward pass in training mode whose traces are undone."""
        seen: list[Any] = []
        hook = model.register_forward_hook(lambda module, inputs, outputs: seen.append(outputs))
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        with kept_random_state(device):
            batch = self.some_batch(samples, device)
            try:
                self.loss(model, batch)
            finally:
                hook.remove()
                with torch.no_grad():
                    for buffer, before in buffers:
                        buffer.copy_(before)
        return sizes_of(
            model,
            input_bytes=_bytes(batch),
            output_bytes=_bytes(seen),
            powersgd_rank=self.settings.powersgd_rank,
        )


def check_size(owned: Owned, batch: Any, local_batch: int, which: str) -> None:
    """Raise FactoryError where a tensor of a batch has another number of samples."""
    dimension = owned.dimension
    if dimension is None:
        return
    for leaf in tree_leaves(batch):
        if isinstance(leaf, Tensor) and leaf.dim() > dimension and leaf.shape[dimension] != local_batch:
            raise FactoryError(
                f"{owned.name}: {which} has a tensor of {tuple(leaf.shape)}; dimension {dimension} must hold the "
                f"local batch of {local_batch} samples\nLeave out the last, smaller batch (drop_last=True)."
            )


def _bytes(batch: Any) -> int:
    return sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(batch) if isinstance(leaf, Tensor))
