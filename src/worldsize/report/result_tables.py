"""The tables of times: the results, short and in full, and the parts of a step."""

from collections.abc import Mapping

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import ABSENT, GIB
from worldsize.analysis.scaling import Kind, ScalingRow
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.tables import (
    Column,
    Entry,
    Table,
    estimate,
    integer,
    interval_keys,
    number,
    ratio,
    text,
)
from worldsize.results.records import PARTS

MS = 1e3
PERCENT = 100
TERMINAL_WIDTH = 80
"""Columns of the narrowest terminal that the compact table must fit (two spaces between its columns)."""
MIN_NAME_WIDTH = 8

PART_LABELS = {
    "data_wait_s": "data wait",
    "copy_s": "copy to device",
    "forward_s": "forward",
    "backward_s": "backward",
    "exposed_sync_s": "exposed communication",
    "optimizer_s": "optimizer",
    "other_s": "other",
}

EXPOSED_NOTE = (
    "Exposed communication: share of the cell's own mean step (below, taken apart) in which a rank only waits for the "
    "synchronisation (method §3)."
)
ALL_NOTE = (
    "All communication: union of the communication intervals of a step; overlapped: the share of it that is hidden "
    "behind compute (method §3)."
)

CELL = Column("Cell", ("cell",), align="left")
IDENTITY = (
    CELL,
    Column("Strategy", ("strategy",), align="left"),
    Column("N", ("world_size",)),
    Column("b", ("local_batch",)),
    Column("B", ("global_batch",)),
)


def results_table(analysis: StudyAnalysis) -> Table:
    """One row per planned cell, those without numbers and their reasons included."""
    weak = analysis.kind == "weak"
    ours = "N·t₁(b)/t_N(b)" if weak else "t₁(B)/t_N(B/N)"
    columns = (
        *IDENTITY,
        Column("Step time", interval_keys("step_s"), "ms"),
        Column("Throughput", interval_keys("samples_per_s"), "samples/s"),
        Column(analysis.speedup_name, interval_keys("scaled_speedup" if weak else "strong_speedup")),
        Column("Baseline", ("baseline",), align="left"),
        Column("Efficiency", ("efficiency",), "%"),
        Column("Exposed communication", ("exposed_share",), "%", between_workers=True, note=EXPOSED_NOTE),
        Column("Peak memory", ("peak_memory_bytes",), "GiB"),
        Column("State", ("state", "reason"), align="prose"),
    )
    note = (
        "N workers with b samples each per step, B = N·b. Step time: elapsed time ÷ timed steps, from the end of a "
        f"step on its last rank to that of the next; throughput: B over it. {analysis.speedup_name}: {ours} against "
        "the named baseline, the ratio of their columns; efficiency: this over N. A cell that ended early is shown as "
        "if it had been timed in all blocks. Peak memory: of the largest process (on a GPU, allocated on the device). "
        "In brackets: 95 % intervals (method §2, §6, §8, §9)."
        f"{chosen_note(analysis)}{_launch_note(analysis)}"
    )
    rows = tuple(_results_row(analysis, cell) for cell in analysis.cells)
    return Table("results", "Results", columns, rows, note)


def chosen_note(analysis: StudyAnalysis, kind: Kind | None = None) -> str:
    """What must be said where the fastest may have been chosen by luck; nothing where it surely is the fastest."""
    chosen = next((row for row in analysis.scaling if row.rivals and row.kind == (kind or analysis.kind)), None)
    if chosen is None:
        return ""
    return f" That of the speed-up of {chosen.cell.id} allows for its having been chosen as the fastest."


def _launch_note(analysis: StudyAnalysis) -> str:
    """What no interval can know where each cell was launched once."""
    launches = [
        {(session, cell.launches.get((session, block), 0)) for session, block in cell.blocks}
        for cell in analysis.cells
        if len(cell.blocks) > 1
    ]
    if not launches or any(len(each) > 1 for each in launches):
        return ""
    return " Each cell was launched once: what another launch would change is in no interval."


def compact_table(analysis: StudyAnalysis, width: int = TERMINAL_WIDTH) -> Table:
    """The results that fit a terminal of `width` columns, with two spaces between the columns.

    Long names of strategies are cut; what must be explained stands in the State column of `results_table`.
    """
    weak = analysis.kind == "weak"
    columns = (
        Column("Strategy", ("strategy",), align="left"),
        Column("N", ("world_size",)),
        Column("b", ("local_batch",)),
        Column("ms/step", ("step_s",)),
        Column("Samples/s", ("samples_per_s",)),
        Column("Scaled speed-up" if weak else "Speed-up, same B", interval_keys("speedup")),
        Column("Eff. %", ("efficiency",)),
        Column("Sync %", ("exposed_share",), between_workers=True),
    )
    rows = [_compact_row(analysis, cell) for cell in analysis.cells]
    others = sum(
        max(len(column.heading), *(len(row[i].plain) for row in rows), 0)
        for i, column in enumerate(columns[1:], start=1)
    )
    room = max(MIN_NAME_WIDTH, width - others - 2 * (len(columns) - 1))
    cut = tuple((_shortened(row[0], room), *row[1:]) for row in rows)
    notes = []
    if any(row[5].interval for row in rows):
        notes.append("In brackets: 95 % intervals.")
    if any(c.world_size > 1 for c in analysis.cells):
        notes.append("Sync %: exposed communication, share of the cell's own mean step (in the report).")
    note = " ".join(notes)
    return Table("compact", "Results", columns, cut, note)


