"""Finds what a script does not hand over: its model, its loaders, its optimizers.

They are seen when they are first used, by hooks on all modules, on two classes of torch, and on torch.compile.
"""

from __future__ import annotations

import builtins
import functools
import logging
import queue
from collections.abc import Iterator
from concurrent.futures import Future
from multiprocessing import queues
from threading import get_ident
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from .compiled import Compiled
from .harmless import never_raises
from .samples import trains
from .watch import Watch

NAMED = (
    *((owner, "save", "checkpoint") for owner in (torch, torch.serialization)),
    *((owner, name, "logging") for owner, name in ((logging.Logger, "callHandlers"), (builtins, "print"))),
    *((owner, "get", "data_wait") for owner in (queue.Queue, queues.Queue, queues.SimpleQueue)),
    (Future, "result", "data_wait"),
)
"""What the training thread may call beside training, and what it does meanwhile. Where it waits for what threads or
processes of its own make, it waits for data."""
LOOKING_STEPS = 2
"""So many first steps are looked at to their end, for their models; later ones until a model is called for a loss, as a
hook on every module takes a microsecond a call."""

_EVERYWHERE: Any = modules._global_forward_pre_hooks
"""Where `register_module_forward_pre_hook` hangs hooks on all modules, which takes ten times as long."""


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
        self.steps = 0
        """Those that are over."""
        self._feeds_training: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        """Loader → whether a backward has followed its batches; absent where that is not known."""
        patches = watch.patches
        patches.replace(DataLoader, "__iter__", self._feeding(DataLoader.__iter__))
        patches.replace(DistributedDataParallel, "__init__", self._wrapping(DistributedDataParallel.__init__))
        self._name_stretches()
        self._looking = self._called
        self.look_everywhere()
        patches.on_close(self.look_nowhere)
        Compiled(watch, self, patches)

    @property
    def broken(self) -> bool:
        """Whether something went wrong in us."""
        return self.watch.broken

    def fail(self, error: Exception) -> None:
        """Something went wrong in us: see nothing any more."""
        self.watch.fail(error)

    def _name_stretches(self) -> None:
        """See what a loop does beside training, by the functions of torch and Python that do it."""
        for owner, name, stretch in NAMED:
            self.watch.patches.replace(owner, name, self._named(getattr(owner, name), stretch))

    def _named(self, original: Any, name: str) -> Any:
        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # what is compiled has nothing of us in it
                return original(*args, **kwargs)
            with self.watch.named(name):
                return original(*args, **kwargs)

        return called

    def look_everywhere(self) -> None:
        """See the call of any module, from the begin of each step on, until a model is called for a loss."""
        _EVERYWHERE[id(self)] = self._looking

    def look_nowhere(self) -> bool:
        """See no module but those that are known, until `look_everywhere`; whether it looked."""
        return _EVERYWHERE.pop(id(self), None) is not None

    def stepped(self) -> int:
        """A step is over; returns how many are."""
        self.steps += 1
        _EVERYWHERE[id(self)] = self._looking
        return self.steps

    def _called(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        """Before any module is called: a model that is known has a hook of its own."""
        if module not in self._known:
            self._look_at(module, args)

    @never_raises
    def _look_at(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._found(module):
            self.watch.patches.before_call(module, self._for_a_loss)
            self._for_a_loss(module, args, {})

    @never_raises
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
            self.watch.evaluating()
        elif self.steps < LOOKING_STEPS and any(parameter.requires_grad for parameter in module.parameters()):
            self._known.add(module)
            self.models.append(module)
            return True
        return False

    def _for_a_loss(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Where several models train, as in a GAN, samples are those of the first that is called.
        first = module is self.models[0]
        training = self.watch.before_forward(module, args if first else (), kwargs if first else {})
        if training and self.steps >= LOOKING_STEPS:
            self.look_nowhere()

    def _wrapping(self, original: Any) -> Any:
        @functools.wraps(original)
        def made(model: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
            original(model, *args, **kwargs)
            if self.broken:
                return
            self.wrappers.append(model)
            self.watch.collectives.hook(model)

        return made

    def _feeding(self, original: Any) -> Any:
        @functools.wraps(original)
        def batches(loader: DataLoader[Any]) -> Any:
            self.loader_processes = max(self.loader_processes, loader.num_workers)
            if self.broken or self.beside():
                return original(loader)
            self.before_fetching(loader)
            self.watch.within, outside = True, self.watch.within
            try:
                made = original(loader)  # its processes begin, and the order of its samples is drawn
            finally:
                self.watch.within = outside
            name = "restart" if self.steps else "data_wait"
            self.watch.fetched(None, name)
            return Feeding(made, self, loader, name if loader.num_workers else "data_wait")

        return batches

    @never_raises
    def before_fetching(self, loader: Any) -> None:
        """Before the loop waits for a loader: one that feeds training ends an evaluation, another one begins it."""
        feeds = self._feeds_training.get(loader)
        if feeds:
            self.watch.training_again()
        elif feeds is False:
            self.watch.evaluating()
        self.watch.fetching()

    def beside(self) -> bool:
        """Whether this is another thread than the one that trains: what it waits for holds up no step."""
        return self.watch.training_thread not in (None, get_ident())

    @never_raises
    def saw_use(self, loader: Any, *, trained: bool) -> None:
        """A batch of a loader was used, and a backward has followed it or not."""
        if trained or loader not in self._feeds_training:
            self._feeds_training[loader] = trained


class Feeding:
    """An iterator of a loader; waiting for each batch is seen."""

    def __init__(self, batches: Iterator[Any], finder: Finder, loader: Any, first: str) -> None:
        """`first`: the stretch in which the loop waits for the first batch."""
        self._batches, self._finder, self._watch, self._loader = batches, finder, finder.watch, loader
        self._fed_at: int | None = None
        self._feeds_training = False
        self._name = first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type] # where it has none, it says so itself

    def __iter__(self) -> Feeding:
        return self

    def __next__(self) -> Any:
        if self._finder.broken or self._finder.beside():
            return next(self._batches)
        watch = self._watch
        if self._fed_at is not None:
            trained = watch.backwards > self._fed_at
            self._feeds_training |= trained
            self._finder.saw_use(self._loader, trained=trained)
        self._finder.before_fetching(self._loader)
        watch.within, outside = True, watch.within  # it waits for queues of its own
        try:
            batch = next(self._batches)
        except StopIteration:
            if self._feeds_training:
                watch.fed_out()
            raise
        finally:
            watch.within = outside
        watch.fetched(batch, self._name)
        self._name, self._fed_at = "data_wait", watch.backwards
        return batch
