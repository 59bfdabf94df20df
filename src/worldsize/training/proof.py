"""Whether two trainings are the same: gradients and weights by their distance, ranks and samples by their bits.

The long proof (verify.py) and the short one (check.py) both judge by it, and differ in what they hold a cell against.
The long one trains a reference on the samples of all workers, in double precision: it sees every step and wrong data,
at the price of a second model. The short one takes the ranks' own gradients without synchronisation: it sees the first
batch, and needs neither a second model nor the data of others.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from worldsize.config import Arithmetic
from worldsize.ranks.host_collectives import gather
from worldsize.results.check_records import Difference

TOLERANCES: dict[Arithmetic, float] = {"fp64": 1e-9, "fp32": 1e-4, "bf16": 2e-2}
"""Relative difference up to which two gradients are the same: far above rounding (1e-14 or less in double precision),
far below any mistake."""
FLOOR = 0.01
"""A difference counts relative to the norm of its own parameter, or to this share of the norm of all of them where
that is more: the gradient of a bias before a BatchNorm is 0 but for rounding, and would differ from itself."""
DIGEST_BYTES = 8

Named = Mapping[str, Tensor]


def named_gradients(model: nn.Module) -> dict[str, Tensor]:
    """The gradient of each trained parameter; one that the step did not use is zero (strategies/base.py)."""
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """All parameters, those that are not trained as well."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def distances(found: Named, wanted: Named) -> dict[str, float]:
    """‖found − wanted‖ ÷ max(‖wanted‖, FLOOR·‖all wanted‖) of each tensor, in their order; 0 where both are 0."""
    norms = {name: float(tensor.norm()) for name, tensor in wanted.items()}
    floor = FLOOR * math.hypot(*norms.values())
    result = {}
    for name, norm in norms.items():
        difference = float((found[name] - wanted[name]).norm())
        # Where nothing is wanted, all that was found is wrong.
        scale = max(norm, floor) or float(found[name].norm())
        result[name] = 0.0 if difference == 0 else difference / scale
    return result


class Comparison(NamedTuple):
    """How far named tensors are from those that were wanted."""

    largest: float | None
    """The largest distance; None if one is not finite."""
    first: Difference | None
    """The first that is beyond the tolerance."""


def compare(found: Named, wanted: Named, tolerance: float, step: int) -> Comparison:
    """Hold the gradients, or the weights, of a step against those that were wanted."""
    far = distances(found, wanted)
    name = first_beyond(far, tolerance)
    first = None if name is None else Difference(step=step, parameter=name, relative=largest([far[name]]))
    return Comparison(largest(far.values()), first)


def first_beyond(found: Mapping[str, float], tolerance: float) -> str | None:
    """The first name whose distance is above the tolerance, or not a number."""
    return next((name for name, distance in found.items() if not distance <= tolerance), None)


def largest(found: Iterable[float]) -> float | None:
    """The largest distance; None if one of them is not finite (JSON has no infinity)."""
    known = list(found)
    return max(known, default=0.0) if all(math.isfinite(distance) for distance in known) else None


def digest(tensor: Tensor, size: int = DIGEST_BYTES) -> str:
    """Two tensors of a shape have the same one if, and in all likelihood only if, each of their bits is the same."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return hashlib.blake2b(flat.view(torch.uint8).numpy().data, digest_size=size).hexdigest()


def first_apart(tensors: Named, processes: int) -> str | None:
    """The first tensor that is not the same, bit for bit, on all ranks; a collective that all ranks call."""
    return first_unlike({name: digest(tensor) for name, tensor in tensors.items()}, processes)


def first_unlike(digests: Mapping[str, str], processes: int) -> str | None:
    """The first name whose digest is not the same on all ranks; a collective that all ranks call."""
    if processes == 1:
        return None
    everyone = gather(list(digests.items()), processes)
    for first, *others in zip(*everyone, strict=True):
        if any(other != first for other in others):
            return str(first[0])
    return None


def sample_digests(inputs: Tensor, labels: Tensor, size: int = DIGEST_BYTES) -> list[str]:
    """A digest of each sample of a batch with its label."""
    found = []
    for sample, label in zip(inputs.cpu().contiguous(), labels.cpu(), strict=True):
        state = hashlib.blake2b(sample.numpy().data, digest_size=size)
        state.update(int(label).to_bytes(8, "little", signed=True))
        found.append(state.hexdigest())
    return found
