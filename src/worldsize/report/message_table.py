"""The table of messages by kind: all that travels, not gradients alone (method.md §4)."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, numbers, table_of, texts
from worldsize.report.tables import Entry, Table, integer, number
from worldsize.results.folder import Cell

WHEN = {"start": "at the start, once", "step": "per step", "evaluation": "per evaluation"}


class _Message(NamedTuple):
    """A kind of message: `calls` of it with so many payload bytes in all."""

    cell_id: str
    when: str
    kind: str
    calls: float
    payload_bytes: float


def messages_table(analysis: StudyAnalysis) -> Table:
    """Messages by kind, with calls and bytes (method.md §4)."""
    columns: list[ColumnOf[_Message]] = [
        texts("Cell", "cell", lambda sent: sent.cell_id),
        texts("When", "when", lambda sent: WHEN.get(sent.when, sent.when)),
        texts("Message", "kind", lambda sent: sent.kind),
        ColumnOf("Calls", ("calls",), value=_calls),
        numbers("Payload", "payload_bytes", lambda sent: sent.payload_bytes, "MB"),
    ]
    rows = (
        _Message(name, *sent)
        for name, cell in _with_parts(analysis)
        if cell.record.world_size > 1
        for sent in messages(cell)
    )
    note = (
        "Counted on rank 0: at the start and in an evaluation each operation that reaches torch's dispatcher, in steps "
        "each message of the timeline (mean per timed step). Besides gradients, ranks send parameters and buffers at "
        "the start, DDP's checks of them, buffers in each forward, and sums of the metrics. The rendezvous and the "
        "orders of the agent go through a key-value store and are not counted (method §4)."
    )
    return table_of("messages", "Messages by kind", columns, rows, note)


def _calls(sent: _Message) -> Entry:
    """A count, which is a mean only where the steps differ."""
    calls = sent.calls
    return Entry(integer(int(calls)).text, (calls,)) if calls == int(calls) else number(calls)


def _with_parts(analysis: StudyAnalysis) -> Iterator[tuple[str, Cell]]:
    """Cells of the study and, for their evaluations, one of its accuracy runs."""
    yield from analysis.run.cells.items()
    if "accuracy" in analysis.parts:
        evaluated = [item for item in analysis.parts["accuracy"].run.cells.items() if item[1].record.evaluations]
        yield from evaluated[-1:]


def messages(cell: Cell) -> Iterator[tuple[str, str, float, float]]:
    """When, kind, calls and payload bytes: at the start, per timed step, per evaluation; of rank 0."""
    for count in cell.record.messages:
        yield count.when, count.kind, count.calls, count.payload_bytes
    first = pl.col("rank") == 0
    timed = cell.collect(cell.scan_steps().filter("timed", first).select("session", "step"))
    spans = cell.collect(cell.scan_spans().filter(first).select("session", "step", "kind", "payload_bytes"))
    sent = spans.join(timed, on=["session", "step"], maintain_order="left").explode("kind", "payload_bytes")
    for kind, calls, size in (
        sent.group_by("kind", maintain_order=True).agg(pl.len(), pl.col("payload_bytes").sum()).iter_rows()
    ):
        if kind is not None:
            yield "step", kind, calls / timed.height, size / timed.height
    for count in cell.record.evaluations[-1].messages if cell.record.evaluations else []:
        yield count.when, count.kind, count.calls, count.payload_bytes
