"""The timed steps of each cell that count: those during which its machine was not disturbed (method.md §8)."""

from collections.abc import Sequence

import numpy as np

from worldsize.analysis.statistics import Blocks
from worldsize.config import TrainingSettings
from worldsize.ranks.turns import Reply
from worldsize.results.undisturbed import Beside, Times, undisturbed, usual_s
from worldsize.study.bursts import loader_processes
from worldsize.study.plan import PlannedCell

REFERENCE_EVERY_S = 0.25
"""Steps that take about so long are followed by the short computation, which takes 5 ms: 2 % of that."""


def reference_every(cell: PlannedCell, settings: TrainingSettings, step_s: float | None) -> int:
    """After how many steps of a cell comes the computation that tells of disturbances; 0 for never.

    A number of steps that was asked for is timed as it is. Loader processes, a strategy of the user's, and more workers
    than cores may disturb the computation by what the training itself does. `step_s`: None where it is not known.
    """
    own = loader_processes(settings) > 0 or ":" in cell.settings.strategy or cell.placement.oversubscribed
    if settings.steps is not None or cell.placement.device != "cpu" or own:
        return 0
    return max(1, round(REFERENCE_EVERY_S / (step_s or REFERENCE_EVERY_S)))


def timed_steps(blocks: Blocks) -> int:
    """Timed steps of a cell; a block that was broken off, at the end of a session, counts as long as the one before.

    Blocks of one session need not be alike: those that fill a budget are longer (block_sizes.py).
    """
    lengths: dict[int, list[int]] = {}
    for session, block in sorted(blocks):
        lengths.setdefault(session, []).append(len(blocks[session, block]))
    return sum(sum(each[:-1]) + max(each[-2:]) for each in lengths.values())


class Counted:
    """All timed steps of this session, and what of them counts by all that is known so far."""

    def __init__(self) -> None:
        self._timed: dict[str, dict[tuple[int, int], tuple[Times, Beside]]] = {}

    def add(
        self, samples: Blocks, name: str, key: tuple[int, int], steps_s: Times, replies: Sequence[Reply]
    ) -> dict[tuple[int, int], Times]:
        """The samples of a cell with a further block, which can show that steps before it were disturbed."""
        timed = self._timed.setdefault(name, {})
        timed[key] = steps_s, _beside(replies, steps_s)
        counting = zip(timed, undisturbed(list(timed.values())), strict=True)
        earlier = {key: each for key, each in samples.items() if key not in timed}
        return earlier | {key: each for key, each in counting if each.size}

    def aside(self, name: str, steps_s: Times, replies: Sequence[Reply]) -> Times:
        """The steps that count of those that a cell ran aside, right after a block."""
        return steps_s[~_beside(replies, steps_s).disturbed(usual_s(list(self._timed[name].values())))]


def _beside(replies: Sequence[Reply], steps_s: Times) -> Beside:
    """What the ranks tell of the computation; nothing where they do not tell of the same steps."""
    told = [reply.reference_s for reply in replies]
    if len({len(each) for each in told}) > 1 or len(told[0]) < len(steps_s):
        told = [[None] * len(steps_s)] * len(replies)
    return Beside(np.array(told, dtype=np.float64), len(steps_s))
