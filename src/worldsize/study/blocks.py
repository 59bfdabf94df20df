"""The steps of a block: how many are not timed, how many are, and which of these count (method.md §8).

In a budget it goes by time, in a fixed protocol by number. Blocks are planned once all cells are warm. What rounds of
them would leave of a budget goes to the steps of the last rounds: on two cores a default study of six cells ended 9 s
before its budget, a twelfth of it, because one more whole round did not fit. Steps during which the machine was
disturbed do not count. A loader whose processes make batches side by side is given whole bursts.
"""

from collections.abc import Collection, Mapping, Sequence
from math import ceil, lcm

import numpy as np

from worldsize.analysis.statistics import Blocks
from worldsize.config import TrainingSettings
from worldsize.ranks.turns import Reply
from worldsize.results.undisturbed import Beside, Times, undisturbed, usual_s
from worldsize.study.plan import PlannedCell

BLOCK_WARMUP = 1
"""Steps at the start of each block that are not timed: the first one after a pause was seen to be 6 % slower."""
MIN_STEPS = 2
"""Steps in a block, at least: the median of one is that one."""
GOOD_STEPS = 4
"""Steps in a block where a budget has room for FEW_ROUNDS of them: one more in each block is not timed."""
FEW_ROUNDS = 5
MAX_STEPS = 2_000
BLOCK_S = 0.5
"""How long a block is at most, where its steps are short: what a machine does to cells that are timed within a few
seconds of each other still cancels, and the time to hand over a turn no longer counts."""
MIN_BLOCK_S = 0.05
DEVICE_BLOCK_S = 1.0
"""The same on a GPU, whose clocks need a good part of a second to rise after a pause."""
MAX_DEVICE_STEPS = 20_000
ROUNDS = 20
"""Turns of each cell that a budget should be enough for."""
FIXED_BLOCKS = 10
"""Blocks that a fixed number of steps makes, at least, where blocks are sized by time."""
UNTIMED = 1.5
"""Length of a turn ÷ that of its timed steps, as a first guess."""
MAX_STRETCH = 2.0
"""Steps of a block ÷ what was planned, at most, where that uses a budget up."""
MOST_PROFILED = 16
"""Steps in a trace at most: a trace of more is slow to open."""
REFERENCE_EVERY_S = 0.25
"""Steps that take about so long are followed by the short computation, which takes 5 ms: 2 % of that."""


def loader_processes(settings: TrainingSettings) -> int:
    """The processes W of a rank's loader; 0 where the batches are made in the rank's own process."""
    of_user = ":" in settings.data and settings.data.partition(":")[0] != "synthetic"
    return settings.loader_workers if of_user or settings.loader == "per-sample" else 0


def burst(settings: TrainingSettings) -> int:
    """How many batches the W processes of a loader make side by side: they come W at a time, then none for a while."""
    return max(1, loader_processes(settings))


def period(cell: PlannedCell | None) -> int:
    """Every how many steps something travels that steps in between go without: a setting that the traits name."""
    name = cell.traits.period if cell is not None and cell.world_size > 1 else ""
    return int(getattr(cell.settings, name, 1)) if cell is not None and name else 1


def first_steps(cell: PlannedCell) -> int:
    """First steps that are synchronised in another way than those after them; none as a rule."""
    name = cell.traits.first_steps if cell.world_size > 1 else ""
    return int(getattr(cell.settings, name, 0)) if name else 0


def usual_step_s(settings: TrainingSettings, cell: PlannedCell, warmup_s: Times) -> float:
    """How long a step takes (s) by those of warming up, of which the fastest is warm.

    Where steps are unlike, as of a loader in bursts, only the mean tells: of those in the last period.
    """
    whole = period(cell)
    if whole > 1:
        return float(np.mean(warmup_s[-whole:]))
    return float(min(warmup_s) if burst(settings) == 1 else np.mean(warmup_s))


def profiled_steps(cell: PlannedCell, least: int) -> int:
    """Steps of a trace: a few, or all of a short period, of which only one communicates."""
    return max(least, min(period(cell), MOST_PROFILED))


def block_warmup(settings: TrainingSettings) -> int:
    """Steps at the start of each block that train and are not timed: one, or a burst of the loader.

    Its processes stand still while the cell does, but what they have asked the system for, they get meanwhile: a sample
    each, of the batch that each was about to make.
    """
    return max(BLOCK_WARMUP, burst(settings))


def warmup_steps(settings: TrainingSettings, cell: PlannedCell) -> int:
    """Steps before the first block: those that were asked for, and the burst that a loader begins with.

    First steps that are not like the others come before them, and so does a period: whatever happens once in it has
    then happened once before it is timed.
    """
    first = first_steps(cell) + (period(cell) if period(cell) > 1 else 0)
    return first + max(settings.warmup_steps, burst(settings)) if first or settings.warmup_steps else 0


