"""The contract of a workload (docs/workload.md), held against a user's class before any worker starts.

All that is wrong is told at once: each part is tried, as far as those before it permit, with one batch and one step.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from worldsize.config import CellSettings
from worldsize.config.workload import RECIPE, given
from worldsize.data.sets import shape_text
from worldsize.errors import FactoryError
from worldsize.factories import takes
from worldsize.ranks.memory import is_out_of_memory
from worldsize.strategies.unused import unused_text, without_gradient
from worldsize.training.carrier import on_device
from worldsize.training.user_task import DIMENSION, UserTask

METHODS = {
    "model": ("model()", 0),
    "batches": ("batches(rank, world_size, local_batch)", 3),
    "loss": ("loss(model, batch)", 2),
    "optimizer": ("optimizer(parameters)", 1),
}
"""Method → how it is called, and with how many arguments."""
OPTIONAL = ("optimizer",)


@dataclass
class Examined:
    """What was found of a user's class."""

    faults: list[str] = field(default_factory=list)
    """What breaks the contract."""
    unused: list[str] = field(default_factory=list)
    """Names of trained parameters that the loss does not depend on."""
    same_batches: bool = False
    """Whether the first and the last rank got the same batch."""
    model: nn.Module | None = None
    flops_per_sample: int | None = None


class Wrapped(nn.Module):
    """Stands for what a strategy makes of a model: it can be called, and has none of the model's own attributes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.called = False

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Call the model."""
        self.called = True
        return self.module(*inputs, **named)


def examine(settings: CellSettings, device: torch.device, *, needs_every_gradient: bool) -> Examined:
    """Try a user's class with the world size and the local batch of a cell; training is left out, and undone nothing.

    Raises FactoryError with all that breaks the contract.
    """
    task = UserTask(settings)
    look = _Look(task, device)
    found = look.all()
    if found.unused and needs_every_gradient and not settings.find_unused_parameters:
        found.faults.append(unused_text(found.unused).replace("\n", ". "))
    if found.faults:
        name, faults = task.owned.name, found.faults
        said = "".join(f"\n- {fault}" for fault in faults)
        raise FactoryError(f"{name} is no workload as docs/workload.md says ({len(faults)} found):{said}")
    return found


