"""Finds what a script does not hand over: its model, its loaders, its optimizers.

They are seen when they are first used, by hooks on all modules, on two classes of torch, and on torch.compile.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from torch.utils.hooks import RemovableHandle

from worldsize.metering.compiled import Compiled
from worldsize.metering.samples import trains
from worldsize.metering.watch import Watch

LOOKING_STEPS = 2
"""So many first steps are looked at to their end, for their models; later ones until a model is called for a loss, as a
hook on every module takes a microsecond a call."""


class Finder:
    """Tells a watch of what a script does, until `close` of the watch."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.models: list[nn.Module] = []
        """The outermost modules with weights to train that were called for a loss, in the order of their calls."""
        self._known: set[nn.Module] = set()
        self.wrappers: list[nn.Module] = []
        """Each DistributedDataParallel that was made; a framework may call what is in it, in a way of its own."""
        self.loader_processes = 0
        """Of the largest loader that was used."""
        self.processes_of_loaders: WeakSet[Any] = WeakSet()
        """Of all loaders that were used."""
        self.steps = 0
        """Those that are over."""
        self._training: int | None = None
        """The thread that steps the optimizer."""
        self.in_loader = False
        """Whether the loop waits for a batch already."""
        patches = watch.patches
        patches.replace(DataLoader, "__iter__", self._feeding(DataLoader.__iter__))
        patches.replace(DistributedDataParallel, "__init__", self._wrapping(DistributedDataParallel.__init__))
        self._everywhere: RemovableHandle | None = None
        self.look_everywhere()
        patches.on_close(self.look_nowhere)
        Compiled(watch, self, patches)

    def look_everywhere(self) -> None:
        """See the call of any module, from the begin of each step on, until a model is called for a loss."""
        if self._everywhere is None:
            self._everywhere = register_module_forward_pre_hook(self._called)

    def look_nowhere(self) -> bool:
        """See no module but those that are known, until `look_everywhere`; whether it looked."""
        if self._everywhere is None:
            return False
        self._everywhere.remove()
        self._everywhere = None
        return True

    def stepped(self) -> None:
        """A step is over. After the first the weights are known, after some all models are."""
        self.steps += 1
        self._training = get_ident()
        optimizer = self.watch.optimizer
        if self.steps == 1 and optimizer is not None:
            self.watch.watch_gradients(weights_of(optimizer))
        self.look_everywhere()

    def _called(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Before any module is called: a model that is known has a hook of its own."""
        if module not in self._known and self._found(module):
            self.watch.patches.before_call(module, self._for_a_loss)
            self._for_a_loss(module, args, {})

    def module_called(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a compiled module is called, which gets no hook: the compiler would trace it."""
        if module in self._known or self._found(module):
            self._for_a_loss(module, args, kwargs)

    def _found(self, module: nn.Module) -> bool:
        """Whether it is called for a loss: then it is a model, and what it calls is not; else it may be evaluated."""
        # To look at all weights would take long where there are many.
        if self.watch.forwarding or next(module.parameters(), None) is None:
            return False
        if not (trains(module) and torch.is_grad_enabled()):
            self.watch.evaluated = True
        elif self.steps < LOOKING_STEPS and any(parameter.requires_grad for parameter in module.parameters()):
            self._known.add(module)
            self.models.append(module)
            return True
        return False

    def _for_a_loss(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Where several models train, as in a GAN, samples are those of the first that is called.
        first = module is self.models[0]
        self.watch.before_forward(module, args if first else (), kwargs if first else {})
        if self.steps >= LOOKING_STEPS and trains(module):
            self.look_nowhere()

    def _wrapping(self, original: Any) -> Any:
        @functools.wraps(original)
        def made(model: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            original(model, *args, **kwargs)
            self.wrappers.append(model)
            self.watch.collectives.hook(model)

        return made

    def _feeding(self, original: Any) -> Any:
        @functools.wraps(original)
        def batches(loader: "DataLoader[Any]") -> Any:
            self.loader_processes = max(self.loader_processes, loader.num_workers)
            if self.beside():
                return original(loader)
            self.watch.fetching()  # its processes begin, and the order of its samples is drawn
            made = original(loader)
            self.watch.fetched(None)
            self.processes_of_loaders.update(getattr(made, "_workers", ()))
            return Feeding(made, self)

        return batches

    def beside(self) -> bool:
        """Whether this is another thread than the one that trains: what it waits for holds up no step."""
        return self._training not in (None, get_ident())

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The loop waits for a batch that threads or processes of its own make; in a loader it is that one's wait."""
        outside, self.in_loader = not self.in_loader, True
        if outside:
            self.watch.fetching()
        try:
            yield
        finally:
            if outside:
                self.watch.fetched(None)
                self.in_loader = False


class Feeding:
    """An iterator of a loader; waiting for each batch is seen."""

    def __init__(self, batches: Iterator[Any], finder: Finder) -> None:
        self._batches, self._finder, self._watch = batches, finder, finder.watch
        self._fed_at = self._watch.backwards
        self._feeds_training = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type] # where it has none, it says so itself

    def __iter__(self) -> "Feeding":
        return self

    def __next__(self) -> Any:
        if self._finder.beside():
            return next(self._batches)
        watch = self._watch
        self._feeds_training |= watch.backwards > self._fed_at
        watch.fetching()
        outside, self._finder.in_loader = self._finder.in_loader, True
        try:
            batch = next(self._batches)
        except StopIteration:
            if self._feeds_training:
                watch.fed_out()
            raise
        finally:
            self._finder.in_loader = outside
        watch.fetched(batch)
        self._fed_at = watch.backwards
        return batch


def weights_of(optimizer: Optimizer) -> Iterator[Tensor]:
    """What an optimizer trains."""
    for group in optimizer.param_groups:
        yield from group["params"]
