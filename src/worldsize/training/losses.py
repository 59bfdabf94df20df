"""What a lossy synchronisation loses: its averages held against the means of the ranks' own gradients (method.md §10).

Weights of a lossy training leave those of an exact one after the first step, so both sides are taken at the same
weights. The short proof (check.py) and the long one (verify.py) measure with it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from worldsize.config import CellSettings
from worldsize.ranks.host_collectives import gather
from worldsize.results.check_records import Fault, FaultKind, Losses
from worldsize.strategies import Strategy
from worldsize.strategies.channel import flat
from worldsize.training.proof import Named, compare, first_apart, named_gradients
from worldsize.traits import TraitsRecord

LOST = 1e-4
"""A gradient of this share of the norm of all, or more, must not arrive as zeros: rounding before a BatchNorm is far
below."""
FEEDBACK_TOLERANCE = 1e-4
"""What a parameter's sum may be off, beside what is held back: rounding of single precision, in which residuals are
kept, is a thousandth of it."""
CHUNK = 2**22
"""Elements that are averaged in one message: a copy of all gradients at once could be what memory ends at."""


class Plain(NamedTuple):
    """The gradients of a batch as no strategy has seen them."""

    own: Named
    """Of this rank."""
    mean: Named
    """Over the workers."""


def average_over_ranks(tensors: Iterable[Tensor]) -> None:
    """Replace the tensors by their mean over the ranks, on the default group; all ranks call it together."""
    chunk: list[Tensor] = []
    for tensor in tensors:
        chunk.append(tensor)
        if sum(each.numel() for each in chunk) >= CHUNK:
            _average(chunk)
            chunk = []
    if chunk:
        _average(chunk)


def _average(chunk: Sequence[Tensor]) -> None:
    together = torch.cat([each.reshape(-1) for each in chunk])
    dist.all_reduce(together)
    together /= dist.get_world_size()
    for each, piece in zip(chunk, together.split([each.numel() for each in chunk]), strict=True):
        each.copy_(piece.view(each.shape))


def first_steps(traits: TraitsRecord, settings: CellSettings) -> int:
    """Steps at the start of a training that are synchronised in another way."""
    return int(getattr(settings, traits.first_steps)) if traits.first_steps else 0


def period(traits: TraitsRecord, settings: CellSettings) -> int:
    """Every how many steps something travels."""
    return int(getattr(settings, traits.period)) if traits.period else 1


class Faults:
    """The first fault of each kind."""

    def __init__(self) -> None:
        self.found: dict[FaultKind, Fault] = {}

    def note(self, kind: FaultKind, *, relative: float | None = None, **where: int | str | float | None) -> None:
        """One more; a size that is not finite is not told."""
        ours = relative if relative is not None and math.isfinite(relative) else None
        self.found.setdefault(kind, Fault.model_validate({"kind": kind, "relative": ours, **where}))

    def of_all_ranks(self, processes: int) -> list[Fault]:
        """Those that any rank has found; a collective that all ranks call."""
        everyone = gather([fault.model_dump() for fault in self.found.values()], processes)
        first: dict[str, Fault] = {}
        for fault in (Fault.model_validate(each) for found in everyone for each in found):
            first.setdefault(fault.kind, fault)
        return list(first.values())


class LossMeter:
    """Takes one step after the other of one strategy; all ranks call it together.

    `exact_steps` is the step before which nothing may be lost, counted from the start of the training.
    """

    def __init__(self, strategy: Strategy, processes: int, tolerance: float, exact_steps: int) -> None:
        self.strategy, self.processes, self.tolerance = strategy, processes, tolerance
        self.traits = strategy.traits
        self.exact_steps = exact_steps
        self.faults = Faults()
        self._steps = self._lossy_steps = 0
        self._worst: tuple[float, float | None] | None = None
        self._missing: dict[str, Tensor] = {}
        self._means: dict[str, Tensor] = {}
        self._zero_in: dict[str, int] = {}
        self._held_before = self._held()

    def add(self, step: int, plain: Plain) -> None:
        """Note what the strategy has made of this step's gradients; they are in its model now."""
        found = named_gradients(self.strategy.unwrap())
        self._steps += 1
        exact = step < self.exact_steps
        if self.traits.travels == "weights" and not exact:
            self._compare("not-own", found, plain.own, step)
            return
        if (name := first_apart(found, self.processes)) is not None:
            self.faults.note("gradients-apart", step=step, parameter=name)
        if exact:
            self._compare("inexact", found, plain.mean, step)
        else:
            self._lossy_steps += 1
            self._judge(step, found, plain)
        self._add_up(found, plain.mean)

    def result(self) -> Losses:
        """What was found in all steps, on any rank."""
        error, allowed = self._worst or (None, None)
        for name, steps in self._zero_in.items():
            if steps == self._lossy_steps and not self.traits.feedback:
                self.faults.note("lost", parameter=name)
        feedback = self._unheld() if self.traits.feedback else None
        return Losses(
            steps=self._steps,
            step_error=_finite(error),
            step_allowed=allowed,
            sum_error=_finite(_share(norm(self._missing), norm(self._means))) if self._lossy_steps else None,
            feedback_error=_finite(feedback),
            faults=self.faults.of_all_ranks(self.processes),
        )

    def _compare(self, kind: FaultKind, found: Named, wanted: Named, step: int) -> None:
        _, first = compare(found, wanted, self.tolerance, step)
        if first is not None:
            self.faults.note(
                kind, step=step, parameter=first.parameter, relative=first.relative, allowed=self.tolerance
            )

    def _judge(self, step: int, found: Named, plain: Plain) -> None:
        size = norm(plain.mean)
        error = _share(norm({name: found[name] - mean for name, mean in plain.mean.items()}), size)
        allowed = self._allowed(plain, size)
        if self._worst is None or not error <= self._worst[0]:
            self._worst = error, allowed
        if allowed is not None and not error <= allowed:
            self.faults.note("error", step=step, relative=error, allowed=allowed)
        for name, mean in plain.mean.items():
            if float(mean.norm()) > LOST * size and not found[name].any():
                self._zero_in[name] = self._zero_in.get(name, 0) + 1

    def _allowed(self, plain: Plain, size: float) -> float | None:
        """The bound of a step, relative to the mean: what is rounded are the ranks' own gradients, which are larger.

        With feedback a step also gives back what the one before it has lost.
        """
        if self.traits.step_error is None:
            return None
        own = torch.tensor([norm(plain.own)], device=next(iter(plain.own.values())).device)
        if self.processes > 1:
            average_over_ranks([own])
        given_back = 2 if self.traits.feedback and self._lossy_steps > 1 else 1
        return max(self.tolerance, given_back * self.traits.step_error * max(1.0, _share(float(own), size)))

    def _add_up(self, found: Named, mean: Named) -> None:
        for name, wanted in mean.items():
            missing = wanted - found[name]
            if name in self._missing:
                self._missing[name] += missing
                self._means[name] += wanted
            else:
                self._missing[name], self._means[name] = missing, wanted.clone()

    def _held(self) -> dict[str, Tensor] | None:
        """The mean over the ranks of what they hold back, by the name of its parameter, flat."""
        held = self.strategy.held_back() if self.traits.feedback else None
        if held is None:
            return None
        named: Mapping[str, Tensor] = {
            name: held[parameter].detach().to(parameter.dtype, copy=True)
            for name, parameter in self.strategy.unwrap().named_parameters()
            if parameter in held
        }
        if self.processes > 1:
            average_over_ranks(named.values())
        return dict(named)

    def _unheld(self) -> float | None:
        """The largest distance of a parameter's sums that is not held back; notes a fault above the tolerance."""
        held, before = self._held(), self._held_before
        if held is None:
            self.faults.note("no-feedback")
            return None
        ours, wanted = {}, {}
        for name, missing in self._missing.items():
            wanted[name] = flat(self._means[name])
            kept = held.get(name, torch.zeros_like(wanted[name]))
            if before is not None and name in before:
                kept = kept - before[name]
            ours[name] = wanted[name] - flat(missing) + kept
        tolerance = max(FEEDBACK_TOLERANCE, self.tolerance)
        far, first = compare(ours, wanted, tolerance, step=0)
        if first is not None:
            self.faults.note("feedback", parameter=first.parameter, relative=first.relative, allowed=tolerance)
        return far


def norm(tensors: Named) -> float:
    """‖all of them together‖."""
    return math.hypot(*(float(tensor.norm()) for tensor in tensors.values()))


def _share(part: float, whole: float) -> float:
    """Part ÷ whole; where there is nothing, all that was found is wrong."""
    return part / whole if whole else math.inf if part else 0.0


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
