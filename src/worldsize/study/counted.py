"""The timed steps of each cell that count: those during which its machine was not disturbed (method.md §8)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from worldsize.analysis.statistics import Blocks
from worldsize.config import TrainingSettings
from worldsize.results.undisturbed import Times, undisturbed_blocks
from worldsize.study.bursts import burst
from worldsize.study.plan import PlannedCell

REFERENCE_EVERY_S = 0.2
"""Steps that take about so long are followed by the short computation, which takes 4 ms: 2 % of that."""

Replies = Sequence[Mapping[str, Any]]
"""What the ranks of a cell answered to a turn."""


def reference_every(cell: PlannedCell, settings: TrainingSettings, step_s: float | None) -> int:
    """Every how manyth step of a cell is followed by the computation that tells of disturbances; 0 is none.

    A number of steps that was asked for is timed as it is. Loader processes, a strategy of the user's, and more workers
    than cores may disturb the computation by what the training itself does. `step_s`: None where it is not known.
    """
    own = burst(settings) > 1 or ":" in cell.settings.strategy or cell.placement.oversubscribed
    if settings.steps is not None or cell.placement.device != "cpu" or own:
        return 0
    return max(1, round(REFERENCE_EVERY_S / (step_s or REFERENCE_EVERY_S)))


class Counted:
    """All timed steps of this session, and what of them counts by all that is known so far."""

    def __init__(self) -> None:
        self._timed: dict[str, dict[tuple[int, int], tuple[Times, Times]]] = {}

    def add(
        self, samples: Blocks, name: str, key: tuple[int, int], steps_s: Times, replies: Replies
    ) -> dict[tuple[int, int], Times]:
        """The samples of a cell with a further block, which can show that steps before it were disturbed."""
        timed = self._timed.setdefault(name, {})
        timed[key] = steps_s, _references(replies, steps_s)
        earlier = {key: each for key, each in samples.items() if key not in timed}
        found = zip(timed, undisturbed_blocks(list(timed.values())), strict=True)
        return earlier | {key: each for key, each in found if each.size}

    def aside(self, name: str, steps_s: Times, replies: Replies) -> Times:
        """What counts of steps that a cell ran aside, right after a block."""
        known = list(self._timed.get(name, {}).values())
        return undisturbed_blocks([*known, (steps_s, _references(replies, steps_s))])[-1]


def _references(replies: Replies, steps_s: Times) -> Times:
    """Times of the short computation after each step, by rank; NaN where there was none."""
    return np.array([reply.get("reference_s") or [None] * len(steps_s) for reply in replies], dtype=np.float64)
