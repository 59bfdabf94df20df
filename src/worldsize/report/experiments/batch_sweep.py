"""Experiment A, `batch-sweep`: time against b, the largest batch, the knee (method.md §9)."""

from worldsize.analysis.numbers import GIB
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.sweep import BatchSweep, SweepRow, sweep_text
from worldsize.report.charts.sweep import epoch_chart, rate_chart
from worldsize.report.result_tables import MS, PERCENT
from worldsize.report.section import Section
from worldsize.report.tables import Column, Entry, Table, estimate, integer, interval_keys, number, text


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
    on_gpu = _on_gpu(analysis)
    columns = (
        Column("Strategy", ("strategy",), align="left"),
        Column("N", ("world_size",)),
        Column("b", ("local_batch",)),
        Column("Epoch without data wait", ("epoch_s",), "s"),
        Column("Step", interval_keys("step_s"), "ms"),
        Column("Throughput", interval_keys("samples_per_s"), "samples/s"),
        Column("Of the best", ("share_of_best",), "%"),
        Column("Peak memory", ("peak_memory_bytes",), "GiB"),
        *([Column("Reserved", ("peak_reserved_bytes",), "GiB")] if on_gpu else ()),
        Column("Fits", ("fits",), align="prose"),
    )
    rows = tuple(_table_row(row, sweep, on_gpu=on_gpu) for sweep in analysis.sweeps for row in sweep.rows)
    _, data, _ = analysis.record.training
    note = (
        f"Each batch ran in fresh processes. An epoch is D/B steps over D = {data.train_samples:,} "
        "samples, each step − its wait for data: copy to the device, gradients and update are in it. Peak memory: of "
        "the largest process (on a GPU, allocated on the device). The knee is the smallest b within 5 % of the best "
        "throughput, by the blocks that were timed in turn where there are any: the best size and those near it; its "
        "interval stands in the text (method §9)."
    )
    if on_gpu:
        note += " Reserved: what the allocator of the GPU held at most, tensors in it or not."
    return Table("a-batch-sweep", "A. Time against b", columns, rows, note)


def _on_gpu(analysis: StudyAnalysis) -> bool:
    """Whether an allocator of a device has told what it held."""
    rows = (row for sweep in analysis.sweeps for row in sweep.rows)
    return any(row.cell.record is not None and row.cell.record.peak_reserved_bytes is not None for row in rows)


def _table_row(row: SweepRow, sweep: BatchSweep, *, on_gpu: bool) -> tuple[Entry, ...]:
    cell, summary = row.cell, row.cell.summary
    best = max((r.cell.summary.samples_per_s.value for r in sweep.rows if r.cell.summary), default=None)
    share = summary.samples_per_s.value / best if summary and best else None
    marks = [name for name, b in (("knee", sweep.knee), ("largest", sweep.largest)) if b == cell.batch_size]
    if sweep.knee_low is not None and sweep.knee_high is not None and cell.batch_size != sweep.knee:
        marks += ["may be the knee"] if sweep.knee_low <= cell.batch_size <= sweep.knee_high else []
    word = {True: "yes", False: "no", None: "unknown"}[row.fits]
    said = "; ".join(part for part in (word, *marks, None if row.fits else cell.reason) if part)
    return (
        text(cell.strategy),
        integer(cell.world_size),
        integer(cell.batch_size),
        number(row.epoch_s),
        estimate(summary.step_s if summary else None, MS),
        estimate(summary.samples_per_s if summary else None),
        number(share, PERCENT),
        number(cell.record.peak_memory_bytes if cell.record else None, 1 / GIB),
        *([number(cell.record.peak_reserved_bytes if cell.record else None, 1 / GIB)] if on_gpu else ()),
        text(said),
    )
