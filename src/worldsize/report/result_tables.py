"""The tables of times: the results, short and in full, and the parts of a step."""

from dataclasses import replace
from typing import NamedTuple

from worldsize.analysis.breakdown import Breakdown
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import ABSENT
from worldsize.analysis.scaling import Kind, ScalingRow
from worldsize.analysis.statistics import Ratio
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import MS, PERCENT, ColumnOf, estimates, integers, numbers, table_of, texts
from worldsize.report.tables import TERMINAL_WIDTH, Entry, Table, estimate, fitted, interval_keys, text
from worldsize.results.records import BESIDE_PARTS, PARTS, CellSummary, Estimate
from worldsize.results.training_records import Evaluation
from worldsize.traits import ALL_CORES

PART_LABELS = {
    "data_wait_s": "data wait",
    "copy_s": "copy to device",
    "forward_s": "forward",
    "backward_s": "backward",
    "exposed_sync_s": "exposed communication",
    "optimizer_s": "optimizer",
    "other_s": "other",
    "evaluation_s": "evaluation",
    "checkpoint_s": "checkpoints",
    "restart_s": "loader restarts",
    "logging_s": "logging",
    "garbage_s": "garbage collection",
}

EXPOSED_NOTE = (
    "Exposed communication: share of the cell's mean step in which a rank communicates and computes nothing "
    "(method §3)."
)
ALL_NOTE = (
    "All communication: union of the communication intervals of a step; overlapped: the share of it that is hidden "
    "behind compute (method §3)."
)

CELL: ColumnOf[CellAnalysis] = texts("Cell", "cell", lambda cell: cell.id)
SIZES: tuple[ColumnOf[CellAnalysis], ...] = (
    integers("N", "world_size", lambda cell: cell.world_size),
    integers("b", "local_batch", lambda cell: cell.known_batch),
    integers("B", "global_batch", lambda cell: cell.global_batch if cell.known_batch else None),
)


def step_s(cell: CellAnalysis) -> Estimate | None:
    """Its step, where it has numbers."""
    return cell.summary.step_s if cell.summary else None


def samples_per_s(cell: CellAnalysis) -> Estimate | None:
    """Its throughput, where it has numbers."""
    return cell.summary.samples_per_s if cell.summary else None


def value_of(found: Estimate | None) -> float | None:
    """Without its interval."""
    return found.value if found else None


def last_evaluation(cell: CellAnalysis) -> Evaluation | None:
    """After what it was trained, if it was evaluated at all."""
    return cell.record.evaluations[-1] if cell.record and cell.record.evaluations else None


def peak_memory_bytes(cell: CellAnalysis) -> int | None:
    """That of its largest process."""
    return cell.record.peak_memory_bytes if cell.record else None


def baseline_id(row: ScalingRow | None) -> str | None:
    """What a cell is compared with."""
    return row.baseline.id if row and row.baseline else None


def results_table(analysis: StudyAnalysis) -> Table:
    """One row per planned cell, those without numbers and their reasons included."""
    weak, row_of = analysis.kind == "weak", analysis.scaling_of
    speedup = interval_keys("scaled_speedup" if weak else "strong_speedup")
    columns: list[ColumnOf[CellAnalysis]] = [
        CELL,
        texts("Strategy", "strategy", lambda cell: cell.strategy),
        *SIZES,
        estimates("Step time", "step_s", step_s, "ms"),
        estimates("Throughput", "samples_per_s", samples_per_s, "samples/s"),
        ColumnOf(analysis.speedup_name, speedup, value=lambda cell: _speedup(cell, row_of(cell))),
        texts("Baseline", "baseline", lambda cell: baseline_id(row_of(cell))),
        numbers("Efficiency", "efficiency", lambda cell: _efficiency(row_of(cell)), "%"),
        numbers(
            "Exposed communication",
            "exposed_share",
            lambda cell: cell.exposed_share,
            "%",
            between_workers=True,
            note=EXPOSED_NOTE,
        ),
        numbers("Peak memory", "peak_memory_bytes", peak_memory_bytes, "GiB"),
        ColumnOf("State", ("state", "reason"), align="prose", value=lambda cell: state_entry(cell, row_of(cell))),
    ]
    ours = "N·t₁(b)/t_N(b)" if weak else "t₁(B)/t_N(B/N)"
    note = (
        f"{batch_note(analysis)} Step time: elapsed time ÷ timed steps, from the end of a "
        "step on its last rank to that of the next; throughput: B ÷ step time. "
        f"{analysis.speedup_name}: {ours} against the named baseline, the ratio of their columns; efficiency: "
        "speed-up ÷ N. A cell that ended early is scaled to all blocks by its ratio to the others. Peak memory: of the "
        "largest process (on a GPU, allocated on the device). "
        "In brackets: 95 % intervals (method §2, §6, §8, §9)."
        f"{chosen_note(analysis)}{_launch_note(analysis)}{apart_note(analysis)}"
    )
    return table_of("results", "Results", columns, analysis.cells, note)


