"""Which timed steps of a session count: those during which the machine was disturbed do not (method.md §8)."""

from collections.abc import Sequence

import numpy as np

from worldsize.analysis.statistics import Blocks
from worldsize.ranks.turns import Reply
from worldsize.results.undisturbed import Beside, Times, undisturbed, usual_s


class Counted:
    """All timed steps of this session, and what of them counts by all that is known so far."""

    def __init__(self, *, all_count: bool = False) -> None:
        """`all_count`: whether every step counts, disturbed or not."""
        self._all_count = all_count
        self._timed: dict[str, dict[tuple[int, int], tuple[Times, Beside]]] = {}

    def add(
        self, samples: Blocks, name: str, key: tuple[int, int], steps_s: Times, replies: Sequence[Reply]
    ) -> dict[tuple[int, int], Times]:
        """The samples of a cell with a further block, which can show that steps before it were disturbed."""
        if self._all_count:
            return {**samples, key: steps_s}
        timed = self._timed.setdefault(name, {})
        timed[key] = steps_s, _beside(replies, steps_s)
        counting = zip(timed, undisturbed(list(timed.values())), strict=True)
        earlier = {key: each for key, each in samples.items() if key not in timed}
        return earlier | {key: each for key, each in counting if each.size}

    def extra(self, name: str, steps_s: Times, replies: Sequence[Reply]) -> Times:
        """The steps that count of those that were rolled back, right after a block."""
        if self._all_count:
            return steps_s
        return steps_s[~_beside(replies, steps_s).disturbed(usual_s(list(self._timed[name].values())))]


def _beside(replies: Sequence[Reply], steps_s: Times) -> Beside:
    """What the ranks tell of the computation; nothing where they do not tell of the same steps."""
    times = [reply.reference_s for reply in replies]
    if len({len(each) for each in times}) > 1 or len(times[0]) < len(steps_s):
        times = [[None] * len(steps_s)] * len(replies)
    return Beside(np.array(times, dtype=np.float64), len(steps_s))