class _Look:
    def __init__(self, task: UserTask, device: torch.device) -> None:
        self.task, self.device = task, device
        self.settings, self.it = task.settings, task.owned.it
        self.found = Examined()

    def all(self) -> Examined:
        """Every part whose own parts are there."""
        there = self._methods()
        self._dimension()
        model = self._model() if "model" in there else None
        batch = self._batch() if "batches" in there else None
        if model is not None:
            self.found.model = model
            optimizer = self._optimizer(model) if "optimizer" in there else None
            if batch is not None and "loss" in there and self._step(model, batch) and optimizer is not None:
                self._try("optimizer(parameters).step()", optimizer.step)
        return self.found

    def _fault(self, text: str) -> None:
        self.found.faults.append(text)

    def _try(self, what: str, call: Callable[[], Any]) -> Any:
        """What a call returns; None, and a fault, where it raises."""
        try:
            return call()
        except Exception as error:  # it is the user's code
            if is_out_of_memory(error):
                raise
            self._fault(str(self.task.owned.raised(error, what)).removeprefix(f"{self.task.owned.name}: "))
            return None

    def _methods(self) -> list[str]:
        """The methods that can be called as they will be."""
        there = []
        for name, (call, count) in METHODS.items():
            method = getattr(self.it, name, None)
            if method is None and name in OPTIONAL:
                continue
            if not callable(method):
                self._fault(f"{call} is missing" if method is None else f"{name} is {_kind(method)}, not a method")
            elif not takes(method, count):
                self._fault(f"{name}{inspect.signature(method)} is given; it is called as {call}")
            else:
                there.append(name)
        return there

    def _dimension(self) -> None:
        dimension: Any = self.task.owned.dimension
        if dimension is not None and (isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 0):
            self._fault(f"{DIMENSION} is {dimension!r}; a dimension counted from 0 is allowed, or None")
            self.it.batch_dimension = 0

    def _model(self) -> nn.Module | None:
        made = self._try("model()", lambda: self.task.model(self.settings.seed))
        if made is None:
            self._no_none("model()", "a torch.nn.Module")
        elif not isinstance(made, nn.Module):
            self._fault(f"model() returned {_kind(made)}; a torch.nn.Module is allowed")
        elif not any(parameter.requires_grad for parameter in made.parameters()):
            self._fault("model() returned a module without a parameter that is trained")
        else:
            return self.task.put(made, self.device).train()
        return None

    def _no_none(self, call: str, allowed: str) -> None:
        """Tell of a None that was returned; one that stands for an exception was told."""
        if not any(fault.startswith(f"{call} raised") for fault in self.found.faults):
            self._fault(f"{call} returned None; {allowed} is allowed")

    def _optimizer(self, model: nn.Module) -> torch.optim.Optimizer | None:
        made = self._try("optimizer(parameters)", lambda: self.task.optimizer(model))
        if ignored := given(self.settings, RECIPE):
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in ignored)
            self._fault(f"it has an optimizer of its own, beside which {flags} would mean nothing")
        if made is None:
            self._no_none("optimizer(parameters)", "a torch.optim.Optimizer")
        elif not isinstance(made, torch.optim.Optimizer):
            self._fault(f"optimizer(parameters) returned {_kind(made)}; a torch.optim.Optimizer is allowed")
        else:
            return made
        return None

    def _batch(self) -> Any:
        """The first batch of the first rank; the last rank's is looked at as well."""
        world_size = self.settings.world_size
        before = len(self.found.faults)
        first = self._first_of(0)
        if world_size > 1 and len(self.found.faults) == before:
            last = self._first_of(world_size - 1)
            self.found.same_batches = last is not None and _same(first, last)
        return first if any(isinstance(leaf, Tensor) for leaf in tree_leaves(first)) else None

    def _first_of(self, rank: int) -> Any:
        world_size, size = self.settings.world_size, self.settings.batch_size
        call = f"batches({rank}, {world_size}, {size})"
        torch.manual_seed(self.settings.seed)  # as each rank has it: draws that are alike there are alike here
        made = self._try(call, lambda: self.it.batches(rank, world_size, size))
        if made is None:
            self._no_none(call, "an iterable of batches")
            return None
        if isinstance(made, Tensor | str | bytes | dict) or not isinstance(made, Iterable):
            self._fault(f"{call} returned {_kind(made)}; an iterable of batches is allowed")
            return None
        nothing = object()
        batch = self._try(f"the first batch of {call}", lambda: next(iter(made), nothing))
        if batch is nothing:
            self._fault(f"{call} gave no batch; fewer samples than a batch of {size}, or an iterator that is used up?")
        elif batch is not None or not self.found.faults:
            self._look_at(batch, call)
        return batch

    def _look_at(self, batch: Any, call: str) -> None:
        dimension, size = self.task.owned.dimension, self.settings.batch_size
        leaves = [(keystr(path), leaf) for path, leaf in tree_flatten_with_path(batch)[0]]
        tensors = [(path, leaf) for path, leaf in leaves if isinstance(leaf, Tensor)]
        if not tensors:
            self._fault(
                f"{call} gave {_kind(batch)} without a tensor; tensors in tuples, lists and dicts are allowed "
                "(of another kind of mapping, dict(batch))"
            )
        wrong = [
            f"batch{path} of {shape_text(tensor.shape)}"
            for path, tensor in tensors
            if dimension is not None and tensor.dim() > 0 and _size(tensor, dimension) != size
        ]
        if wrong:
            self._fault(
                f"{call} gave {', '.join(wrong)}; dimension {dimension} of each tensor holds the local batch, which is "
                f"{size} (where samples lie along another one, set {DIMENSION}; None where they cannot be counted)"
            )

    def _step(self, model: nn.Module, batch: Any) -> bool:
        """Whether a loss and its gradients could be computed."""
        wrapped = Wrapped(model)
        here = on_device(batch, self.device)

        def forward_and_backward() -> bool:
            model.zero_grad()
            loss, _ = self.task.loss(wrapped, here)
            if self._is_loss(loss):
                loss.backward()
                return True
            return False

        def counted() -> bool:
            counter: Any = FlopCounterMode(display=False)
            with counter:
                done = forward_and_backward()
            self.found.flops_per_sample = counter.get_total_flops() // self.settings.batch_size or None
            return done

        before = len(self.found.faults)
        done = self._try("loss(model, batch)", lambda: _either(counted, forward_and_backward))
        if len(self.found.faults) > before and "'Wrapped' object has no attribute" in self.found.faults[-1]:
            renamed = self.found.faults[-1].replace("'Wrapped' object has", "a wrapped model has")
            self.found.faults[-1] = f"{renamed}; loss() may only call the model it is given, which strategies wrap"
        if done and not wrapped.called:
            self._fault("loss(model, batch) does not call the model that it is given, so no strategy could see it")
        if done:
            self.found.unused = without_gradient(model) if wrapped.called else []
        return bool(done)

    def _is_loss(self, loss: Any) -> bool:
        allowed = "a tensor of one number (no dimension) that depends on the model is allowed"
        if not isinstance(loss, Tensor):
            self._fault(f"loss(model, batch) returned {_kind(loss)}; {allowed}")
        elif loss.dim():
            self._fault(f"loss(model, batch) returned {_kind(loss)}; {allowed} (its mean, say)")
        elif not loss.requires_grad:
            self._fault(f"loss(model, batch) returned a tensor without a gradient; {allowed} (no detach, no item)")
        elif not math.isfinite(float(loss.detach())):
            self._fault(f"loss(model, batch) is {float(loss.detach())} on the first batch; it must be finite")
        else:
            return True
        return False


def _either(first: Callable[[], bool], second: Callable[[], bool]) -> bool:
    """The first, or where it raises the second: not all that can be trained can be counted."""
    try:
        return first()
    except Exception as error:  # it is the user's code, and will raise again if it is wrong
        if is_out_of_memory(error):
            raise
        return second()


def _size(tensor: Tensor, dimension: int) -> int | None:
    return tensor.shape[dimension] if tensor.dim() > dimension else None


def _same(first: Any, last: Any) -> bool:
    """Whether two batches hold the same tensors."""
    pairs = zip(tree_leaves(first), tree_leaves(last), strict=False)
    return all(torch.equal(a, b) for a, b in pairs if isinstance(a, Tensor) and isinstance(b, Tensor))


def _kind(value: Any) -> str:
    """What a value is, for a message."""
    if isinstance(value, Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"a {kind} tensor of {shape_text(value.shape)}" if value.dim() else f"a {kind} tensor of one number"
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}, not an instance"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
