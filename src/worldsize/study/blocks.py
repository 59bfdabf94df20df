"""The steps of a block: how many are not timed, and how many are (method.md §8).

In a budget it goes by time, in a fixed protocol by number. Blocks are planned once all cells are warm. What rounds of
them would leave of a budget goes to the steps of the last rounds: on two cores a default study of six cells ended 9 s
before its budget, a twelfth of it, because one more whole round did not fit. A loader whose processes make
batches side by side is given whole bursts. Blocks are not all of one length, or what a training does every so many
steps would lie at the same place in each.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from math import ceil, lcm

import numpy as np
from numpy.typing import NDArray

from worldsize.analysis.statistics import Blocks
from worldsize.config import TrainingSettings
from worldsize.ranks.turns import Reply
from worldsize.study.plan import PlannedCell

BLOCK_WARMUP = 1
"""Steps at the start of each block that are not timed: the first one after a pause was seen to be 6 % slower."""
MIN_STEPS = 2
"""Steps in a block, at least: one by itself says nothing of how far steps differ."""
GOOD_STEPS = 4
"""Steps in a block where a budget has room for FEW_ROUNDS of them: one more in each block is not timed."""
FEW_ROUNDS = 5
MAX_STEPS = 2_000
BLOCK_S = 0.5
"""How long a block is at most, where its steps are short: what a machine does to cells that are timed within a few
seconds of each other still cancels, and the time to hand over a turn no longer counts."""
MIN_BLOCK_S = 0.05
RECURRING_S = 5.0
"""Blocks hold whole periods of a command, such as 25 steps with one evaluation, if a period is not longer than this and
a budget has room for FEW_ROUNDS such blocks."""
DEVICE_BLOCK_S = 1.0
"""The same on a GPU, whose clocks need a good part of a second to rise after a pause."""
MAX_DEVICE_STEPS = 20_000
ROUNDS = 20
"""Turns of each cell that a budget should be enough for."""
FIXED_BLOCKS = 10
"""Blocks that a fixed number of steps makes, or a few less, where blocks are sized by time."""
LONGER = 0.5
"""Share of the rounds whose blocks are longer by a step, or by a burst of the loader."""
UNTIMED = 1.5
"""Length of a turn ÷ that of its timed steps, as a first guess."""
MAX_STRETCH = 3.0
"""Steps of a block ÷ what was planned, at most, where that uses a budget up."""
PROFILED_STEPS, MOST_PROFILED = 3, 16
"""Steps in a trace: enough to see one like the next, and at most. A trace of more is slow to open."""
REFERENCE_EVERY_S = 0.25
"""Steps that take about so long are followed by the short computation, which takes 5 ms: 2 % of that."""


def loader_processes(settings: TrainingSettings) -> int:
    """The processes W of a rank's loader; 0 where the batches are made in the rank's own process."""
    of_user = ":" in settings.data and settings.data.partition(":")[0] != "synthetic"
    return settings.loader_workers if of_user or settings.loader == "per-sample" else 0


def period(cell: PlannedCell) -> int:
    """Every how many steps something travels that steps in between go without: a setting that the traits name."""
    name = cell.traits.period if cell.world_size > 1 else ""
    return int(getattr(cell.settings, name, 1)) if name else 1


def first_steps(cell: PlannedCell) -> int:
    """First steps that are synchronised in another way than those after them; none as a rule."""
    name = cell.traits.first_steps if cell.world_size > 1 else ""
    return int(getattr(cell.settings, name, 0)) if name else 0


def profiled_steps(cell: PlannedCell) -> int:
    """Steps of a trace: a few, or all of a short period, of which only one communicates."""
    return max(PROFILED_STEPS, min(period(cell), MOST_PROFILED))


def warmup_steps(cell: PlannedCell) -> int:
    """Steps before the first block: those that were asked for.

    First steps that are not like the others come before them, and so does a period: all that happens once in it has
    then happened once before it is timed.
    """
    wanted = cell.settings.warmup_steps
    first = first_steps(cell) + (period(cell) if period(cell) > 1 else 0)
    return first + max(wanted, BLOCK_WARMUP) if first or wanted else 0


class BlockSizes:
    """The timed steps in a block of each cell."""

    def __init__(
        self, settings: TrainingSettings, cells: Sequence[PlannedCell], *, budgeted: bool, devices: bool = False
    ) -> None:
        """`cells`: those that are timed, also those that come to this list later; `devices`: whether on GPUs."""
        self.settings, self.cells = settings, cells
        self.budgeted = budgeted
        self.devices = devices
        self._planned: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._length_s, self._fitting, self._recurring_s = BLOCK_S, 0, RECURRING_S
        self._recurring: dict[str, int] = {}
        """Cell → the period in steps of what its command does beside training."""
        self._loaders: dict[str, int] = {}
        self.round = 0
        """The number of the next round of blocks."""

    def plan(self, step_s: Mapping[str, float], left_s: float) -> None:
        """Decide it for cells whose steps take so long (s), with so much time left in a budget."""
        length_s = BLOCK_S
        room_s = left_s / (FEW_ROUNDS * max(1, len(step_s)) * UNTIMED) if self.budgeted else DEVICE_BLOCK_S
        if self.budgeted:
            self._recurring_s = min(RECURRING_S, room_s)
            length_s = left_s / (ROUNDS * max(1, len(step_s)) * UNTIMED)
            self._fitting = int((left_s / (FEW_ROUNDS * max(sum(step_s.values()), 1e-6)) - BLOCK_WARMUP) / UNTIMED)
        length_s = min(BLOCK_S, max(MIN_BLOCK_S, length_s))
        if self.devices:
            length_s = max(length_s, min(DEVICE_BLOCK_S, room_s))
        self._length_s = length_s
        self.size(step_s)

    def size(self, step_s: Mapping[str, float]) -> None:
        """Decide it anew: blocks are to last as long as planned, now that the steps of cells take so long (s)."""
        longest_s = max(step_s.values(), default=BLOCK_S)
        self._planned = {
            cell.id: self.whole(cell, self._sized(step_s[cell.id], longest_s))
            for cell in self.cells
            if cell.id in step_s
        }
        self._steps = dict(self._planned)

    def of(self, cell: PlannedCell, left: int | None = None) -> int:
        """Timed steps in the next block of a cell; at most the `left` ones where some are left of a number."""
        usual = self.whole(cell, self._steps.get(cell.id) or self.settings.block_steps or MIN_STEPS)
        count = usual + self._longer * self._more(cell)[1]
        if left is None or left <= 0 or self.settings.block_steps is not None:
            return count
        most = self.whole(cell, max(left, MIN_STEPS))
        if 0 < most - count < MIN_STEPS:  # one step by itself would be left
            count = most if count == usual else usual
        return min(count, most)

    def lead(self, cell: PlannedCell) -> int:
        """Steps at the start of its next block that are not timed: a burst of its loaders, or one.

        None of a command: all its time in turn counts.
        """
        if cell.settings.program is not None:
            return 0
        return self.burst(cell) + self._longer * self._more(cell)[0]

    def saw_loaders(self, cell: PlannedCell, told: Sequence[Reply]) -> None:
        """What ranks tell of loaders of the user's own; the largest counts on all of them, for they step together."""
        self._loaders[cell.id] = max((self._loaders.get(cell.id, 0), *(each.loader_processes for each in told)))

    def saw_recurring(self, cell: PlannedCell, periods: Collection[int], step_s: float) -> None:
        """Take the periods (in steps) of what a command does beside training; in a budget blocks are then whole ones.

        `step_s`: mean step of the cell.
        """
        if not periods or not self.budgeted or self.settings.block_steps is not None:
            return  # a new launch has not shown it yet, or all cells are to have as many steps in a block
        whole = 1
        for every in sorted(periods):
            if lcm(whole, every) * step_s <= self._recurring_s:
                whole = lcm(whole, every)
        self._recurring[cell.id] = whole

    def loaders(self, cell: PlannedCell) -> int:
        """Processes W of the largest loader of its ranks; one of the user's own shows only when it runs."""
        return max(loader_processes(self.settings), self._loaders.get(cell.id, 0))

    def burst(self, cell: PlannedCell) -> int:
        """How many batches these make side by side: they come W at a time, then none for a while.

        As many steps at the start of each block train and are not timed: processes that stand still get what they had
        asked the system for all the same, a sample each.
        """
        return max(BLOCK_WARMUP, self.loaders(cell))

    def usual_step_s(self, cell: PlannedCell, warmup_s: NDArray[np.float64]) -> float:
        """How long a step takes (s) by the steps of warming up: as long as the fastest, which is warm.

        Where steps are unlike, as with a loader in bursts, their mean counts; with a period, that of the last one.
        """
        if (whole := period(cell)) > 1:
            return float(np.mean(warmup_s[-whole:]))
        return float(min(warmup_s) if self.burst(cell) == 1 else np.mean(warmup_s))

    def whole(self, cell: PlannedCell, steps: int) -> int:
        """Steps rounded up to whole bursts of the loader: a block with a part of one may miss the wait after it.

        In a cell that communicates once in a period they are whole periods as well, wherever the first one begins; so
        are those of what a command was seen to do.
        """
        whole = lcm(self.burst(cell), period(cell), self._recurring.get(cell.id, 1))
        return ceil(steps / whole) * whole

    @property
    def _longer(self) -> bool:
        """Whether the blocks of the next round are the longer ones; the first round tells what a round takes."""
        return self.round > 0 and random.Random(f"length {self.settings.seed} {self.round}").random() < LONGER

    def _more(self, cell: PlannedCell) -> tuple[int, int]:
        """Untimed and timed steps that a longer block has more: a burst, or one that leads into whole periods."""
        if self.settings.block_steps is not None or self._recurring.get(cell.id, 1) > 1:
            return 0, 0
        return (1, 0) if period(cell) > 1 else (0, self.whole(cell, 1))

    def timed_s(self, step_s: Mapping[str, float], names: Collection[str]) -> float:
        """How long the timed steps of the next round of these cells take (s), and what a longer one has before them."""
        return sum(
            step_s[cell.id] * (self._longer * self._more(cell)[0] + self.of(cell)) for cell in self._known(names)
        )

    def fill(self, step_s: Mapping[str, float], names: Collection[str], *, beside_s: float, left_s: float) -> None:
        """Size the blocks of these cells so that whole rounds, each `beside_s` longer, use up what is left."""
        known = self._known(names)
        timed_s = sum(step_s[cell.id] * self._planned[cell.id] for cell in known)
        if self.settings.block_steps is not None or not timed_s:
            return
        more_s = sum(step_s[cell.id] * sum(self._more(cell)) for cell in known)
        rounds = max(1, int(left_s / (beside_s + timed_s + LONGER * more_s)))
        more_s *= LONGER if rounds > 1 else self._longer
        stretch = min(MAX_STRETCH, (left_s / rounds - beside_s - more_s) / timed_s)
        for cell in known:
            least, planned = self.whole(cell, 1), self._planned[cell.id]
            size = max(least, max(MIN_STEPS, int(planned * stretch)) // least * least)
            self._steps[cell.id] = min(size, max(planned, self.share_of_cap // least * least))

    def _known(self, names: Collection[str]) -> list[PlannedCell]:
        return [cell for cell in self.cells if cell.id in names and cell.id in self._planned]

    @property
    def share_of_cap(self) -> int:
        """Steps in a block, at most, so that a cap on steps makes some blocks."""
        if self.settings.steps is None:
            return self._most_steps
        return max(MIN_STEPS, ceil(self.settings.steps / FIXED_BLOCKS))

    @property
    def _most_steps(self) -> int:
        return MAX_DEVICE_STEPS if self.devices else MAX_STEPS

    def _sized(self, step_s: float, longest_s: float) -> int:
        """Steps in a block of about the planned length, or as many as fit into a budget for all cells alike."""
        if self.settings.block_steps is not None:
            return self.settings.block_steps
        if self.budgeted:
            least = min(GOOD_STEPS, max(MIN_STEPS, self._fitting))
            return min(self._most_steps, max(least, round(self._length_s / max(step_s, 1e-6))), self.share_of_cap)
        # A fixed number of steps is the same for all cells, and so is the number of their blocks.
        return max(MIN_STEPS, min(round(self._length_s / max(longest_s, 1e-6)), self.share_of_cap))


def reference_every(cell: PlannedCell, step_s: float | None, loaders: int) -> int:
    """After how many steps of a cell comes the computation that tells of disturbances; 0 for never.

    Not in whole epochs, and what only waits is not disturbed. Loader processes, the user's own code, which may have
    threads, and more workers than cores may disturb it by what the training itself does; and a loader would work ahead
    in it. `step_s`: None where it is not known.
    """
    own = loaders > 0 or ":" in cell.settings.strategy or cell.placement.oversubscribed
    own |= any((cell.settings.program, cell.settings.workload, cell.settings.replay))
    if cell.placement.device != "cpu" or own:
        return 0
    return max(1, round(REFERENCE_EVERY_S / (step_s or REFERENCE_EVERY_S)))


def steps_left(settings: TrainingSettings, blocks: Blocks) -> int | None:
    """Timed steps of a cell that are still wanted; None without a number of steps."""
    return None if settings.steps is None else settings.steps - sum(map(len, blocks.values()))
