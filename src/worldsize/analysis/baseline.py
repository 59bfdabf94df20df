"""Which cells a cell is compared with: one rule for planned, measured and stored cells (method.md §6)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from worldsize.config.script import PYTHON_ALONE, TUNED
from worldsize.traits import ALL_CORES, BASELINE_STRATEGY


class Identity(Protocol):
    """What tells a cell from the others of a study."""

    @property
    def id(self) -> str: ...

    @property
    def strategy(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def world_size(self) -> int: ...

    @property
    def batch_size(self) -> int:
        """The local batch b."""

    @property
    def global_batch(self) -> int:
        """B = N·b·K."""


C = TypeVar("C", bound=Identity)


def baselines(cell: Identity, cells: Iterable[C], samples: int) -> list[C]:
    """The cells of one worker with so many samples a step that are better baselines than the cell itself, best first.

    Best is the one without a wrapper, or the script by itself with all cores, then the same strategy around one worker;
    of several with other recipes (labels) the one that was planned first. `samples` is b·K of the cell for weak
    scaling, B for strong scaling. One worker with the cores of all of them is what the machine does without them, not a
    worker of theirs (scaling.py: rows_on_machine).
    """
    if cell.label == ALL_CORES:
        return []
    alone = [e for e in cells if e.world_size == 1 and e.global_batch == samples and e.label != ALL_CORES]
    script = cell.strategy.removesuffix(TUNED)
    names = dict.fromkeys((BASELINE_STRATEGY, f"{script}{PYTHON_ALONE}", cell.strategy))
    ranked = [each for name in names for each in alone if each.strategy == name]
    ids = [each.id for each in ranked]
    return ranked[: ids.index(cell.id)] if cell.id in ids else ranked


def with_numbers(cell: Identity, ranked: Sequence[C], has_numbers: Callable[[C], bool]) -> C | None:
    """Which of its baselines a cell is compared with: the best that has numbers, and one without only if none has.

    A cell of one worker is then compared with none: it is what others are compared with.
    """
    if cell.world_size == 1:
        ranked = [each for each in ranked if has_numbers(each)]
    return next((each for each in ranked if has_numbers(each)), next(iter(ranked), None))


def any_baselines(cell: Identity, cells: Iterable[C]) -> list[C]:
    """Those with the same local batch, then those with the same global one; each once."""
    every = list(cells)
    batches = dict.fromkeys((cell.global_batch // cell.world_size, cell.global_batch))
    return [found for batch in batches for found in baselines(cell, every, batch)]
