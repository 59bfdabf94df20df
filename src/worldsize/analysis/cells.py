"""One cell of a study as the analysis sees it: what it is, how it ended, and its numbers if it has any."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isclose

import numpy as np
import polars as pl

from worldsize.analysis.batches import Batches, batches_of
from worldsize.analysis.breakdown import Breakdown, breakdown
from worldsize.analysis.communication import Communication, Exposed, communication, exposed
from worldsize.analysis.dependence import Launches
from worldsize.analysis.levels import IN_TURN_BLOCK, Level, levels, ratio
from worldsize.analysis.lost_samples import check_samples
from worldsize.analysis.profile import CellProfile, profile_of
from worldsize.analysis.recurring import recurring_warning
from worldsize.analysis.statistics import Blocks, Ratio, outliers, reciprocal, scaled
from worldsize.analysis.steps import block_means, per_step, timed_steps, world_steps
from worldsize.analysis.summary import block_launches, step_blocks, summarise
from worldsize.config import CommandSettings
from worldsize.config.training import micro_batches
from worldsize.errors import OutputError
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord, CellState, CellSummary, Estimate, SeenState, WarningRecord
from worldsize.traits import ALL_CORES, TraitsRecord, traits_of


@dataclass(frozen=True)
class CellAnalysis:
    """A planned cell. `summary` is None for a cell without numbers, and then `reason` says why."""

    id: str
    strategy: str
    world_size: int
    batch_size: int
    """b: samples per worker per step, or per micro-batch."""
    state: SeenState
    reason: str | None = None
    """Why it has no numbers, or why they are not all there; None for a complete cell."""
    label: str = ""
    """Tells it apart from a cell with the same strategy, N and b."""
    accumulate: int = 1
    """K: micro-batches of b in a step."""
    record: CellRecord | None = None
    """None for a cell that was never started, or cannot be read."""
    summary: CellSummary | None = None
    breakdown: Breakdown | None = None
    blocks: Blocks = field(default_factory=dict)
    """Step times of the world in seconds, by (session, block)."""
    launches: Launches = field(default_factory=dict)
    """In which launch, counted within a session, each of these blocks was timed."""
    level: Level | None = None
    """Its mean step beside the other cells of its study, from which its summary and all ratios are; None without."""
    block_means: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Parts of a step by session and block, in seconds (steps.py); empty without a timed step."""
    communication: Communication | None = None
    """Wait, transfer and bus bandwidth; None at world size 1."""
    exposed: Exposed | None = None
    """Exposed communication both ways; None without pairs of steps."""
    profile: CellProfile | None = None
    """What the traces of a profile say; None where none was made."""
    uneven: tuple[WarningRecord, ...] = ()
    """What makes some of its steps much longer than the typical one."""
    disturbed: frozenset[tuple[int, int]] = frozenset()
    """The blocks, by (session, block), with timed steps during which something slowed their cores."""
    outlier_steps: int = 0
    """Timed steps that are flagged as outliers; they are in all numbers (method.md §8)."""
    batches: Batches | None = None
    """Of a loop of the user's own: whether they are alike."""
    losses: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema={"step": pl.Int64, "loss": pl.Float64}))
    """Mean training loss over ranks by step, warm-up included."""

    @property
    def global_batch(self) -> int:
        """B = N·b·K, samples per step of all workers (method.md §1)."""
        return self.world_size * self.batch_size * self.accumulate

    @property
    def samples_per_step(self) -> float:
        """B, or the mean over the timed steps of a loop whose batches vary."""
        found = None if self.summary is None else self.summary.samples_per_s.value * self.summary.step_s.value
        return self.global_batch if found is None or isclose(found, self.global_batch) else found

    @property
    def batches_change(self) -> bool:
        """Whether its batches become larger or smaller, so that its blocks do unlike work."""
        return self.batches is not None and self.batches.trend

    @property
    def batch_formula(self) -> str:
        """What B is made of, for people."""
        return "N·b" if self.accumulate == 1 else "N·b·K"

    @property
    def known_batch(self) -> int | None:
        """b; None of a script that has not run: only then it says its batch, so its id has none."""
        named = f"-b{self.batch_size}" in self.id
        return self.batch_size if named or self.summary is not None else None

    @property
    def launched(self) -> int:
        """How often it was launched for its timed steps; 0 without one."""
        return len({(session, self.launches.get((session, block), 0)) for session, block in self.blocks})

    def step_ratio(self, other: "CellAnalysis") -> Ratio:
        """Its step ÷ that of another cell of the study; both have numbers."""
        if self.level is None or other.level is None:
            raise ValueError("a ratio needs samples on both sides")
        return ratio(self.level, other.level)

    @property
    def exposed_share(self) -> float | None:
        """Exposed communication as a share of the step; absent, not 0, where no message was seen (method.md §5)."""
        seen = self.summary is not None and self.summary.comm_s is not None
        return self.breakdown.exposed_share if self.breakdown is not None and seen else None

    @property
    def step_scale(self) -> float:
        """Printed step ÷ the sum of its parts as they were recorded (method.md §8); 1 where no part is known.

        What is printed of a step beside its time is times this, so that it is of the same step: a cell that ended
        early is shown as if it had been timed in all blocks.
        """
        parts_s = sum(self.summary.parts_s.values()) if self.summary else 0.0
        return self.summary.step_s.value / parts_s if self.summary and parts_s else 1.0

    @property
    def exposed_s(self) -> Estimate | None:
        """Exposed communication of the printed step (s) by the timeline, over all timed steps, as `exposed_share`."""
        found = None if self.exposed_share is None else per_step(self.block_means, pl.col("exposed_sync_s"))
        return None if found is None else scaled(found, self.step_scale)

    @property
    def paired_s(self) -> Estimate | None:
        """The same by pairing, over the blocks that were paired."""
        return None if self.exposed is None else scaled(self.exposed.pairing, self.step_scale)

    @property
    def communication_of_step(self) -> Communication | None:
        """`communication`, its times those of the printed step."""
        return None if self.communication is None else self.communication.scaled(self.step_scale)

    @property
    def traits(self) -> TraitsRecord:
        """Of its strategy."""
        return traits_of(self.strategy, self.record.own_traits if self.record else None)

    @property
    def oversubscribed(self) -> bool:
        """More threads than cores (method.md §8)."""
        return bool(self.record and self.record.placement and self.record.placement.oversubscribed)

    @property
    def threads_per_worker(self) -> int | None:
        """Compute threads of each worker; a baseline must have the same (method.md §8).

        None of a person's own command: it has what it would have by itself.
        """
        return None if self.record is None or self.program is not None else self.record.threads_per_worker

    @property
    def program(self) -> CommandSettings | None:
        """The command of a person's own that it runs; None of a training of worldsize's."""
        settings = self.record.settings if self.record else None
        return settings.program if settings is not None else None

    @property
    def alone(self) -> bool:
        """Whether it is one worker with all cores, as `python` starts a script (method.md §6)."""
        return self.label == ALL_CORES if self.program is None else self.program.alone


