"""A whole run, analysed: all that the report, the page and the terminal show."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar

from worldsize.analysis.bandwidth import LinkAnalysis, analyse_link
from worldsize.analysis.breakdown import EpochSplit, epoch_split
from worldsize.analysis.cells import CellAnalysis, absent_cell, analyse_cell, side_by_side, unreadable_cell
from worldsize.analysis.communication import Exposed, observing
from worldsize.analysis.drift import disturbed_warning, drift_warning
from worldsize.analysis.numbers import number_text
from worldsize.analysis.rehearsal import core_warnings
from worldsize.analysis.sameness import data_warning
from worldsize.analysis.scaling import Kind, ScalingRow, SerialFraction, rows_on_machine, scaling_rows, serial_fractions
from worldsize.analysis.statistics import Ratio
from worldsize.analysis.sweep import BatchSweep, batch_sweeps
from worldsize.errors import OutputError
from worldsize.results.folder import Run
from worldsize.results.provenance import Provenance
from worldsize.results.records import CellSummary, StudyRecord, WarningRecord

NOTABLE_OUTLIERS = 0.05
"""Share of flagged steps from which on a cell is warned about; normal data has 0.05 % of them."""

MIN_OUTLIERS = 3
"""One or two flagged steps of a short study say nothing."""

NOTABLE_SAMPLES = 0.01
"""How far the mean of the samples of a step may be from those of most before it is told."""

T = TypeVar("T")


@dataclass(frozen=True)
class StudyAnalysis:
    """What a run folder says; every number in it can be computed again from the raw samples."""

    run: Run
    """The folder with the raw samples."""
    cells: tuple[CellAnalysis, ...]
    """All planned cells in the order of the plan, those without numbers included."""
    scaling: tuple[ScalingRow, ...]
    on_machine: tuple[ScalingRow, ...]
    """Cells of several workers against one worker with all of their cores; empty where none was measured."""
    serial_fractions: tuple[SerialFraction, ...]
    epoch_splits: tuple[EpochSplit, ...]
    links: dict[int, LinkAnalysis]
    """What the link between the workers can do, by world size; measured before the cells."""
    observing: Ratio | None
    """Step with instruments ÷ step without (method.md §2)."""
    warnings: tuple[tuple[str, WarningRecord], ...]
    """Where it was seen (`study`, or the id of a cell), and the warning."""

    parts: dict[str, "StudyAnalysis"]
    """Further parts of an experiment."""
    findings: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What functions marked `once` have found in it."""

    @property
    def damaged(self) -> bool:
        """Whether anything in the folder cannot be read."""
        # Of runs that were joined, what could not be read of each is known by its warning alone.
        told = any(warning.code == "unreadable" for warning in self.record.warnings)
        return told or bool(self.run.unread) or any(part.damaged for part in self.parts.values())

    @property
    def record(self) -> StudyRecord:
        """Plan, settings and provenance."""
        return self.run.study

    @property
    def accumulate(self) -> int:
        """Micro-batches K in a step, by the cells: runs that were joined have no settings of their own."""
        return max((cell.accumulate for cell in self.cells), default=1)

    @cached_property
    def sweeps(self) -> list[BatchSweep]:
        """The batch sweeps; none where the batches were given."""
        if not self.record.asked.sweep:
            return []
        settings, data, _ = self.record.training
        return batch_sweeps(self.cells, data.train_samples, settings.largest_batch)

    @property
    def kind(self) -> Kind:
        """What the study keeps while workers are added: the local batch (weak) or the global one (strong).

        A loop of the user's own decides that by itself.
        """
        if not self.record.trains:
            return "strong" if {row.kind for row in self.scaling if row.baseline} == {"strong"} else "weak"
        return "weak" if self.record.asked.global_batch is None else "strong"

    @property
    def speedup_name(self) -> str:
        """What its speed-up is called (method.md §6)."""
        return "Scaled speed-up" if self.kind == "weak" else "Strong-scaling speed-up"

    def scaling_of(self, cell: CellAnalysis) -> ScalingRow | None:
        """The row of a cell in this study's kind of scaling; None for a baseline."""
        return next((row for row in self.scaling if row.kind == self.kind and row.cell is cell), None)


