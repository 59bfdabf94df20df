"""Who takes the next turn, and when it is enough.

Machines drift, so cells that will be compared are timed in turns: a block of steps of A, of B, of C, then A again
(method.md §8). A cell is done when the 95 % interval of its ratio to its baseline is narrow enough, at the cap, or when
the time is up (pace.py). Nothing here measures, sleeps or starts a process: the executor does.
"""

import time
from collections.abc import Sequence
from math import isfinite
from typing import Any, Literal

import numpy as np

from worldsize.analysis.rehearsal import refusal
from worldsize.analysis.statistics import half_width
from worldsize.config import TrainingSettings
from worldsize.ranks.turns import Reply, Turn
from worldsize.study import blocks
from worldsize.study.executor import CellFailed, Executor, WorkersBehind
from worldsize.study.ledger import Ledger
from worldsize.study.listener import Listener
from worldsize.study.pace import MIN_BLOCKS, Pace
from worldsize.study.plan import PlannedCell, batches_to_read, in_turn
from worldsize.study.restarts import Restarts, pieces

Ending = Literal["precision", "settled", "cap", "budget", "epochs"]


class Schedule:
    """Runs the turns of all cells to their end. What ends a cell is written by the ledger at that moment."""

    def __init__(
        self,
        cells: Sequence[PlannedCell],
        settings: TrainingSettings,
        executor: Executor,
        ledger: Ledger,
        listener: Listener,
        *,
        restarts: Restarts | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.restarts = restarts or Restarts(0, ledger)
        self.pace = pace or Pace(settings, cells, now_s=time.monotonic)
        self.cells = list(cells)
        self.settings, self.executor, self.ledger, self.listener = settings, executor, ledger, listener
        self.samples: dict[str, dict[tuple[int, int], Any]] = {cell.id: ledger.samples(cell) for cell in cells}
        self.open = {cell.id for cell in cells}
        self.warm: set[str] = set()
        self.verified: set[str] = set()
        self.began: dict[str, int] = {}
        self.trained: dict[str, int] = {}
        """Steps of training that a cell had behind it when its workers began, by its checkpoint, and that it has."""
        self.epoch_steps: dict[str, int] = {}
        """Steps of an epoch of a cell; 0 where that is unknown, and no epochs are trained."""

    @property
    def steps_protocol(self) -> bool:
        """Whether blocks are of some steps each; else they are epochs."""
        return self.settings.epochs is None

    def run(self) -> None:
        """Take turns until every cell has ended."""
        for place, cell in enumerate(self.cells):
            if place == 1:  # what a worker needs of the memory is known of the first
                self._launch(self.cells[1:])
            self._guard(cell, self._prepare)
        self.pace.prepared()
        block = 0
        while self.open:
            before = len(self.open)
            if self.steps_protocol and self.pace.launches_again(block):
                self._launch_again()
            for cell in in_turn(self.cells, self.settings.seed, self.ledger.session, block, drawn=self.steps_protocol):
                if cell.id in self.open:
                    self._guard(cell, self._turn, block)
            self.pace.round_ended(before, self.open)
            self._close_the_finished()
            block += 1

    def _launch(self, cells: Sequence[PlannedCell]) -> None:
        waiting = [cell for cell in cells if not self.executor.alive(cell)]
        self.pace.launching()
        self.executor.launch(waiting)
        self.pace.launched()
        for cell in waiting:
            if self.executor.alive(cell):
                self.listener.starting(cell)

    def _launch_again(self) -> None:
        """All cells that are open begin their next block with new processes."""
        cells = [cell for cell in self.cells if cell.id in self.open]
        for cell in cells:
            if self.executor.alive(cell):
                self._guard(cell, self.executor.finish)
            if not self.executor.alive(cell):
                self.warm.discard(cell.id)
        self._launch([cell for cell in cells if cell.id in self.open])

    def _guard(self, cell: PlannedCell, work: Any, *args: Any) -> None:
        """Do something with a cell; if it fails for good, it becomes a row with its reason and the others go on."""
        try:
            work(cell, *args)
        except WorkersBehind as found:  # in its next turn it does again what it has lost
            self.trained[cell.id] = self.began[cell.id] = found.steps
        except CellFailed as failed:
            if self.restarts.again(cell, failed.error):
                self._guard(cell, work, *args)
                return
            self.open.discard(cell.id)
            self.pace.drop(cell)
            self.listener.skipped(self._steps_left(cell))
            self.listener.ended(self.ledger.failed(cell, failed.error))
            self._take_over(self.restarts.fewer(cell, failed.error))

    def _take_over(self, cell: PlannedCell | None) -> None:
        """Add a cell created after a failure."""
        if cell is not None:
            self.pace.add(cell)
            self.cells.append(cell)
            self.samples[cell.id] = {}
            self.open.add(cell.id)

    def _prepare(self, cell: PlannedCell) -> bool:
        """Start a cell and warm it up, unless it is alive and warm; whether it has been warmed up just now."""
        if self.executor.alive(cell) and cell.id in self.warm:
            return False
        if not self.executor.alive(cell):
            self.listener.starting(cell)
        self.pace.launching()
        facts = self.executor.facts(cell)
        self.pace.launched()
        self.ledger.started(cell, facts)
        if facts[0].samples is not None:
            self.pace.set_batch(cell, facts[0].samples)
        self.trained[cell.id] = self.began[cell.id] = facts[0].steps
        self.epoch_steps[cell.id] = facts[0].steps_per_epoch or 0
        self._verify(cell)
        times: list[float] = []
        if self.steps_protocol and self.pace.warmup_steps(cell):
            self.pace.launching()
            times = self._warm_up(cell)
            self.pace.launched()
            self.pace.saw_step(cell, self.pace.sizes.usual_step_s(cell, np.array(times)))
        self.warm.add(cell.id)
        return bool(times)

    def _warm_up(self, cell: PlannedCell) -> list[float]:
        """The times (s) of a cell's untimed first steps."""
        times: list[float] = []
        count = self.pace.warmup_steps(cell)
        while count or self.pace.still_warming(cell, times):
            times.extend(self._take(cell, Turn(op="steps", count=count or 1, timed=False)))
            count = 0
        return times

    def _verify(self, cell: PlannedCell) -> None:
        """The short proof that a cell trains as the reference does; once, and before anything is timed."""
        if cell.id not in self.verified and not self.pace.plain:
            replies = self.executor.take(cell, Turn(op="verify", count=batches_to_read(cell, self.cells)), lambda: None)
            self.ledger.verified(cell, [reply.check for reply in replies if reply.check])
            self.verified.add(cell.id)

    def _turn(self, cell: PlannedCell, block: int) -> None:
        self._block(cell, block)
        self.listener.rested(self.ledger.record(cell))

    def _block(self, cell: PlannedCell, block: int) -> None:
        if self.steps_protocol:
            self._steps(cell, block, warm=self._prepare(cell))
            return
        self._prepare(cell)
        # Workers that go on from a checkpoint may have done this epoch; some that lost one do it again.
        while (epoch := self.trained[cell.id] // self.epoch_steps[cell.id]) <= block:
            self._epoch(cell, epoch)

    def _steps(self, cell: PlannedCell, block: int, *, warm: bool) -> None:
        """A block of timed steps, and what is measured beside it; `warm`: of a cell that has just been warmed up."""
        left = blocks.steps_left(self.settings, self.samples[cell.id])
        count, lead = self.pace.sizes.of(cell, left), self.pace.sizes.lead(cell)
        every = blocks.reference_every(cell, self.pace.step_s(cell), self.pace.sizes.loaders(cell))
        turn = Turn(op="steps", count=count, warmup=lead, block=block, reference_every=every)
        with self.ledger.watched(cell, block):
            replies = self._replies(cell, turn.model_copy(update={"anew": warm}))
        self.ledger.acted(cell, block, replies)
        times, key = self._slowest(cell, replies), (self.ledger.session, block)
        self.samples[cell.id] = {**self.samples[cell.id], key: times}
        self.pace.saw_block(cell, times, replies[0].recurring)
        if not self.pace.plain:
            self._extra_steps(cell, turn, block)

    def _epoch(self, cell: PlannedCell, epoch: int) -> None:
        """Train to the end of an epoch, evaluate, save: a checkpoint of a whole epoch has its evaluation behind it."""
        counts = epoch > 0 or self.settings.epochs == 1  # the first of several only warms up (method.md §8)
        with self.ledger.watched(cell, epoch):
            trained, steps = self.trained[cell.id], self.epoch_steps[cell.id]
            for number, count in enumerate(pieces(trained, epoch, steps, every=self.settings.checkpoint_steps)):
                if number:
                    self._save(cell)
                first = self.trained[cell.id]
                cold = first > epoch * steps or 0 < first == self.began[cell.id]  # after a checkpoint, or a start
                lead = self.pace.sizes.burst(cell) if cold else 0
                warmup = lead if (timed := counts and lead < count) else 0
                turn = Turn(op="epoch", count=count - warmup, warmup=warmup, block=epoch, timed=timed, first_step=first)
                self._take(cell, turn)
                self.trained[cell.id] += count
        if self.settings.evaluate == "auto":
            self._evaluate(cell)
        if self.settings.checkpoint:
            self._save(cell)

    def _save(self, cell: PlannedCell) -> None:
        """Write a checkpoint, outside of everything that is timed."""
        self.executor.take(cell, Turn(op="checkpoint", first_step=self._first_step(cell)), lambda: None)

    def _first_step(self, cell: PlannedCell) -> int | None:
        """What a turn must find done: an executor that had to start workers again cannot tell where they were."""
        return None if self.steps_protocol else self.trained[cell.id]

    def _evaluate(self, cell: PlannedCell) -> None:
        """Run the test set, outside of everything that is timed."""
        turn = Turn(op="evaluate", first_step=self._first_step(cell))
        if evaluation := self.executor.take(cell, turn, lambda: None)[0].evaluation:
            self.ledger.evaluated(cell, evaluation)

    def _extra_steps(self, cell: PlannedCell, turn: Turn, block: int) -> None:
        """Paired measurements right after the block they belong to; they leave no trace in training.

        Steps without synchronisation give a second estimate of exposed communication (method.md §3), in as many blocks
        as its interval needs. Steps without instruments give their overhead (§2); one cell after the other runs them.
        """
        turn = turn.model_copy(update={"count": self.pace.paired_steps(cell)})
        if cell.placement.processes > 1 and self.pace.wants_pair(cell, block):
            alone = self._rolled_back(cell, turn.model_copy(update={"synchronise": False}))
            times = self.samples[cell.id][self.ledger.session, block]
            self.pace.paired(cell, block, float(np.mean(times)), float(np.mean(alone)))
        if self.pace.runs_bare(cell, block):
            self.ledger.unobserved(cell, block, self._rolled_back(cell, turn.model_copy(update={"observe": False})))

    def _take(self, cell: PlannedCell, turn: Turn) -> Any:
        """One turn of training, followed by the listener; the time of each step."""
        return self._slowest(cell, self._replies(cell, turn))

    def _replies(self, cell: PlannedCell, turn: Turn) -> list[Reply]:
        follow = self.ledger.follow(cell, self.listener)
        replies = self.executor.take(cell, turn, follow.look)
        follow.finish(len(replies[0].step_s) + turn.warmup)
        return replies

    def _rolled_back(self, cell: PlannedCell, turn: Turn) -> Any:
        """One turn that only measures, so its progress is not reported. The time of each step (s)."""
        return self._slowest(cell, self.executor.take(cell, turn, lambda: None))

    def _slowest(self, cell: PlannedCell, replies: list[Reply]) -> Any:
        """The step times of the rank that took longest in all; the report ends each step on its last rank (§8)."""
        self.ledger.used_memory(cell, replies)
        self.pace.sizes.saw_loaders(cell, replies)
        return np.array(max((reply.step_s for reply in replies), key=sum))

    def _close_the_finished(self) -> None:
        if self.pace.budgeted:
            self.pace.look(self.samples)
        endings = {cell.id: self._ending(cell) for cell in self.cells if cell.id in self.open}
        open_ones = [cell for cell in self.cells if not endings.get(cell.id, "ended")]
        needed = self.pace.needed(open_ones)
        for cell in self.cells:
            # A baseline goes on, beyond its own precision, while another cell is compared with it.
            if (ending := endings.get(cell.id)) and not (cell.id in needed and self.pace.may_go_on(ending)):
                self._guard(cell, self._close, ending)

    def _close(self, cell: PlannedCell, ending: Ending) -> None:
        """A cell has all its blocks."""
        if self.settings.evaluate == "end":
            self._evaluate(cell)
        if self.settings.profile:
            self._profile(cell)
        self.executor.finish(cell)
        if refused := refusal(self.ledger.record(cell)):
            raise CellFailed(refused)
        self.open.discard(cell.id)
        self.listener.skipped(self._steps_left(cell))
        self.listener.ended(self.ledger.completed(cell, ending))

    def _profile(self, cell: PlannedCell) -> None:
        """Trace a few more steps; whatever goes wrong, the cell has all it needs."""
        turn = Turn(op="profile", count=blocks.profiled_steps(cell), warmup=blocks.BLOCK_WARMUP)
        try:
            self.ledger.profiled(cell, self.executor.take(cell, turn, lambda: None))
        except CellFailed as failed:
            self.ledger.not_profiled(cell, failed.error.message)

    def _ending(self, cell: PlannedCell) -> Ending | None:
        if self.settings.epochs is not None:
            return "epochs" if self.trained[cell.id] >= self.settings.epochs * self.epoch_steps[cell.id] else None
        left = blocks.steps_left(self.settings, self.samples[cell.id])
        if left is not None and left <= 0:
            return "cap"
        if not self.pace.budgeted:
            return "precision" if self._precise(cell) else None
        width, count = self.pace.width(cell, self.samples), len(self.samples[cell.id])
        self.listener.narrowed(cell, width if isfinite(width) else None, count)
        return self.pace.enough(cell, self.samples) or ("budget" if self.pace.time_is_up else None)

    def _precise(self, cell: PlannedCell) -> bool:
        estimate = self.pace.estimate(cell, self.samples)
        if estimate is None:
            return False  # its baseline failed: only the cap ends it
        width, count = half_width(estimate), len(self.samples[cell.id])
        self.listener.narrowed(cell, width, count)
        # In a single block the samples of an estimate are its steps.
        enough = min(count, estimate.samples) >= MIN_BLOCKS
        return enough and width is not None and self.pace.precision.reached(cell.id, width, count)

    def _steps_left(self, cell: PlannedCell) -> int:
        return max(0, self.ledger.planned_steps(cell) - self.ledger.done_steps(cell))