def parts_table(analysis: StudyAnalysis) -> Table:
    """The parts of a mean step of each cell (method.md §2)."""
    columns = (
        CELL,
        *(
            Column(PART_LABELS[part].capitalize(), (part,), "ms", between_workers=part == "exposed_sync_s")
            for part in PARTS
        ),
        Column("Mean step", ("mean_step_s",), "ms"),
        Column("All communication", ("comm_s",), "ms", between_workers=True, note=ALL_NOTE),
        Column("Overlapped", ("overlapped_share",), "%", between_workers=True),
    )
    rows = []
    for cell in analysis.cells:
        if cell.summary is None or cell.breakdown is None:
            continue
        parts = cell.summary.parts_s
        rows.append(
            (
                text(cell.id),
                *(number(_part_s(cell, parts, part), MS) for part in PARTS),
                number(sum(parts.values()), MS),
                number(cell.summary.comm_s, MS),
                number(cell.breakdown.overlapped_share, PERCENT),
            )
        )
    note = (
        "Means over timed steps and ranks; the parts of a row add up to its mean step, and other is what is in no "
        "part (method §2)."
    )
    return Table("parts", "A step, taken apart", columns, tuple(rows), note)


def state_entry(cell: CellAnalysis, row: ScalingRow | None) -> Entry:
    """How a cell ended, and why a number of it is missing; raw, the word for scripts and the reason for people."""
    withheld = row.withheld if row is not None and cell.summary is not None else None
    said = cell.reason if cell.reason != cell.state else None
    reason = "; ".join(part for part in (said, withheld) if part) or None
    return Entry(text(f"{cell.state}; {reason}" if reason else cell.state).text, (cell.state, reason))


def _identity(cell: CellAnalysis) -> tuple[Entry, ...]:
    batches = (cell.world_size, cell.batch_size, cell.global_batch)
    return (text(cell.id), text(cell.strategy), *(integer(value) for value in batches))


def _speedup(analysis: StudyAnalysis, cell: CellAnalysis) -> Entry:
    """The speed-up, or the word that stands in its place."""
    row = analysis.scaling_of(cell)
    if row is None and cell.summary is not None:
        return Entry("baseline", (None, None, None))
    return ratio(row.speedup if row else None)


def _results_row(analysis: StudyAnalysis, cell: CellAnalysis) -> tuple[Entry, ...]:
    row, summary = analysis.scaling_of(cell), cell.summary
    return (
        *_identity(cell),
        estimate(summary.step_s if summary else None, MS),
        estimate(summary.samples_per_s if summary else None),
        _speedup(analysis, cell),
        text(row.baseline.id if row and row.baseline else None),
        number(_efficiency(row), PERCENT),
        number(cell.exposed_share, PERCENT),
        number(cell.record.peak_memory_bytes if cell.record else None, 1 / GIB),
        state_entry(cell, row),
    )


def _compact_row(analysis: StudyAnalysis, cell: CellAnalysis) -> tuple[Entry, ...]:
    row, summary = analysis.scaling_of(cell), cell.summary
    speedup = _speedup(analysis, cell)
    if speedup.text == ABSENT:
        speedup = Entry(_word(cell, row), speedup.raw)
    return (
        text(cell.strategy),
        *(Entry(str(value), (value,)) for value in (cell.world_size, cell.batch_size)),
        number(summary.step_s.value if summary else None, MS),
        number(summary.samples_per_s.value if summary else None),
        speedup,
        number(_efficiency(row), PERCENT),
        number(cell.exposed_share, PERCENT),
    )


def _word(cell: CellAnalysis, row: ScalingRow | None) -> str:
    """Why there is no speed-up, in a word or two."""
    if cell.summary is None:
        return "no timed step" if cell.state == "complete" else cell.state
    return "withheld" if row and row.baseline and row.baseline.summary else "no baseline"


def _efficiency(row: ScalingRow | None) -> float | None:
    return row.efficiency.estimate.value if row and row.efficiency else None


def _part_s(cell: CellAnalysis, parts: Mapping[str, float], part: str) -> float | None:
    return None if part == "exposed_sync_s" and cell.exposed_share is None else parts.get(part)


def _shortened(entry: Entry, width: int) -> Entry:
    return entry if len(entry.text) <= width else Entry(f"{entry.text[: width - 1]}…", entry.raw)