def once(find: Callable[[StudyAnalysis], T]) -> Callable[[StudyAnalysis], T]:
    """What a function finds in an analysis, found when it is asked for first and kept with the analysis.

    The page, the tables, the files and the terminal each ask for the verdict, and the verdict for the advice.
    """

    @wraps(find)
    def found(analysis: StudyAnalysis) -> T:
        if find not in analysis.findings:
            analysis.findings[find] = find(analysis)
        result: T = analysis.findings[find]
        return result

    return found


def analyse(run: Run) -> StudyAnalysis:
    """Analyse a run folder, complete or not; cells without numbers keep their place and their reason.

    So do those that cannot be read, which are not in the `run` of the result.
    """
    cells = [_analysed(run, name) for name in run.study.plan]
    run = run.without({cell.id: str(cell.reason) for cell in cells if cell.state == "unreadable"})
    cells = side_by_side(cells, trials=bool(run.study.asked.sweep))
    rows = scaling_rows(cells, allow_oversubscribed=run.study.asked.allow_oversubscribed)
    parts = {name: analyse(part) for name, part in run.parts.items()}
    run.parts = {name: part.run for name, part in parts.items()}
    of_parts = ((f"{name}: {place}", each) for name, part in parts.items() for place, each in part.warnings)
    return StudyAnalysis(
        run=run,
        cells=tuple(cells),
        scaling=tuple(rows),
        on_machine=tuple(rows_on_machine(cells, allow_oversubscribed=run.study.asked.allow_oversubscribed)),
        serial_fractions=tuple(serial_fractions(rows)),
        epoch_splits=tuple(_epoch_splits(rows, run.study.train_samples)),
        links={world_size: analyse_link(record) for world_size, record in run.comm.items()},
        observing=observing(run.cells.values()),
        warnings=(*_warnings(run.study, cells, rows), *_unread(run), *of_parts),
        parts=parts,
    )


def _analysed(run: Run, name: str) -> CellAnalysis:
    accumulate = run.study.asked.accumulate
    if name in run.unread:
        return unreadable_cell(name, run.unread[name], accumulate)
    if name not in run.cells:
        return absent_cell(name, accumulate)
    try:
        return analyse_cell(run.cells[name])
    except OutputError as error:
        return unreadable_cell(name, str(error), accumulate)


def _epoch_splits(rows: Sequence[ScalingRow], train_samples: int | None) -> Iterator[EpochSplit]:
    if train_samples is None:
        return
    for row in rows:
        summary, baseline, efficiency = row.cell.summary, row.baseline, row.efficiency
        if row.kind != "weak" or row.cell.world_size == 1 or efficiency is None or summary is None or baseline is None:
            continue
        if not summary.parts_s:
            continue
        steps_per_epoch = train_samples / row.cell.global_batch
        yield epoch_split((row.cell.id, summary), baseline.id, efficiency.estimate.value, steps_per_epoch)


def _warnings(
    study: StudyRecord, cells: Sequence[CellAnalysis], rows: Sequence[ScalingRow]
) -> Iterator[tuple[str, WarningRecord]]:
    """The warnings of the records, then those that only the samples show."""
    yield from (("study", warning) for warning in study.warnings)
    yield from (("study", warning) for warning in _provenance_changes(study))
    for cell in cells:
        yield from ((cell.id, warning) for warning in _of_cell(cell))
    differing = data_warning(cells)
    if differing is not None:
        yield "study", differing
    yield from (("study", warning) for warning in (disturbed_warning(cells), drift_warning(cells)) if warning)
    for row in rows:
        if row.speedup is not None and row.baseline is not None and not row.speedup.paired:
            text = f"{row.kind} speed-up over {row.baseline.id}: the two were not timed in turn, so the drift of the "
            message = text + "machine between them is in it. Run both in one study to compare them."
            yield row.cell.id, WarningRecord(code="unpaired", message=message)


def _of_cell(cell: CellAnalysis) -> Iterator[WarningRecord]:
    if cell.record is not None:
        yield from (*cell.record.warnings, *core_warnings(cell.record), *cell.uneven)
    for problem in cell.profile.problems if cell.profile else ():
        yield WarningRecord(code="no-profile", message=f"{problem}.")
    if cell.summary is not None:
        yield from _of_numbers(cell, cell.summary)
    if cell.exposed is not None and cell.exposed.disagree:
        yield _disagreement(cell.exposed)


