"""The table of memory: the peak of each cell, taken apart (method.md §9)."""

from worldsize.analysis.numbers import MIB
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.result_tables import CELL
from worldsize.report.tables import Column, Entry, Table, integer, number, text
from worldsize.results.records import CellRecord

NOTE = (
    "Of the rank with the largest peak. Weights, gradients, optimizer state and copies (buckets of gradients, "
    "replicas): bytes of the tensors that are there. Before the first step: what was in use beside the weights, such "
    "as data in memory. The rest is the peak − all of them: activations, workspace, what torch and its allocator keep; "
    "most activations are gone when the last gradient is there, so it is less than their sum. 1 MiB = 2^20 bytes "
    "(method §9)."
)


def memory_table(analysis: StudyAnalysis) -> Table:
    """A row for each cell whose peak was measured and taken apart."""
    columns = (
        CELL,
        Column("Rank", ("rank",)),
        Column("Weights", ("parameter_bytes",), "MiB"),
        Column("Buffers", ("buffer_bytes",), "MiB"),
        Column("Gradients", ("gradient_bytes",), "MiB"),
        Column("Optimizer state", ("optimizer_bytes",), "MiB"),
        Column("Buckets, replicas", ("copy_bytes",), "MiB"),
        Column("Before the first step", ("before_bytes",), "MiB"),
        Column("The rest", ("rest_bytes",), "MiB"),
        Column("Peak memory", ("peak_memory_bytes",), "MiB"),
    )
    found = (cell.record for cell in analysis.cells if cell.record is not None)
    rows = tuple(_row(record) for record in found if record.memory is not None)
    return Table("memory", "Memory, taken apart", columns, rows, NOTE)


def _row(record: CellRecord) -> tuple[Entry, ...]:
    parts, peak = record.memory, record.peak_memory_bytes
    assert parts is not None, "only cells that tell have a row"
    known = (parts.parameter_bytes, parts.buffer_bytes, parts.gradient_bytes, parts.optimizer_bytes, parts.copy_bytes)
    rest = None if peak is None else peak - parts.known_bytes
    shown = (*known, parts.before_bytes, rest, peak)
    return (text(record.id), integer(parts.rank), *(number(each, 1 / MIB) for each in shown))
