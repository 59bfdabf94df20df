"""How the time of a study is used: steps in a block, launches of a cell, pairs, and when it is enough.

Nothing here measures or starts anything; the clock is handed in, because ranks that others have started must all see
the same one (study/inside.py).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil
from typing import Any, Literal

import numpy as np

from worldsize.analysis.levels import Level, levels, ratio_estimate, widening
from worldsize.analysis.racing import Race, mean_and_half, relative_half
from worldsize.analysis.statistics import Blocks
from worldsize.config import TrainingSettings
from worldsize.results.records import Estimate
from worldsize.study.blocks import BLOCK_S, MIN_STEPS, BlockSizes, first_steps, warmup_steps
from worldsize.study.plan import PlannedCell, baseline_of
from worldsize.study.precision import Precision

MIN_BLOCKS = 5  # a bootstrap over fewer knows too little of the spread
LAUNCHES = 3
"""How often each cell is launched in a budget that has room for it: where memory lies and on which core a thread
begins is drawn once a launch, and stays for all its steps."""
LAUNCH_BLOCKS = 2
"""Blocks of the first launches; after LAUNCHES of them a cell is launched again whenever its blocks have doubled (8,
16, …): in a simulated study of two cells and 30 blocks, a last launch of 26 made intervals three times as wide."""
LAUNCH_SHARE = 0.5
"""Share of the time left that launching again may take. Blocks of one launch say nothing of how launches differ: where
those of one cell differed by 2 %, intervals of one launch held 57 to 80 % of the time, of two 80 to 97 %, and these
were 1.2 to 1.9 times as wide (simulated, 60 studies of each kind)."""
PAIRS = 4
"""Blocks that are paired with steps without synchronisation, at least, before their interval is looked at."""
PAIR_AIM = 0.02
"""Half width of the paired difference, as a share of the step, from which on no more pairs are needed."""
PAIR_EVERY = 3
"""At most one block in so many is paired after that: pairs are not to be the larger part of a study."""
FIRST_PAIRS_EVERY = 3
"""One block in so many is paired until then, in a budget."""
OBSERVED_EVERY = 2
"""In a budget, one block in so many is followed by steps without instruments, of each cell in turn."""
STILL_WARMING = 0.9
"""A step that takes less than this share of the quickest before it is still one of warming up: threads of one process
were seen to take twenty steps until their memory had settled."""
MAX_WARMUP = 12
TABLE_INTERVAL = 0.10
"""Half width that is enough for a ratio of a cell that is not a contender: to tell it from others in a table."""


class Pace:
    """The plan of one session of the protocol *steps*: with a budget of time, or for a fixed number of steps."""

    def __init__(
        self,
        settings: TrainingSettings,
        cells: Sequence[PlannedCell],
        *,
        now_s: Callable[[], float],
        until_s: float | None = None,
        launches: bool = True,
        plain: bool = False,
    ) -> None:
        """`until_s` is when the last step must have ended, on the clock `now_s`; None is a fixed number of steps.

        `launches`: whether cells can be launched again. `plain`: without rolled-back steps, which copy the weights,
        where the memory of training itself is measured.
        """
        self.plain = plain
        self.settings = settings
        self.cells = list(cells)
        self.now_s = now_s
        self.until_s = until_s
        several = [cell for cell in cells if cell.settings.world_size > 1] or self.cells
        self.race = Race({cell.id: cell.settings.global_batch for cell in several})
        self.alone = Race({cell.id: cell.settings.global_batch for cell in cells if cell.alone})
        """One worker with all cores, at the batch at which it is fastest: what several workers must beat."""
        self._may_launch = launches and until_s is not None and settings.evaluate != "end"
        self.round_ended_s = self._round_s = self._launching_s = self._timed_s = 0.0
        self._beside_s: list[float] = []
        """What a turn of each of the last rounds took beside its timed steps."""
        self._launch_at_s = self._launched_in_round_s = 0.0
        self._step_s: dict[str, float] = {}
        # A command is stopped and goes on as a whole: some of its caches are cold then, as the clocks of a GPU are low.
        longer = any(cell.placement.device != "cpu" or cell.settings.program is not None for cell in cells)
        self.sizes = BlockSizes(settings, self.cells, budgeted=until_s is not None, devices=longer)
        self._pairs: dict[str, dict[int, float]] = {}
        self._relaunch_at: frozenset[int] = frozenset()
        self._known: tuple[dict[str, Any], dict[str, Level]] = {}, {}
        self.rounds = 0
        self._all_launches_s = 0.0
        self._failed: set[str] = set()
        self.precision = Precision(settings.target_interval)

    @property
    def budgeted(self) -> bool:
        """Whether time, and not a number of steps, ends the study."""
        return self.until_s is not None

    @property
    def left_s(self) -> float | None:
        """Time for launches and steps, in a budget."""
        return None if self.until_s is None else max(0.0, self.until_s - self.now_s())

    @property
    def over_s(self) -> float:
        """By how much a budget is exceeded: each cell is still timed for one block, and nothing else is measured."""
        return 0.0 if self.until_s is None else max(0.0, self.now_s() - self.until_s)

    def most_steps(self, cell: PlannedCell, samples: Blocks) -> int:
        """Steps that are ahead of a cell at most, for a fixed number, with those that are not timed."""
        assert self.settings.steps is not None, "a study has one of the two protocols"
        left = max(0, self.settings.steps - sum(len(times) for times in samples.values()))
        count = self.sizes.whole(cell, self.settings.block_steps or self.sizes.share_of_cap)
        return self.warmup_steps(cell) + ceil(left / count) * (self.sizes.burst(cell) + count)

    def launching(self) -> None:
        """The workers of a cell are about to be launched, or, having been, to be warmed up."""
        self._launch_at_s = self.now_s()

    def launched(self) -> None:
        """They are launched, or warm: what that took, another launch takes again."""
        took_s = self.now_s() - self._launch_at_s
        self._launching_s += took_s
        self._launched_in_round_s += took_s

    def saw_step(self, cell: PlannedCell, step_s: float) -> None:
        """A step of a cell took so long while it was warmed up."""
        self._step_s.setdefault(cell.id, step_s)

    def step_s(self, cell: PlannedCell) -> float | None:
        """How long a step of a cell takes (s), as far as that is known."""
        return self._step_s.get(cell.id)

    def saw_block(self, cell: PlannedCell, times: Sequence[float], recurring: Collection[int] = ()) -> None:
        """Take the lengths of the steps of its last block (s), and the periods of what it does beside training."""
        self._step_s[cell.id] = float(np.mean(times))
        self._timed_s += float(np.sum(times))
        self.sizes.saw_recurring(cell, recurring, self._step_s[cell.id])

    def prepared(self) -> None:
        """All cells are warm: decide how long blocks are, and when cells are launched again."""
        if self.settings.epochs is not None:
            return
        now_s = self.round_ended_s = self.now_s()
        self._all_launches_s, self._launched_in_round_s = self._launching_s, 0.0
        self._relaunch_at = self._when_to_launch(now_s)
        left_s = 0.0
        if self.until_s is not None:
            left_s = max(0.0, self.until_s - now_s - len(self._relaunch_at) * self._all_launches_s)
        self._step_s |= {cell.id: BLOCK_S for cell in self.cells if cell.id not in self._step_s}
        self.sizes.plan({cell.id: self._step_s[cell.id] for cell in self.cells}, left_s)

    def _when_to_launch(self, now_s: float) -> frozenset[int]:
        """Before which blocks cells are launched again: early, so that those that drop out have had their launches."""
        if self.until_s is None or not self._may_launch:
            return frozenset()
        room_s = LAUNCH_SHARE * max(0.0, self.until_s - now_s)
        again = min(LAUNCHES - 1, int(room_s / max(self._launching_s, 1e-6)))
        return frozenset(LAUNCH_BLOCKS * number for number in range(1, again + 1))

    @property
    def _doubled(self) -> bool:
        """Whether the number of blocks has doubled since the first LAUNCHES, or since the last launch after them."""
        return self._may_launch and self.rounds >= LAUNCH_BLOCKS * LAUNCHES and self.rounds & (self.rounds - 1) == 0

    @property
    def launches(self) -> int:
        """How often each cell is to be launched in this session."""
        return 1 + len(self._relaunch_at)

    def paired_steps(self, cell: PlannedCell) -> int:
        """Steps that are measured beside a block: fewer in a budget, for they take the time of timed ones."""
        count = self.sizes.of(cell)
        return self.sizes.whole(cell, max(MIN_STEPS, count // 2)) if self.budgeted else count

    def still_warming(self, cell: PlannedCell, times: Sequence[float]) -> bool:
        """Whether a cell needs another step to warm up, by the times of those so far; only in a budget.

        A cell that is launched again is warm as soon as a step is about as quick as those of its last block.
        """
        known_s = self._step_s.get(cell.id, 0.0)
        if not self.budgeted or len(times) >= MAX_WARMUP or STILL_WARMING * times[-1] <= known_s:
            return False
        return not self.over_s and (len(times) < 2 or times[-1] < STILL_WARMING * min(times[:-1]))

    def warmup_steps(self, cell: PlannedCell) -> int:
        """Steps with which a cell begins to warm up: the fewest if it is launched again, or a budget is exceeded.

        DDP arranges its buckets anew in its second step, so that of several processes must not be a timed one.
        """
        few = (self.budgeted and cell.id in self._step_s) or self.over_s > 0
        fewest = 1 if cell.placement.processes == 1 else 2
        few &= not first_steps(cell)
        return min(fewest, self.settings.warmup_steps) if few else warmup_steps(cell)

    def runs_bare(self, cell: PlannedCell, block: int) -> bool:
        """Whether a block of a cell is followed by steps without instruments."""
        every = OBSERVED_EVERY if self.budgeted else 1
        return not self.over_s and block % every == 0 and self.cells[block // every % len(self.cells)] is cell

    def launches_again(self, block: int) -> bool:
        """Whether a cell begins this block with new processes."""
        return block in self._relaunch_at

    def add(self, cell: PlannedCell) -> None:
        """A cell was created after a failure."""
        self.cells.append(cell)

    def drop(self, cell: PlannedCell) -> None:
        """A cell has failed for good: it cannot be the fastest, and none is compared with it while there is another."""
        self._failed.add(cell.id)
        self.race.out.add(cell.id)
        self.alone.out.add(cell.id)

    def set_batch(self, cell: PlannedCell, samples: int) -> None:
        """Take the samples of a step of each of its workers, where only running it shows that."""
        for race in (self.race, self.alone):
            race.set_batch(cell.id, samples * cell.settings.world_size)

    def look(self, samples: Mapping[str, Any]) -> None:
        """Drop cells that are significantly slower than another one of their kind."""
        self.race.look(samples)
        self.alone.look(samples)

    def needed(self, open_ones: Collection[PlannedCell]) -> set[str]:
        """The cells that go on while others are compared with them, beyond their own precision."""
        found = {base.id for cell in open_ones if (base := self.baseline_of(cell))}
        contenders = any(cell.id in self.race.left and not cell.alone for cell in open_ones)
        return found | (set(self.alone.left) if contenders else set())

    def baseline_of(self, cell: PlannedCell) -> PlannedCell | None:
        """What a cell is compared with, of those that have not failed if there is one."""
        return baseline_of(cell, self.cells, self._failed)

    def wants_pair(self, cell: PlannedCell, block: int) -> bool:
        """Whether a block of a cell is followed by steps without synchronisation."""
        pairs = self._pairs.get(cell.id, {})
        if len(pairs) < PAIRS:
            return not self.over_s and (not self.budgeted or block % FIRST_PAIRS_EVERY == 0)
        if self.over_s or len(pairs) * PAIR_EVERY > block:
            return False
        return mean_and_half(np.array(list(pairs.values())), 0.025)[1] > PAIR_AIM

    def paired(self, cell: PlannedCell, block: int, having_s: float, without_s: float) -> None:
        """A block was paired: means of its steps with synchronisation and without, in seconds."""
        self._pairs.setdefault(cell.id, {})[block] = (having_s - without_s) / having_s

    def round_ended(self, before: int, left: Collection[str]) -> None:
        """All open cells have had a block: `before` cells; those that are `left` are still open."""
        now_s = self.now_s()
        beside_s = now_s - self.round_ended_s - self._launched_in_round_s - self._timed_s
        # The longest of the last ones: some have more rolled-back steps than others.
        self._beside_s = [*self._beside_s, beside_s / max(1, before)][-PAIR_EVERY:]
        if self.rounds in self._relaunch_at:
            self._all_launches_s = self._launched_in_round_s * len(self.cells) / max(1, before)
        self.round_ended_s, self._launched_in_round_s, self._timed_s = now_s, 0.0, 0.0
        self.rounds = self.sizes.round = self.rounds + 1
        each_s = self._all_launches_s * len(left) / max(1, len(self.cells))
        if self._doubled and self.until_s is not None and each_s <= LAUNCH_SHARE * (self.until_s - now_s):
            self._relaunch_at |= {self.rounds}
        ahead = [each_s for number in self._relaunch_at if number >= self.rounds]
        beside_s = max(self._beside_s) * len(left)
        if self.until_s is not None:
            self.sizes.size(self._step_s)
            self.sizes.fill(self._step_s, left, beside_s=beside_s, left_s=self.until_s - now_s - sum(ahead))
        self._round_s = beside_s + self.sizes.timed_s(self._step_s, left)
        self._round_s += each_s if self.rounds in self._relaunch_at else 0.0

    @property
    def time_is_up(self) -> bool:
        """Whether a further round, and its launches, would end after the budget."""
        return self.until_s is not None and self.round_ended_s + self._round_s > self.until_s

    def enough(self, cell: PlannedCell, samples: Mapping[str, Any]) -> Literal["precision", "settled"] | None:
        """What ends a cell in a budget, by the samples of all: `precision`, `settled`, or None if it goes on."""
        blocks: Blocks = samples[cell.id]
        if len(blocks) < max(MIN_BLOCKS, LAUNCH_BLOCKS * (min(LAUNCHES, self.launches) - 1) + 1):
            return None
        width = self.width(cell, samples)
        if cell.id in self.race.left:
            known = self.precision.reached(cell.id, width, len(blocks))
            return "precision" if known and self.race.tied(samples, self.settings.target_interval) else None
        return "settled" if width <= max(TABLE_INTERVAL, self.settings.target_interval) else None

    def may_go_on(self, ending: str) -> bool:
        """Whether a baseline that has come to this end goes on while another cell is compared with it."""
        return ending in ("precision", "settled") or (ending == "cap" and self.budgeted)

    def width(self, cell: PlannedCell, samples: Mapping[str, Any]) -> float:
        """Half of the interval of what a cell is timed for, as a share: its ratio to its baseline, or its own step."""
        baseline = self.baseline_of(cell)
        if baseline is None:
            means = [np.mean(values) for values in samples[cell.id].values()]
            return mean_and_half(np.log(means), 0.025)[1]
        if not samples[baseline.id].keys() & samples[cell.id].keys():
            return float("inf")
        found = self._levels(samples)
        wider = widening(found[baseline.id], found[cell.id])
        return relative_half(samples[baseline.id], samples[cell.id]) * wider

    def _levels(self, samples: Mapping[str, Blocks]) -> dict[str, Level]:
        """What all cells say of how far blocks and launches depend on each other: found anew after each block."""
        seen = {name: tuple((key, len(steps)) for key, steps in blocks.items()) for name, blocks in samples.items()}
        if seen != self._known[0]:
            session = max((key[0] for blocks in samples.values() for key in blocks), default=0)
            launches = {
                name: {key: sum(at <= key[1] for at in self._relaunch_at) for key in blocks if key[0] == session}
                for name, blocks in samples.items()
            }
            self._known = seen, levels(samples, launches, most_resamples=0)
        return self._known[1]

    def estimate(self, cell: PlannedCell, samples: Mapping[str, Any]) -> Estimate | None:
        """What a cell is timed for, as far as it may end by it; None where its baseline has no samples."""
        baseline = self.baseline_of(cell)
        blocks: Blocks = samples[cell.id]
        if baseline is None:
            return levels({cell.id: blocks})[cell.id].step_s
        others = samples[baseline.id]
        return ratio_estimate(others, blocks).estimate if others else None