def analyse_cell(cell: Cell) -> CellAnalysis:
    """A cell that was started. A failed one keeps its loss curve but gets no numbers: its steps may be unlike.

    Raises OutputError where its samples cannot be read, or are not all there.
    """
    check_samples(cell)
    record = cell.record
    summary = None if record.state == "failed" else summarise(cell)
    blocks = {} if summary is None else step_blocks(world_steps(cell))
    return CellAnalysis(
        id=record.id,
        strategy=record.strategy,
        world_size=record.world_size,
        batch_size=record.batch_size,
        state=record.state,
        reason=reason_of(record, has_numbers=summary is not None),
        label=record.label,
        accumulate=micro_batches(record.settings),
        record=record,
        summary=summary,
        breakdown=None if summary is None else breakdown(summary),
        block_means=pl.DataFrame() if summary is None else block_means(cell),
        communication=None if summary is None else communication(cell),
        exposed=None if summary is None else exposed(cell),
        profile=None if summary is None else profile_of(cell),
        blocks=blocks,
        launches={} if summary is None else block_launches(timed_steps(cell)),
        uneven=() if summary is None else tuple(recurring_warning(cell, summary)),
        disturbed=frozenset(cell.disturbed.select("session", "block").iter_rows()) if summary else frozenset(),
        outlier_steps=int(outliers(np.concatenate(list(blocks.values()))).sum()) if blocks else 0,
        batches=None if summary is None else batches_of(cell),
        losses=_losses(cell),
    )