def batch_note(analysis: StudyAnalysis) -> str:
    """What b and B are; K is said where there are micro-batches."""
    times = analysis.accumulate
    if times == 1:
        return "N workers with b samples each per step, B = N·b."
    return (
        f"N workers with {times} micro-batches of b samples each per step, whose gradients add up (accumulation of "
        f"{times}): B = N·b·{times}."
    )


def apart_note(analysis: StudyAnalysis) -> str:
    """What must be said of steps that do not teach as much as those of others."""
    found: dict[str, int] = {}
    for cell in analysis.cells:
        if cell.traits.travels == "weights" and cell.world_size > 1:
            found[cell.strategy] = getattr(analysis.record.asked, cell.traits.period, 1)
    if not found:
        return ""
    every = " and ".join(dict.fromkeys(f"every {steps} steps" for steps in found.values()))
    return (
        f" {', '.join(found)}: ranks step by themselves and average their weights {every}, so a step is not worth "
        "one of the others: compare accuracy after the same samples (--epochs), not steps or samples/s alone."
    )


def chosen_note(analysis: StudyAnalysis, kind: Kind | None = None) -> str:
    """What must be said where the fastest may have been picked by luck; nothing where it is significantly faster."""
    chosen = next((row for row in analysis.scaling if row.rivals and row.kind == (kind or analysis.kind)), None)
    if chosen is None:
        return ""
    return f" The interval of the speed-up of {chosen.cell.id} allows for its having been picked as the fastest."


def _launch_note(analysis: StudyAnalysis) -> str:
    """What no interval can know where each cell was launched once."""
    launches = [cell.launched for cell in analysis.cells if len(cell.blocks) > 1]
    if not launches or max(launches) > 1:
        return ""
    return " Each cell was launched once, so no interval includes how launches differ."


def _batch(cell: CellAnalysis) -> Entry:
    batch = cell.known_batch
    return Entry(ABSENT if batch is None else str(batch), (batch,))


OWN_LOOP = "This is worldsize's own loop, faster than a plain one: for your own loop, study its script (method §6)."
"""Beside what several workers gain over one with all cores: that is asked by people who have a loop of their own."""
NOTABLE_SCALE = 0.005
"""From which on a scaled step is seen to differ from what its own steps took."""


def compact_table(analysis: StudyAnalysis, width: int = TERMINAL_WIDTH) -> Table:
    """The results that fit a terminal of `width` columns, with two spaces between the columns.

    Long names of strategies are cut; what must be explained stands in the State column of `results_table`.
    """
    row_of, speedup = analysis.scaling_of, "Scaled speed-up" if analysis.kind == "weak" else "Strong speed-up"
    against = rows_against_all_cores(analysis)
    columns: list[ColumnOf[CellAnalysis]] = [
        texts("Strategy", "strategy", lambda cell: f"{cell.strategy}{_cores_text(cell)}"),
        ColumnOf("N", ("world_size",), value=lambda cell: Entry(str(cell.world_size), (cell.world_size,))),
        ColumnOf("b", ("local_batch",), value=_batch),
        numbers("ms/step", "step_s", lambda cell: value_of(step_s(cell)), factor=MS),
        numbers("Samples/s", "samples_per_s", lambda cell: value_of(samples_per_s(cell))),
        estimates("÷ one, all cores", "on_machine", lambda cell: _ratio(against.get(cell.id)))
        if against
        else ColumnOf(speedup, interval_keys("speedup"), value=lambda cell: _speedup_or_why(cell, row_of(cell))),
        numbers("Eff. %", "efficiency", lambda cell: _efficiency(row_of(cell)), factor=PERCENT),
        numbers(
            "Sync %",
            "exposed_share",
            lambda cell: cell.exposed_share,
            factor=PERCENT,
            between_workers=True,
            note="Sync %: exposed communication, share of the cell's mean step.",
        ),
    ]
    made = table_of("compact", "Results", columns, analysis.cells)
    notes = []
    if any(entry.interval for row in made.rows for entry in row):
        notes.append("In brackets: 95 % intervals.")
    if against:
        notes.append("÷ one, all cores: its samples/s; Eff. %: per core, speed-up over one with as many cores, ÷ N.")
        notes.append(OWN_LOOP)
    if analysis.accumulate > 1:
        notes.append(batch_note(analysis))
    notes += [apart_note(analysis).strip()] if apart_note(analysis) else []
    timed_in_turn = analysis.record.settings is not None  # metered runs have no blocks in common
    if timed_in_turn and any(cell.summary and abs(cell.step_scale - 1) > NOTABLE_SCALE for cell in analysis.cells):
        notes.append("Cells that ended early are scaled to all blocks: their steps took other times (method §8).")
    return fitted(replace(made, note=" ".join(notes)), width, lambda name, room: f"{name[: room - 1]}…")


