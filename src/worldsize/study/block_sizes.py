"""How many timed steps a block of each cell has: by time in a budget, and by number in a fixed protocol.

Blocks are planned once all cells are warm. What rounds of them would leave of a budget goes to the steps of the last
rounds: on two cores a default study of six cells ended 9 s before its budget, a twelfth of it, because one more whole
round did not fit.
"""

from collections.abc import Collection, Mapping
from math import ceil

from worldsize.config import TrainingSettings
from worldsize.study.bursts import LEAD_STEPS, burst, whole_bursts

LEAST_STEPS = 2
"""Steps in a block, at least: the median of one is that one."""
GOOD_STEPS = 4
"""Steps in a block where a budget has room for FEW_ROUNDS of them: one more in each block is not timed."""
FEW_ROUNDS = 5
MOST_STEPS = 2_000
BLOCK_S = 0.5
"""How long a block is at most, where its steps are short: what a machine does to cells that are timed within a few
seconds of each other still cancels, and the time to hand over a turn no longer counts."""
LEAST_BLOCK_S = 0.05
DEVICE_BLOCK_S = 1.0
"""The same on a GPU, whose clocks need a good part of a second to rise after a pause."""
MOST_DEVICE_STEPS = 20_000
ROUNDS = 20
"""Turns of each cell that a budget should be enough for."""
FIXED_BLOCKS = 10
"""Blocks that a fixed number of steps makes, at least, where blocks are sized by time."""
UNTIMED = 1.5
"""Length of a turn ÷ that of its timed steps, as a first guess."""
MOST_STRETCH = 2.0
"""Steps of a block ÷ what was planned, at most, where that uses a budget up."""


class BlockSizes:
    """The timed steps in a block of each cell."""

    def __init__(self, settings: TrainingSettings, *, budgeted: bool, devices: bool = False) -> None:
        """`devices`: whether steps run on GPUs."""
        self.settings = settings
        self.budgeted = budgeted
        self.devices = devices
        self._planned: dict[str, int] = {}
        self._steps: dict[str, int] = {}

    def plan(self, step_s: Mapping[str, float], left_s: float) -> None:
        """Decide it for cells whose steps take so long (s), with so much time left in a budget."""
        fitting, length_s = 0, BLOCK_S
        if self.budgeted:
            length_s = left_s / (ROUNDS * max(1, len(step_s)) * UNTIMED)
            fitting = int((left_s / (FEW_ROUNDS * max(sum(step_s.values()), 1e-6)) - LEAD_STEPS) / UNTIMED)
        length_s = min(BLOCK_S, max(LEAST_BLOCK_S, length_s))
        if self.devices:
            room_s = left_s / (FEW_ROUNDS * max(1, len(step_s)) * UNTIMED) if self.budgeted else DEVICE_BLOCK_S
            length_s = max(length_s, min(DEVICE_BLOCK_S, room_s))
        longest_s = max(step_s.values(), default=BLOCK_S)
        self._planned = {name: self._sized(each_s, length_s, longest_s, fitting) for name, each_s in step_s.items()}
        self._steps = dict(self._planned)

    def of(self, name: str) -> int:
        """Timed steps in the next block of a cell."""
        return self._steps.get(name, whole_bursts(self.settings, self.settings.block_steps or LEAST_STEPS))

    def added_s(self, step_s: Mapping[str, float], names: Collection[str]) -> float:
        """How much longer (s) a round of these cells is by the steps that were added to what was planned."""
        return sum(step_s[name] * (self._steps[name] - self._planned[name]) for name in names if name in self._planned)

    def fill(self, step_s: Mapping[str, float], names: Collection[str], *, round_s: float, left_s: float) -> None:
        """Size the blocks of these cells so that whole rounds, each of `round_s` as planned, use up what is left."""
        timed_s = sum(step_s[name] * self._planned[name] for name in names if name in self._planned)
        if self.settings.block_steps is not None or not timed_s or not round_s:
            return
        rounds = max(1, int(left_s / round_s))
        stretch = min(MOST_STRETCH, 1 + (left_s / rounds - round_s) / timed_s)
        for name in names:
            if name in self._planned:
                whole = max(LEAST_STEPS, int(self._planned[name] * stretch))
                size = max(1, whole // burst(self.settings)) * burst(self.settings)
                self._steps[name] = min(size, max(self._planned[name], self.share_of_cap))

    @property
    def share_of_cap(self) -> int:
        """Steps in a block, at most, so that a cap on steps makes some blocks."""
        if self.settings.steps is None:
            return self._most_steps
        return max(LEAST_STEPS, ceil(self.settings.steps / FIXED_BLOCKS))

    @property
    def _most_steps(self) -> int:
        return MOST_DEVICE_STEPS if self.devices else MOST_STEPS

    def _sized(self, step_s: float, length_s: float, longest_s: float, fitting: int) -> int:
        """Steps in a block of about this length, of which so many fit into a budget for all cells alike."""
        if self.settings.block_steps is not None:
            return whole_bursts(self.settings, self.settings.block_steps)
        if self.budgeted:
            least = min(GOOD_STEPS, max(LEAST_STEPS, fitting))
            count = min(self._most_steps, max(least, round(length_s / max(step_s, 1e-6))), self.share_of_cap)
        else:  # a fixed number of steps is the same for all cells, and so is the number of their blocks
            count = max(LEAST_STEPS, min(round(length_s / max(longest_s, 1e-6)), self.share_of_cap))
        return whole_bursts(self.settings, count)
