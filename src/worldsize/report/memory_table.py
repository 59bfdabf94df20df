"""The table of memory: the peak of each cell, taken apart (method.md §9)."""

from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, integers, numbers, table_of, texts
from worldsize.report.tables import Table
from worldsize.results.memory_records import MemoryParts
from worldsize.results.records import CellRecord

NOTE = (
    "Of the rank with the largest peak. Weights, gradients, optimizer state and copies (buckets of gradients, "
    "replicas): bytes of the tensors that are there. Before the first step: what was in use beside the weights, such "
    "as data in memory. The rest: the peak − all of them: activations, workspace, what torch and its allocator keep; "
    "most activations are gone when the last gradient is there, so it is less than their sum. 1 MiB = 2^20 bytes "
    "(method §9)."
)


def memory_table(analysis: StudyAnalysis) -> Table:
    """A row for each cell whose peak was measured and taken apart."""
    columns: list[ColumnOf[CellRecord]] = [
        texts("Cell", "cell", lambda record: record.id),
        integers("Rank", "rank", lambda record: _parts(record).rank),
        numbers("Weights", "parameter_bytes", lambda record: _parts(record).parameter_bytes, "MiB"),
        numbers("Buffers", "buffer_bytes", lambda record: _parts(record).buffer_bytes, "MiB"),
        numbers("Gradients", "gradient_bytes", lambda record: _parts(record).gradient_bytes, "MiB"),
        numbers("Optimizer state", "optimizer_bytes", lambda record: _parts(record).optimizer_bytes, "MiB"),
        numbers("Buckets, replicas", "copy_bytes", lambda record: _parts(record).copy_bytes, "MiB"),
        numbers("Before the first step", "before_bytes", lambda record: _parts(record).before_bytes, "MiB"),
        numbers("The rest", "rest_bytes", _rest_bytes, "MiB"),
        numbers("Peak memory", "peak_memory_bytes", lambda record: record.peak_memory_bytes, "MiB"),
    ]
    records = (cell.record for cell in analysis.cells if cell.record is not None)
    known = (record for record in records if record.memory is not None)
    return table_of("memory", "Memory, taken apart", columns, known, NOTE)


def _parts(record: CellRecord) -> MemoryParts:
    assert record.memory is not None, "only cells that tell have a row"
    return record.memory


def _rest_bytes(record: CellRecord) -> int | None:
    return None if record.peak_memory_bytes is None else record.peak_memory_bytes - _parts(record).known_bytes