def side_by_side(cells: Sequence[CellAnalysis], *, trials: bool = False) -> list[CellAnalysis]:
    """The cells of a study with their levels, and with the step times and rates that belong to these.

    `trials` are those of a sweep: only their late blocks were timed in turn, the others have their numbers by chance.
    """
    found = levels(
        {cell.id: _in_turn(cell.blocks, number) if trials else cell.blocks for number, cell in enumerate(cells)},
        {cell.id: cell.launches for cell in cells},
    )
    return [_at_level(cell, found[cell.id]) if cell.id in found else cell for cell in cells]


def _in_turn(blocks: Blocks, trial: int) -> Blocks:
    return {
        (session if block >= IN_TURN_BLOCK else -1 - trial, block): times for (session, block), times in blocks.items()
    }


def _at_level(cell: CellAnalysis, level: Level) -> CellAnalysis:
    if cell.summary is None:
        return cell
    rate = reciprocal(level.step_s, cell.samples_per_step)
    summary = cell.summary.model_copy(update={"step_s": level.step_s, "samples_per_s": rate})
    return replace(cell, level=level, summary=summary)


def absent_cell(cell_id: str, accumulate: int = 1) -> CellAnalysis:
    """A planned cell that was never started; what it is, is read from its id (`CellSettings.id`).

    Raises OutputError for an id that was not made by worldsize.
    """
    match = re.fullmatch(r"(.+?)-w([0-9]{1,7})(?:-b([0-9]{1,10})(?:-([a-z0-9-]+))?)?", cell_id)
    if match is None:
        raise OutputError(f"the plan in study.json names a cell {cell_id!r}; allowed is STRATEGY-wN-bB, or SCRIPT-wN")
    strategy, world_size, batch_size, label = match.groups()
    return CellAnalysis(
        id=cell_id,
        strategy=strategy,
        world_size=int(world_size),
        batch_size=int(batch_size or 1),
        state="planned",
        reason="not started",
        label=label or "",
        accumulate=accumulate,
    )


def unreadable_cell(cell_id: str, why: str, accumulate: int = 1) -> CellAnalysis:
    """A cell whose record or samples are damaged or gone; `why` says what is wrong and what to do."""
    return replace(absent_cell(cell_id, accumulate), state="unreadable", reason=". ".join(why.split("\n")))


def reason_of(record: CellRecord, *, has_numbers: bool) -> str | None:
    """Why a cell has no numbers, or not all of them; None for a complete one."""
    if record.error is not None:
        rank = "" if record.error.rank is None else f" (rank {record.error.rank})"
        return f"{record.error.kind}{rank}: {record.error.message}"
    reasons: dict[CellState, str] = {
        "planned": "not started",
        "running": "did not end: the study was killed, or is still running",
        "failed": "failed, and left no reason",
        "interrupted": "interrupted",
    }
    return reasons.get(record.state, None if has_numbers else "no timed step")


def _losses(cell: Cell) -> pl.DataFrame:
    """Step and loss, None where one rank's was not finite.

    A training of epochs goes on with --resume. A cell of the steps protocol is trained from its first step again,
    so only its last session counts. A rehearsal has none.
    """
    steps = cell.scan_steps()
    if cell.record.replayed is not None:
        steps = steps.clear()
    if not cell.record.of_epochs:
        steps = steps.filter(pl.col("session") == pl.col("session").max())
    mean = (pl.col("loss") * pl.col("samples")).sum() / pl.col("samples").sum()
    known = pl.when(pl.col("loss").is_not_null().all()).then(mean)
    return cell.collect(steps.group_by("step").agg(known.alias("loss")).sort("step"))
