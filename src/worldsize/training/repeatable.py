"""A model made fit for a proof: in double precision where it can be, and without random draws in its forward."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from worldsize.measure.accelerator import kept_random_state

TRIAL_SAMPLES = 4
"""BatchNorm needs two, but makes nearly -1 and 1 of any two, which would hide what came before it."""
RATES = {"StochasticDepth": "p", "DropPath": "drop_prob", "MultiheadAttention": "dropout", "RNNBase": "dropout"}
"""Classes, by name because some are not torch's, whose attribute is the rate of their own dropout."""


def without_dropout(model: nn.Module) -> int:
    """Set the rate of all dropout to 0, in place; returns how many layers had one."""
    changed = 0
    for module in model.modules():
        kinds = {kind.__name__ for kind in type(module).__mro__}
        names = {"p"} if isinstance(module, _DropoutNd) else {RATES[kind] for kind in kinds & RATES.keys()}
        for name in names:
            changed += bool(getattr(module, name, 0))
            setattr(module, name, 0.0)
    return changed


def in_double(model: nn.Module) -> nn.Module:
    """The model in double precision, in place; its inputs are converted as they come."""
    model.double()
    model.register_forward_pre_hook(_widen)
    return model


def _widen(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.double() if isinstance(each, Tensor) and each.is_floating_point() else each for each in inputs)


def refuses_double(model: nn.Module, shape: tuple[int, ...]) -> str | None:
    """Why a model cannot be trained in double precision; None if it can. The model is left as it is."""
    with _trial(model, shape) as (twin, inputs):
        in_double(twin)
        try:
            with _Narrowing() as seen:
                outputs = twin(inputs)
                outputs.sum().backward()
        except Exception as error:
            lines = str(error).strip().splitlines()
            return f"it raises {type(error).__name__}: {lines[0]}" if lines else f"it raises {type(error).__name__}"
    narrowed = seen.narrowed or (None if outputs.dtype == torch.float64 else str(outputs.dtype).removeprefix("torch."))
    return f"it converts to {narrowed}" if narrowed else None


class _Narrowing(TorchDispatchMode):
    """Watches for an operation that makes something narrower out of doubles."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.narrowed: str | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        before = {each.dtype for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        after = {each.dtype for each in tree_leaves(outputs) if isinstance(each, Tensor) and each.is_floating_point()}
        if torch.float64 in before and after - {torch.float64}:
            self.narrowed = self.narrowed or str(min(after - {torch.float64}, key=str)).removeprefix("torch.")
        return outputs


def unrepeatable(model: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether two forward passes of the same inputs in training mode differ, or draw random numbers."""
    with _trial(model, shape) as (twin, inputs), torch.no_grad():
        before = _random_state(inputs.device)
        try:
            first, second = twin(inputs), twin(inputs)
        except Exception:
            return False  # a model that cannot run says so in its first step
        drew = any(not torch.equal(a, b) for a, b in zip(before, _random_state(inputs.device), strict=True))
    return drew or not torch.allclose(first, second, rtol=1e-3, atol=1e-6, equal_nan=True)


@contextmanager
def _trial(model: nn.Module, shape: tuple[int, ...]) -> Iterator[tuple[nn.Module, Tensor]]:
    """A copy of the model in training mode, and some inputs; torch's random state is kept."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    with kept_random_state(device):
        generator = torch.Generator().manual_seed(0)
        yield copy.deepcopy(model).train(), torch.rand(TRIAL_SAMPLES, *shape, generator=generator).to(device)


def _random_state(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return states if device.type == "cpu" else [*states, torch.get_device_module(device).get_rng_state(device)]
