"""What one rank repeats, as the loop sees it: it knows of steps, and nothing of what is in them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from worldsize.measure.alignment import Offset
from worldsize.measure.timeline import Timeline
from worldsize.ranks.turns import Reply, Turn
from worldsize.results.memory_records import MemoryParts
from worldsize.results.training_records import GradientTimes


class Group(Protocol):
    """The processes that do the work together."""

    @property
    def rank(self) -> int:
        """Which of them this is."""

    @property
    def world_size(self) -> int:
        """How many they are."""


class World(Protocol):
    """Where a workload runs: what the loop asks of the `World` of a strategy (strategies/base.py)."""

    @property
    def channel(self) -> Group:
        """The processes."""

    @property
    def world_size(self) -> int:
        """N: workers, which is more than processes where one process drives several."""

    @property
    def device(self) -> torch.device:
        """Of this process."""

    @property
    def cores(self) -> tuple[tuple[int, ...], ...]:
        """Of each worker, where workers are threads of one process."""


class StepResult(Protocol):
    """What a step leaves. The tensors can be read once its end has passed, without waiting for later steps."""

    @property
    def epoch(self) -> int:
        """The epoch that the step belongs to."""

    @property
    def samples(self) -> int:
        """Samples of this process."""

    @property
    def loss(self) -> Tensor | None:
        """Their mean loss; None for work that has none."""

    @property
    def right(self) -> Tensor | None:
        """How many of them were classified right; None where nothing is classified."""

    @property
    def interrupted(self) -> bool:
        """Whether something else was done in the middle of it, such as an evaluation: its time says nothing."""


@dataclass(frozen=True)
class State:
    """What work is made of at the end of a step: dicts, lists and tuples of tensors, numbers and text."""

    steps: int
    """Steps behind it."""
    common: dict[str, dict[str, Any]]
    """What all ranks have in common, by name; a checkpoint has a file of each."""
    own: dict[str, Any]
    """What only this rank has."""
    replicated: tuple[Tensor, ...] = ()
    """The tensors of `common` that are the same on all ranks, unless they have drifted apart. Not kept."""
    belongs_to: dict[str, Any] = field(default_factory=dict)
    """Further fields of the index of a checkpoint: what it belongs to. Not put back."""


class MisfitError(Exception):
    """A state of other work than this, or of work that was changed meanwhile."""

    def __init__(self, part: str, why: str) -> None:
        super().__init__(why)
        self.part = part
        """The name in `common` of what does not fit; else it is what only this rank has."""


class Workload(Protocol):
    """Work in steps, under a strategy, with state that can be kept and put back.

    The training of a classifier is one (training/workload.py). The loop (loop.py) gives it its turns, times and
    records its steps, and saves it (checkpoint.py).
    """

    @property
    def world(self) -> World:
        """The world that it runs in."""

    @property
    def timeline(self) -> Timeline:
        """Gets a mark at the end of each phase of a step."""

    @property
    def steps(self) -> int:
        """Steps of training that it has behind it, those before its checkpoint included."""

    @property
    def steps_per_epoch(self) -> int:
        """How many steps use each sample once."""

    @property
    def saves(self) -> bool:
        """Whether it writes checkpoints, so that a lost training can go on from one."""

    def step(self, *, synchronise: bool = True) -> StepResult:
        """Do the next step; without `synchronise` gradients stay this rank's own. Does not wait for the device."""

    def begin_data_anew(self) -> None:
        """Let go of what was made ahead for the next steps, and ask for it again."""

    def rolled_back(self) -> AbstractContextManager[None]:
        """Undo on leaving all that steps do within: they only measure."""

    def uninstrumented(self) -> AbstractContextManager[None]:
        """No instruments of ours within, as far as all ranks have room for that."""

    def other(self, turn: Turn, align: Callable[[], Offset]) -> Reply:
        """Do a turn that is neither steps nor a save: an evaluation, a proof, a profile. `align` aligns clocks."""

    def state(self) -> State:
        """All that the next step depends on."""

    def restore(self, state: State) -> None:
        """Become what it was when `state` was taken; raise MisfitError for one that is not of this work."""

    def gradients(self) -> GradientTimes | None:
        """When backward has each gradient; None where it was not recorded."""

    def memory(self) -> MemoryParts | None:
        """What the memory of this rank is made of; None where that is not known."""

    def close(self) -> None:
        """End what works for it."""
