"""The configuration that a study's verdict and its advice speak of first: the fastest one, and what it loses."""

from dataclasses import dataclass

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.losses import Losses, losses
from worldsize.analysis.pays import Pay, pay_of
from worldsize.analysis.scaling import ScalingRow
from worldsize.analysis.statistics import Ratio, includes
from worldsize.analysis.study import StudyAnalysis, once
from worldsize.traits import ALL_CORES


@dataclass(frozen=True)
class Headline:
    """The numbers behind the verdict."""

    fastest: CellAnalysis
    """The multi-worker cell with the most samples/s; oversubscribed ones only if they are allowed."""
    scaling: ScalingRow
    """Its row in this study's kind of scaling; without numbers where there is no baseline."""
    runner_up: CellAnalysis | None
    margin: Ratio | None
    """Samples/s of the fastest ÷ those of the runner-up."""
    rivals: tuple[tuple[CellAnalysis, Ratio], ...]
    """Those of several workers that are not slower with 95 % confidence, and samples/s of the fastest ÷ theirs."""
    pay: Pay | None
    """Whether several workers are faster than one; None where they were compared with none."""
    losses: Losses | None
    """What its step loses against a worker's share of the baseline's; None where the two have no common block, or were
    not taken apart."""


@once
def headline(analysis: StudyAnalysis) -> Headline | None:
    """The fastest multi-worker configuration and what limits it; None if none has numbers to show."""
    rows = [row for cell in analysis.cells if (row := scaling_row(analysis, cell)) is not None and cell.summary]
    shown = [row for row in rows if row.speedup is not None or not row.cell.oversubscribed]
    ranked = sorted(shown, key=lambda row: rate(row.cell), reverse=True)
    if not ranked:
        return None
    first = ranked[0]
    margins = [(row.cell, _margin(first.cell, row.cell)) for row in ranked if row is not first]
    second, margin = margins[0] if margins else (None, None)
    rivals = tuple(
        (other, ratio) for other, ratio in margins if includes(ratio.estimate, 1) or ratio.estimate.value < 1
    )
    on_machine = {row.cell.id: row for row in analysis.on_machine}
    pay = pay_of([on_machine.get(row.cell.id, row) for row in ranked])
    return Headline(first.cell, first, second, margin, rivals, pay, _losses(analysis, first))


def _margin(first: CellAnalysis, other: CellAnalysis) -> Ratio:
    """Samples/s of a cell ÷ those of another."""
    return other.step_ratio(first).scaled(first.samples_per_step / other.samples_per_step)


def scaling_row(analysis: StudyAnalysis, cell: CellAnalysis) -> ScalingRow | None:
    """How a cell of several workers scales: its row in the study's kind, else the one that says why there is none."""
    if cell.world_size == 1:
        return None
    return analysis.scaling_of(cell) or next((row for row in analysis.scaling if row.cell is cell), None)


@once
def fastest_worker(analysis: StudyAnalysis) -> CellAnalysis | None:
    """The cell of one worker with the most samples/s; None if none was measured."""
    measured = [cell for cell in analysis.cells if cell.world_size == 1 and cell.summary is not None]
    return max(measured, key=rate, default=None)


def wrapped_worker(analysis: StudyAnalysis, cell: CellAnalysis, baseline: CellAnalysis) -> CellAnalysis | None:
    """One worker in the strategy of a cell, with the samples of its baseline; None if that was not measured."""
    same = (cell.strategy, 1, baseline.global_batch)
    found = (c for c in analysis.cells if (c.strategy, c.world_size, c.global_batch) == same and c.summary)
    return next(found, None)


def cell_name(cell: CellAnalysis) -> str:
    """A cell in words: `ddp with 2 workers at b = 32`."""
    workers = "1 worker" if cell.world_size == 1 else f"{cell.world_size} workers"
    workers += " on all cores" if cell.label == ALL_CORES else ""
    times = "" if cell.accumulate == 1 else f" × {cell.accumulate} micro-batches"
    return f"{cell.strategy} with {workers} at b = {cell.batch_size}{times}"


def rate(cell: CellAnalysis) -> float:
    """Samples/s of a cell; 0 without numbers."""
    return cell.summary.samples_per_s.value if cell.summary else 0.0


def _losses(analysis: StudyAnalysis, row: ScalingRow) -> Losses | None:
    cell, baseline = row.cell, row.baseline
    if row.speedup is None or baseline is None:
        return None
    wrapped = wrapped_worker(analysis, cell, baseline)
    return losses(cell, baseline, wrapped if wrapped is not baseline else None)
