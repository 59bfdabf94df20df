"""Experiment A, `batch-sweep`: time against b, the largest batch, the knee (method.md §9)."""

from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.sweep import BatchSweep, SweepRow, sweep_text
from worldsize.report.charts.sweep import epoch_chart, rate_chart
from worldsize.report.columns import ColumnOf, estimates, integers, numbers, prose, table_of, texts
from worldsize.report.narrow_tables import FITS, marks, share_of_best
from worldsize.report.result_tables import peak_memory_bytes, samples_per_s, step_s
from worldsize.report.section import Section
from worldsize.report.tables import Table

Tried = tuple[SweepRow, BatchSweep]
"""A batch, and its sweep."""


def section(analysis: StudyAnalysis) -> Section:
    """Table, chart and paragraph of the sweep."""
    found = analysis.sweeps
    return Section(
        "experiment-a",
        "A. Batch size upward",
        tuple(drawing for drawing in (epoch_chart(found, analysis), rate_chart(found)) if drawing),
        (sweep_table(analysis),),
        tuple(sweep_text(sweep) for sweep in found),
    )


def sweep_table(analysis: StudyAnalysis) -> Table:
    """A row for each batch that was tried; one that did not fit is a row with its reason."""
    rows = [(row, sweep) for sweep in analysis.sweeps for row in sweep.rows]
    on_gpu = any(_reserved_bytes(row) is not None for row in rows)
    columns: list[ColumnOf[Tried] | None] = [
        texts("Strategy", "strategy", lambda row: row[0].cell.strategy),
        integers("N", "world_size", lambda row: row[0].cell.world_size),
        integers("b", "local_batch", lambda row: row[0].cell.batch_size),
        numbers("Epoch without data wait", "epoch_s", lambda row: row[0].epoch_s, "s"),
        estimates("Step", "step_s", lambda row: step_s(row[0].cell), "ms"),
        estimates("Throughput", "samples_per_s", lambda row: samples_per_s(row[0].cell), "samples/s"),
        numbers("Of the best", "share_of_best", lambda row: share_of_best(*row), "%"),
        numbers("Peak memory", "peak_memory_bytes", lambda row: peak_memory_bytes(row[0].cell), "GiB"),
        numbers("Reserved", "peak_reserved_bytes", _reserved_bytes, "GiB") if on_gpu else None,
        prose("Fits", "fits", lambda row: _fits(*row)),
    ]
    _, data, _ = analysis.record.training
    note = (
        f"Each batch ran in fresh processes. An epoch is D/B steps over D = {data.train_samples:,} "
        "samples, each step − its wait for data: copy to the device, gradients and update are in it. Peak memory: of "
        "the largest process (on a GPU, allocated on the device). The knee is the smallest b within 5 % of the best "
        "throughput. The best size and those near it are compared by blocks timed in turn, where there was time for "
        "them; all others, in Of the best too, by their trials. The interval of the knee stands in the text (method "
        "§9)."
    )
    if on_gpu:
        note += " Reserved: what the allocator of the GPU held at most, tensors in it or not."
    return table_of("a-batch-sweep", "A. Time against b", columns, rows, note)


def _reserved_bytes(row: Tried) -> int | None:
    """What an allocator of a device has told that it held."""
    record = row[0].cell.record
    return record.peak_reserved_bytes if record else None


def _fits(row: SweepRow, sweep: BatchSweep) -> str:
    b, said = row.cell.batch_size, [FITS[row.fits], *marks(row, sweep)]
    if sweep.knee_low is not None and sweep.knee_high is not None and b != sweep.knee:
        said += ["may be the knee"] if sweep.knee_low <= b <= sweep.knee_high else []
    return "; ".join(part for part in (*said, None if row.fits else row.cell.reason) if part)
