"""The batch sweep: how large a local batch fits, and what it is good for (method.md §9).

b grows until memory ends, or until it would exceed the samples that a worker has; then bisection finds the largest
that fits. Each trial is a cell of the study in fresh processes, and one that does not fit is a row with its reason. At
last the sizes among which the knee is are timed again, in turn.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from worldsize.analysis.cells import analyse_cell
from worldsize.analysis.levels import IN_TURN_BLOCK
from worldsize.analysis.sweep import in_turn, rate_of, top_sizes
from worldsize.config import StudySettings
from worldsize.errors import RunError
from worldsize.ranks.turns import Turn
from worldsize.results.folder import load_run, write_study
from worldsize.results.records import ErrorRecord, Findings, WarningRecord
from worldsize.study.blocks import MIN_STEPS
from worldsize.study.executor import CellFailed, Executor
from worldsize.study.ledger import Ledger
from worldsize.study.listener import Listener
from worldsize.study.memory import OUT_OF_MEMORY
from worldsize.study.pace import MIN_BLOCKS, Pace
from worldsize.study.plan import PlannedCell
from worldsize.study.schedule import Schedule


class InTurn(Schedule):
    """Blocks of one cell after the other, numbered from `IN_TURN_BLOCK` on; what fails keeps what it had."""

    def __init__(
        self,
        cells: Sequence[PlannedCell],
        settings: StudySettings,
        executor: Executor,
        ledger: Ledger,
        listener: Listener,
    ) -> None:
        assert settings.steps is not None, "only steps are timed in turn"
        steps = max(settings.steps, MIN_BLOCKS * (settings.block_steps or MIN_STEPS + 1))
        again = settings.model_copy(update={"steps": steps, "evaluate": "never", "profile": False})
        pace = Pace(again, cells, now_s=time.monotonic, plain=True)
        super().__init__(cells, again, executor, ledger, listener, pace=pace)
        self.samples = {cell.id: {} for cell in cells}  # the trials' are not in turn

    def _turn(self, cell: PlannedCell, block: int) -> None:
        super()._turn(cell, IN_TURN_BLOCK + block)
        # Two of the largest do not fit into the memory of a GPU together.
        if cell.placement.device == "cuda":
            self.executor.finish(cell)

    def _guard(self, cell: PlannedCell, work: Any, *args: Any) -> None:
        """A size that fitted, and fails now, has its trial still."""
        try:
            work(cell, *args)
        except CellFailed as failed:
            self.open.discard(cell.id)
            first = failed.error.message.splitlines()[0]
            message = f"{cell.id}: it was not timed again in turn with the others, because: {first}"
            self.ledger.record(cell).warnings.append(WarningRecord(code="not-in-turn", message=message))
            self.executor.finish(cell)
            self.listener.ended(self.ledger.completed(cell, "cap"))


class TrialError(RunError):
    """A trial failed for a reason that says nothing of its batch size; the sweep cannot go on from it."""


class Sweep:
    """Runs the trials of one study; each outcome is in the run folder as soon as it is known."""

    def __init__(
        self,
        run: Path,
        settings: StudySettings,
        findings: Findings,
        executor: Executor,
        ledger: Ledger,
        listener: Listener,
    ) -> None:
        self.run = run
        self.settings = settings
        assert findings.train_samples is not None, "a sweep is of a data set"
        self.samples = findings.train_samples
        self.executor = executor
        self.ledger = ledger
        self.listener = listener

    def sweep(self, firsts: list[PlannedCell]) -> None:
        """Grow the batch from each of these cells."""
        for first in firsts:
            self._largest(first)
            self._again(first)

    def _largest(self, first: PlannedCell) -> None:
        fits, fails = 0, 0
        for batch_size in self._growing(first):
            if self._fits(_at(first, batch_size), timed=True):
                fits = batch_size
            else:
                fails = batch_size
                break
        if not fails:
            return
        found = fits
        while fails - found > max(1, self.settings.resolution * found):
            middle = (found + fails) // 2
            if self._fits(_at(first, middle), timed=False):
                found = middle
            else:
                fails = middle
        if found > fits:
            self._fits(_at(first, found), timed=True)

    def _again(self, first: PlannedCell) -> None:
        """Time the sizes among which the knee is again, in turn: their trials were minutes apart (method.md §9)."""
        run = load_run(self.run)
        same = (first.settings.strategy, first.settings.world_size)
        found = [analyse_cell(run.cells[name]) for name in run.study.plan if name in run.cells]
        cells = [cell for cell in found if (cell.strategy, cell.world_size) == same and cell.summary]
        tops = top_sizes({cell.batch_size: rate_of(cell) for cell in cells})
        done = [cell for cell in cells if cell.batch_size in tops and in_turn(cell.blocks)]
        if self.settings.epochs is not None or len(tops) < 2 or len(done) == len(tops):
            return
        again = [_at(first, batch_size) for batch_size in tops]
        InTurn(again, self.settings, self.executor, self.ledger, self.listener).run()

    def _growing(self, first: PlannedCell) -> Iterator[int]:
        """The batches to try, none larger than the samples that a worker has: a loader would silently cut it."""
        most = self.samples // (first.settings.world_size * first.settings.accumulate)
        if self.settings.largest_batch is not None:
            most = min(most, self.settings.largest_batch)
        batch_size = first.settings.batch_size
        asked = self.settings.largest_batch == most
        while batch_size <= most:
            yield batch_size
            # The largest that was asked for is tried, whether growth meets it or not.
            larger = batch_size * self.settings.growth
            batch_size = most if asked and batch_size < most < larger else larger

    def _fits(self, cell: PlannedCell, *, timed: bool) -> bool:
        """Whether a batch fits; from an earlier session where that has found out."""
        known = self._known(cell, timed=timed)
        if known is not None:
            return known
        self._plan(cell)
        self._trial(cell, timed=timed)
        record = load_run(self.run).cells[cell.id].record
        if record.error is not None and record.error.kind != OUT_OF_MEMORY:
            raise TrialError(f"{record.id}: {record.error.message}")
        return record.error is None

    def _known(self, cell: PlannedCell, *, timed: bool) -> bool | None:
        found = load_run(self.run).cells.get(cell.id)
        if found is None:
            return None
        if found.record.error is not None:
            return False if found.record.error.kind == OUT_OF_MEMORY else None
        complete = found.record.state == "complete" and (not timed or found.record.summary is not None)
        return True if complete else None

    def _plan(self, cell: PlannedCell) -> None:
        study = load_run(self.run).study
        if cell.id not in study.plan:
            study.plan.append(cell.id)
            write_study(self.run, study)

    def _trial(self, cell: PlannedCell, *, timed: bool) -> None:
        """One batch size in processes of its own: does it fit, and if so, how fast is it."""
        self.listener.starting(cell)
        try:
            self.ledger.started(cell, self.executor.facts(cell))
            self._agree(cell)
            if not timed:
                self._step(cell)
        except CellFailed as failed:
            self.executor.finish(cell)
            self.listener.ended(self.ledger.failed(cell, failed.error))
            return
        if timed:
            pace = Pace(self.settings, [cell], now_s=time.monotonic, plain=True)
            Schedule([cell], self.settings, self.executor, self.ledger, self.listener, pace=pace).run()
        else:
            self.executor.finish(cell)
            self.listener.ended(self.ledger.completed(cell, None))

    def _agree(self, cell: PlannedCell) -> None:
        """Ask the ranks; raises CellFailed with the first that a step does not fit."""
        replies = self.executor.take(cell, Turn(op="fit"), lambda: None)
        self.ledger.used_memory(cell, replies)
        found = replies[0].fit
        if found is not None and not found.fits:
            raise CellFailed(ErrorRecord(kind=OUT_OF_MEMORY, message=found.message or "", rank=found.rank))

    def _step(self, cell: PlannedCell) -> None:
        """Whole steps, with synchronisation and optimizer: the second has the optimizer's own memory from its start."""
        replies = self.executor.take(cell, Turn(op="steps", count=2, timed=False), lambda: None)
        self.ledger.used_memory(cell, replies)


def _at(first: PlannedCell, batch_size: int) -> PlannedCell:
    return replace(first, settings=first.settings.model_copy(update={"batch_size": batch_size}))