def whole_bursts(settings: TrainingSettings, steps: int, cell: PlannedCell | None = None) -> int:
    """So many steps, or as many more as make whole bursts of the loader: else a block may miss the wait between two.

    Of a cell that communicates once in a period, they are whole periods as well, wherever in one they begin.
    """
    whole = lcm(burst(settings), period(cell))
    return ceil(steps / whole) * whole


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

    def plan(self, step_s: Mapping[str, float], left_s: float) -> None:
        """Decide it for cells whose steps take so long (s), with so much time left in a budget."""
        fitting, length_s = 0, BLOCK_S
        if self.budgeted:
            length_s = left_s / (ROUNDS * max(1, len(step_s)) * UNTIMED)
            fitting = int((left_s / (FEW_ROUNDS * max(sum(step_s.values()), 1e-6)) - BLOCK_WARMUP) / UNTIMED)
        length_s = min(BLOCK_S, max(MIN_BLOCK_S, length_s))
        if self.devices:
            room_s = left_s / (FEW_ROUNDS * max(1, len(step_s)) * UNTIMED) if self.budgeted else DEVICE_BLOCK_S
            length_s = max(length_s, min(DEVICE_BLOCK_S, room_s))
        longest_s = max(step_s.values(), default=BLOCK_S)
        sized = {name: self._sized(each_s, length_s, longest_s, fitting) for name, each_s in step_s.items()}
        self._planned = {name: self._whole(name, steps) for name, steps in sized.items()}
        self._steps = dict(self._planned)

    def of(self, name: str) -> int:
        """Timed steps in the next block of a cell."""
        return self._steps.get(name) or self._whole(name, self.settings.block_steps or MIN_STEPS)

    def _whole(self, name: str, steps: int) -> int:
        return whole_bursts(self.settings, steps, next((cell for cell in self.cells if cell.id == name), None))

    def added_s(self, step_s: Mapping[str, float], names: Collection[str]) -> float:
        """How much longer (s) a round of these cells is by the steps that were added to what was planned."""
        return sum(step_s[name] * (self._steps[name] - self._planned[name]) for name in names if name in self._planned)

    def fill(self, step_s: Mapping[str, float], names: Collection[str], *, round_s: float, left_s: float) -> None:
        """Size the blocks of these cells so that whole rounds, each of `round_s` as planned, use up what is left."""
        timed_s = sum(step_s[name] * self._planned[name] for name in names if name in self._planned)
        if self.settings.block_steps is not None or not timed_s or not round_s:
            return
        rounds = max(1, int(left_s / round_s))
        stretch = min(MAX_STRETCH, 1 + (left_s / rounds - round_s) / timed_s)
        for name in names:
            if name in self._planned:
                least = self._whole(name, 1)
                size = max(least, max(MIN_STEPS, int(self._planned[name] * stretch)) // least * least)
                self._steps[name] = min(size, max(self._planned[name], self.share_of_cap // least * least))

    @property
    def share_of_cap(self) -> int:
        """Steps in a block, at most, so that a cap on steps makes some blocks."""
        if self.settings.steps is None:
            return self._most_steps
        return max(MIN_STEPS, ceil(self.settings.steps / FIXED_BLOCKS))

    @property
    def _most_steps(self) -> int:
        return MAX_DEVICE_STEPS if self.devices else MAX_STEPS

    def _sized(self, step_s: float, length_s: float, longest_s: float, fitting: int) -> int:
        """Steps in a block of about this length, of which so many fit into a budget for all cells alike."""
        if self.settings.block_steps is not None:
            return self.settings.block_steps
        if self.budgeted:
            least = min(GOOD_STEPS, max(MIN_STEPS, fitting))
            return min(self._most_steps, max(least, round(length_s / max(step_s, 1e-6))), self.share_of_cap)
        # A fixed number of steps is the same for all cells, and so is the number of their blocks.
        return max(MIN_STEPS, min(round(length_s / max(longest_s, 1e-6)), self.share_of_cap))


def reference_every(cell: PlannedCell, settings: TrainingSettings, step_s: float | None) -> int:
    """After how many steps of a cell comes the computation that tells of disturbances; 0 for never.

    Not in whole epochs, and what only waits is not disturbed. Loader processes, a strategy or a script of the user's,
    and more workers than cores may disturb the computation by what the training itself does. `step_s`: None where it
    is not known.
    """
    own = loader_processes(settings) > 0 or ":" in cell.settings.strategy or cell.settings.program is not None
    own |= cell.placement.oversubscribed or cell.settings.replay is not None
    if cell.placement.device != "cpu" or own:
        return 0
    every, whole = max(1, round(REFERENCE_EVERY_S / (step_s or REFERENCE_EVERY_S))), period(cell)
    return ceil(every / whole) * whole  # so that whole periods count, or do not


def timed_steps(blocks: Blocks) -> int:
    """Timed steps of a cell; a block that was broken off, at the end of a session, counts as long as the one before.

    Blocks of one session need not be alike: those that fill a budget are longer.
    """
    lengths: dict[int, list[int]] = {}
    for session, block in sorted(blocks):
        lengths.setdefault(session, []).append(len(blocks[session, block]))
    return sum(sum(each[:-1]) + max(each[-2:]) for each in lengths.values())


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