def _of_numbers(cell: CellAnalysis, summary: CellSummary) -> Iterator[WarningRecord]:
    if cell.state == "running":
        yield WarningRecord(code="not-ended", message=f"It {cell.reason}. Its numbers are of what it did.")
    vary = cell.batches is not None and (cell.batches.unlike or cell.batches.trend)
    if vary or abs(cell.samples_per_step / cell.global_batch - 1) > NOTABLE_SAMPLES:
        yield _batches_vary(cell)
    flagged = cell.outlier_steps
    if flagged >= MIN_OUTLIERS and flagged > NOTABLE_OUTLIERS * summary.timed_steps:
        text = f"{flagged} of {summary.timed_steps} timed steps are outliers; likely something else used the machine. "
        yield WarningRecord(code="outliers", message=f"{text}None was dropped.")


def _batches_vary(cell: CellAnalysis) -> WarningRecord:
    counts = "samples/s and speed-up count all samples that there were"
    message = (
        f"Most of its steps have {cell.global_batch:,} samples, the mean is {number_text(cell.samples_per_step)}: "
        f"{counts}, b is that of most steps."
    )
    found = cell.batches
    if found is not None and found.unlike:
        message = f"Ranks have unlike batches ({found.text} samples a step), and wait for the largest; {counts}."
    elif found is not None and found.trend:
        message = (
            f"Batches went from {number_text(found.first)} to {number_text(found.last)} samples a step of a rank, so "
            f"its steps and blocks differ by what they do; {counts}. Compare it with runs of the same batches."
        )
    return WarningRecord(code="batches-vary", message=message)


def _unread(run: Run) -> Iterator[tuple[str, WarningRecord]]:
    """What cannot be read, samples that are damaged, and columns in whose place the lines were read."""
    for name, why in run.unread.items():
        yield name, WarningRecord(code="unreadable", message=f"left out of the report: {why}")
    for name, cell in run.cells.items():
        yield from ((name, warning) for warning in cell.warnings)
        if cell.problem is not None:
            message = f"{cell.problem}; its lines were read instead, which takes longer and loses nothing."
            yield name, WarningRecord(code="unread-columns", message=message)


def _disagreement(found: Exposed) -> WarningRecord:
    timeline, pairing = found.timeline.value * 1e3, found.pairing.value * 1e3
    cause = (
        "synchronisation work other than messages, such as averaging or copying into buckets, or compute that "
        "is slower while messages are under way"
        if pairing > timeline
        else "compute that is slower without synchronisation, as when the ranks no longer wait for each other"
    )
    message = (
        f"exposed communication in the paired blocks: {timeline:.3g} ms per step by the timeline, {pairing:.3g} ms by "
        f"steps with − without synchronisation. Quote both. Likely {cause}."
    )
    return WarningRecord(code="exposed-disagrees", message=message)


def _provenance_changes(study: StudyRecord) -> Iterator[WarningRecord]:
    """A --resume on another machine or with other versions: the comparison says in what (method.md §11)."""
    first = _identity(study.provenance)
    for number, session in enumerate(study.sessions, start=1):
        changes = [
            f"{name} {first[name]} → {value}" for name, value in _identity(session).items() if value != first[name]
        ]
        if changes:
            message = f"session {number} (--resume) differs from the first: {'; '.join(changes)}."
            yield WarningRecord(code="provenance-changed", message=message)


def _identity(provenance: Provenance) -> dict[str, str]:
    host, code = provenance.host, provenance.user_code
    return {
        "host": host.hostname,
        "CPU": host.cpu_model,
        "cores": str(len(host.allowed_cores)),
        "CPU quota": "none" if host.quota_cores is None else f"{host.quota_cores:g} cores",
        "GPUs": ", ".join(host.gpus) or "none",
        "worldsize": provenance.worldsize_version,
        "commit of worldsize": provenance.commit or "unknown",
        "commit of your code": (code and code.commit) or "unknown",
        "Python": provenance.python_version,
        "torch": provenance.torch_version,
    }
