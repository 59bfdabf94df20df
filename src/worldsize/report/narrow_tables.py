"""Tables for 80 columns: short headings, and only what one looks for first. The full ones are in the report."""

from dataclasses import replace

from worldsize.analysis.numbers import ABSENT, size_text
from worldsize.analysis.sweep import BatchSweep, SweepRow, in_turn, interval_of
from worldsize.report.columns import FACTORS, MS, PERCENT, ColumnOf, integers, numbers, table_of, texts
from worldsize.report.comm_tables import comm_table, model_table
from worldsize.report.result_tables import peak_memory_bytes, samples_per_s, step_s, value_of
from worldsize.report.tables import Entry, Table, headed, with_columns
from worldsize.results.comm_records import CommRecord

FITS = {True: "yes", False: "no", None: "unknown"}
COMM = {
    "collective": "Collective",
    "size_bytes": "S",
    "time_s": "ms",
    "algbw_bytes_per_s": "algbw",
    "busbw_bytes_per_s": "busbw",
    "wrong_elements": "Wrong",
}
MODEL = {
    "collective": "Collective",
    "peak_bytes_per_s": "Peak GB/s",
    "share_of_payload_rate": "Of link %",
    "alpha_s": "α µs",
    "beta_bytes_per_s": "β GB/s",
    "segment_s": "γ µs",
    "exponent": "p",
    "r_squared": "R²",
    "smallest_bytes": "Fitted to",
}
"""Short headings by the keys of the full tables."""
MAY_SAY_NOTHING = ("share_of_payload_rate", "segment_s")


def sweep_summary(sweep: BatchSweep) -> Table:
    """A line for each local batch of a sweep, ascending; knee and largest are marked."""
    columns: list[ColumnOf[SweepRow]] = [
        integers("b", "local_batch", lambda row: row.cell.batch_size),
        texts("Fits", "fits", lambda row: FITS[row.fits]),
        numbers("ms/step", "step_s", lambda row: value_of(step_s(row.cell)), factor=MS),
        numbers("Samples/s", "samples_per_s", lambda row: value_of(samples_per_s(row.cell))),
        numbers("Of best %", "share_of_best", lambda row: share_of_best(row, sweep), factor=PERCENT),
        numbers("Peak memory GiB", "peak_memory_bytes", lambda row: peak_memory_bytes(row.cell), factor=FACTORS["GiB"]),
        ColumnOf("", ("mark",), align="left", value=lambda row: _mark(row, sweep)),
    ]
    notes = [f"Knee: the smallest b within 5 % of the best samples/s ({interval_of(sweep)})."] if sweep.knee else []
    if any(row.fits and row.cell.summary is None for row in sweep.rows):
        notes.append("Without a time: only tried, to find the largest.")
    if any(row.cell.summary and not in_turn(row.cell.blocks) for row in sweep.rows):
        notes.append("Of best %: of sizes that were not timed in turn it is by their trials.")
    workers = "1 worker" if sweep.world_size == 1 else f"{sweep.world_size} workers"
    title = f"Batch sweep: {sweep.strategy} with {workers}"
    return table_of("sweep-summary", title, columns, sweep.rows, " ".join(notes))


def share_of_best(row: SweepRow, sweep: BatchSweep) -> float | None:
    """Samples/s ÷ those of the best batch of the sweep, as the knee takes them."""
    return sweep.shares.get(row.cell.batch_size) if row.cell.summary else None


def marks(row: SweepRow, sweep: BatchSweep) -> list[str]:
    """Whether a batch is the knee, or the largest that fits."""
    return [name for name, b in (("knee", sweep.knee), ("largest", sweep.largest)) if b == row.cell.batch_size]


def _mark(row: SweepRow, sweep: BatchSweep) -> Entry:
    said = ", ".join([*marks(row, sweep), *([row.cell.state] if row.fits is None else [])])
    return Entry(f"← {said}" if said else "", (said or None,))


def comm_summary(record: CommRecord) -> Table:
    """Time and bandwidths of each collective by size."""
    full = comm_table(record)
    short = headed(full, COMM)
    rows = tuple((name, _size(size), *others) for name, size, *others in short.rows)
    return replace(short, id="collectives-summary", title=f"{full.title}: algbw and busbw in GB/s", rows=rows)


def model_summary(record: CommRecord) -> Table:
    """Peak, and the cost model of each collective; without the columns that say nothing, for names need the room."""
    short = headed(model_table(record), MODEL)
    added = [
        place
        for place, column in enumerate(short.columns)
        if column.keys[0] not in MAY_SAY_NOTHING or any(row[place].raw[0] for row in short.rows)
    ]
    short = with_columns(short, added)
    return replace(short, id="cost-models-summary", rows=tuple((*row[:-1], _size(row[-1])) for row in short.rows))


def _size(entry: Entry) -> Entry:
    """Sizes in bytes, `1 KiB … 16 MiB`."""
    sizes = [size_text(size) for size in entry.raw if isinstance(size, int)]
    return Entry(" … ".join(sizes) or ABSENT, entry.raw)