class Apart(NamedTuple):
    """A cell with numbers, and those of the parts of its step."""

    cell: CellAnalysis
    summary: CellSummary
    breakdown: Breakdown

    @property
    def step_s(self) -> float:
        """The printed step, the sum of the parts."""
        return sum(self.summary.parts_s.values())


def taken_apart(analysis: StudyAnalysis) -> list[Apart]:
    """The cells that have numbers, with the parts of the printed step (`CellAnalysis.step_scale`)."""
    cells = ((cell, cell.summary, cell.breakdown) for cell in analysis.cells)
    return [
        Apart(cell, _of_step(found, cell.step_scale), parts)
        for cell, found, parts in cells
        if found is not None and parts is not None
    ]


def _of_step(summary: CellSummary, scale: float) -> CellSummary:
    times = {name: getattr(summary, name) for name in ("comm_s", "overlapped_s")}
    update = {name: None if seconds is None else scale * seconds for name, seconds in times.items()}
    return summary.model_copy(
        update={**update, "parts_s": {part: scale * seconds for part, seconds in summary.parts_s.items()}}
    )


def parts_table(analysis: StudyAnalysis) -> Table:
    """The parts of a mean step of each cell (method.md §2)."""
    rows = taken_apart(analysis)
    shown = [part for part in PARTS if part not in BESIDE_PARTS or any(row.summary.parts_s.get(part) for row in rows)]
    columns: list[ColumnOf[Apart]] = [
        texts("Cell", "cell", lambda row: row.cell.id),
        *map(_part, shown),
        numbers("Mean step", "mean_step_s", lambda row: row.step_s, "ms"),
        numbers(
            "All communication", "comm_s", lambda row: row.summary.comm_s, "ms", between_workers=True, note=ALL_NOTE
        ),
        numbers(
            "Overlapped", "overlapped_share", lambda row: row.breakdown.overlapped_share, "%", between_workers=True
        ),
    ]
    note = (
        "Means over timed steps and ranks, scaled to the step time of the results: the parts of a row add up to it, "
        "and other is time in none of these phases (method §2, §8)."
    )
    return table_of("parts", "Step time breakdown", columns, rows, note)


def state_entry(cell: CellAnalysis, row: ScalingRow | None) -> Entry:
    """How a cell ended, and why a number of it is missing; raw, the word for scripts and the reason for people."""
    withheld = row.withheld if row is not None and cell.summary is not None else None
    said = cell.reason if cell.reason != cell.state else None
    reason = "; ".join(part for part in (said, withheld) if part) or None
    return Entry(text(f"{cell.state}; {reason}" if reason else cell.state).text, (cell.state, reason))


def _part(part: str) -> ColumnOf[Apart]:
    """A part of the mean step; exposed communication is absent, not 0, where no message was seen."""
    exposed = part == "exposed_sync_s"

    def value(row: Apart) -> float | None:
        return None if exposed and row.cell.exposed_share is None else row.summary.parts_s.get(part)

    return numbers(PART_LABELS[part].capitalize(), part, value, "ms", between_workers=exposed)


def rows_against_all_cores(analysis: StudyAnalysis) -> dict[str, ScalingRow]:
    """By cell: samples/s ÷ those of one worker with all cores, where that is not the baseline of the speed-up (§6)."""
    return {row.cell.id: row for row in analysis.on_machine if row.baseline is not None and not row.baseline.program}


def _ratio(row: ScalingRow | None) -> Ratio | None:
    return row.speedup if row else None


def _cores_text(cell: CellAnalysis) -> str:
    return f" {cell.threads_per_worker or 'all'} cores" if cell.label == ALL_CORES else ""


def _speedup(cell: CellAnalysis, row: ScalingRow | None) -> Entry:
    """The speed-up, or the word that stands in its place."""
    if row is None and cell.summary is not None and cell.label != ALL_CORES:
        return Entry("baseline", (None, None, None))
    return estimate(row.speedup.estimate if row and row.speedup else None)


def _speedup_or_why(cell: CellAnalysis, row: ScalingRow | None) -> Entry:
    """The speed-up, or in a word or two why there is none."""
    found = _speedup(cell, row)
    if found.text != ABSENT:
        return found
    if cell.summary is None:
        return replace(found, text="no timed step" if cell.state == "complete" else cell.state)
    return replace(found, text="withheld" if row and row.baseline and row.baseline.summary else "no baseline")


def _efficiency(row: ScalingRow | None) -> float | None:
    return row.efficiency.estimate.value if row and row.efficiency else None
