"""Studies of fake cells: a real schedule, ledger and announcement, with an executor whose clock is told."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fake_cells import FakeExecutor, StepTime, findings, planned
from heard import Heard
from worldsize.config import StudySettings
from worldsize.results.folder import Cell
from worldsize.study.ledger import Ledger
from worldsize.study.pace import Pace
from worldsize.study.plan import PlannedCell
from worldsize.study.running import announce
from worldsize.study.schedule import Schedule

BLOCK_STEPS = 3
STUDY = StudySettings(steps=30, block_steps=BLOCK_STEPS, warmup_steps=2)


class Study:
    """A schedule and all that it works with."""

    def __init__(
        self,
        run: Path,
        cells: Sequence[PlannedCell],
        executor: FakeExecutor,
        settings: StudySettings = STUDY,
        before: Mapping[str, Cell] | None = None,
        budget_s: float | None = None,
    ) -> None:
        self.executor, self.heard = executor, Heard()
        self.ledger = Ledger(run, executor.session, before or {})
        pace = Pace(settings, cells, now_s=lambda: executor.clock_s, until_s=budget_s)
        self.schedule = Schedule(cells, settings, executor, self.ledger, self.heard, pace=pace)
        announce(self.schedule, findings(), self.heard)

    def run(self) -> "Study":
        self.schedule.run()
        return self

    def turns(self, op: str) -> list[tuple[str, int]]:
        return [(name, block) for name, turn, block in self.executor.log if turn == op]


def grid(*names: str, settings: StudySettings = STUDY) -> list[PlannedCell]:
    """`single`, or a strategy with two workers."""
    return [planned(name, 1 if name == "single" else 2, settings) for name in names]


def noisy(spread: float, seed: int = 0) -> StepTime:
    generator = np.random.default_rng(seed)
    return lambda cell, now: 0.5 * float(np.exp(spread * generator.standard_normal()))
