"""Tables for 80 columns: short headings, and only what one looks for first. The full ones are in the report."""

from worldsize.analysis.numbers import ABSENT, GIB, size_text
from worldsize.analysis.sweep import BatchSweep, SweepRow, interval_of
from worldsize.report.comm_tables import comm_table, model_table
from worldsize.report.result_tables import MS, PERCENT
from worldsize.report.tables import Column, Entry, Raw, Table, integer, number, text
from worldsize.results.comm_records import CommRecord

FITS = {True: "yes", False: "no", None: "unknown"}


def sweep_summary(sweep: BatchSweep) -> Table:
    """A line for each local batch of a sweep, ascending; knee and largest are marked."""
    columns = (
        Column("b", ("local_batch",)),
        Column("Fits", ("fits",), align="left"),
        Column("ms/step", ("step_s",)),
        Column("Samples/s", ("samples_per_s",)),
        Column("Of best %", ("share_of_best",)),
        Column("Peak memory GiB", ("peak_memory_bytes",)),
        Column("", ("mark",), align="left"),
    )
    best = max((row.cell.summary.samples_per_s.value for row in sweep.rows if row.cell.summary), default=None)
    notes = [f"Knee: the smallest b within 5 % of the best samples/s ({interval_of(sweep)})."] if sweep.knee else []
    if any(row.fits and row.cell.summary is None for row in sweep.rows):
        notes.append("Without a time: only tried, to find the largest.")
    workers = "1 worker" if sweep.world_size == 1 else f"{sweep.world_size} workers"
    rows = tuple(_sweep_row(row, sweep, best) for row in sweep.rows)
    return Table("sweep-summary", f"Batch sweep: {sweep.strategy} with {workers}", columns, rows, " ".join(notes))


def _sweep_row(row: SweepRow, sweep: BatchSweep, best: float | None) -> tuple[Entry, ...]:
    cell, summary = row.cell, row.cell.summary
    rate = summary.samples_per_s.value if summary else None
    return (
        integer(cell.batch_size),
        text(FITS[row.fits]),
        number(summary.step_s.value if summary else None, MS),
        number(rate),
        number(rate / best if rate and best else None, PERCENT),
        number(cell.record.peak_memory_bytes if cell.record else None, 1 / GIB),
        _mark(row, sweep),
    )


def _mark(row: SweepRow, sweep: BatchSweep) -> Entry:
    marks = [name for name, b in (("knee", sweep.knee), ("largest", sweep.largest)) if b == row.cell.batch_size]
    if row.fits is None:
        marks.append(row.cell.state)
    return Entry(f"← {', '.join(marks)}" if marks else "", (", ".join(marks) or None,))


def comm_summary(record: CommRecord) -> Table:
    """Time and bandwidths of each collective by size."""
    full = comm_table(record)
    headings = ("Collective", "S", "ms", "algbw", "busbw", "Wrong")
    columns = tuple(
        Column(name, each.keys, align=each.align) for name, each in zip(headings, full.columns, strict=True)
    )
    rows = tuple((row[0], _size(row[1].raw), *row[2:]) for row in full.rows)
    return Table("collectives-summary", f"{full.title}: algbw and busbw in GB/s", columns, rows, full.note)


def model_summary(record: CommRecord) -> Table:
    """Peak, and the cost model of each collective; without the columns that say nothing, for names need the room."""
    full = model_table(record)
    headings = ("Collective", "Peak GB/s", "Of link %", "α µs", "β GB/s", "γ µs", "R²", "Fitted to")
    empty = {at for at in (2, 5) if not any(row[at].raw[0] for row in full.rows)}
    columns = tuple(
        Column(name, each.keys, align=each.align)
        for at, (name, each) in enumerate(zip(headings, full.columns, strict=True))
        if at not in empty
    )
    rows = tuple(
        (*(entry for at, entry in enumerate(row[:-1]) if at not in empty), _size(row[-1].raw)) for row in full.rows
    )
    return Table("cost-models-summary", full.title, columns, rows, full.note)


def _headed(table: Table, headings: tuple[str, ...]) -> tuple[Column, ...]:
    """The columns of a table under shorter headings."""
    return tuple(
        Column(heading, column.keys, align=column.align)
        for heading, column in zip(headings, table.columns, strict=True)
    )


def _size(raw: tuple[Raw, ...]) -> Entry:
    """Sizes in bytes, `1 KiB … 16 MiB`."""
    return Entry(" … ".join(size_text(size) for size in raw if isinstance(size, int)) or ABSENT, raw)
