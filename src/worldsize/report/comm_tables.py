"""Tables of communication: of the cells, and of the collective benchmark (method.md §3, §5)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from worldsize.analysis.bandwidth import (
    MIN_R_SQUARED,
    CostModel,
    CurvePoint,
    collectives_of,
    curve,
    fit,
    in_turn_s,
    peak,
)
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.collective_cost import ROOTED, as_run, wire_factor
from worldsize.analysis.communication import Communication, waits_text
from worldsize.analysis.numbers import ABSENT, number_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.config import SlowestLink
from worldsize.report.columns import MS, ColumnOf, estimates, integers, numbers, table_of, texts
from worldsize.report.result_tables import CELL, step_s
from worldsize.report.tables import Entry, Table, headed, text, with_columns
from worldsize.results.comm_records import CommRecord

COMM_NOTE = (
    "Time per call from the first rank's begin to the last rank's end, median over samples with its 95 % interval. "
    "algbw = S ÷ t; busbw = algbw × 2(N−1)/N for all-reduce, (N−1)/N for all-gather and reduce-scatter, 1 for "
    "broadcast; for gather and scatter it is the rate through the root's link. 1 GB = 1e9 bytes (method.md §5)."
)
SENT_AS_ANOTHER = "*"
ALL_REDUCE_NOTE = (
    f" {SENT_AS_ANOTHER} gloo sends an all-reduce instead: twice the bytes that busbw counts for a reduce-scatter. "
    "α, β and the share of the link are those of the bytes that are sent."
)


def comm_table(record: CommRecord) -> Table:
    """Time and bandwidths of each collective by size."""
    columns: list[ColumnOf[CurvePoint]] = [
        texts("Collective", "collective", lambda point: point.collective),
        integers("S", "size_bytes", lambda point: point.size_bytes, "bytes"),
        estimates("Time", "time_s", lambda point: point.time_s, "ms"),
        numbers("algbw", "algbw_bytes_per_s", lambda point: point.algbw_bytes_per_s, "GB/s"),
        numbers("busbw", "busbw_bytes_per_s", lambda point: point.busbw_bytes_per_s, "GB/s"),
        integers("Wrong", "wrong_elements", lambda point: point.wrong_elements),
    ]
    points = (point for name in collectives_of(record) for point in curve(record, name))
    title = f"Collectives between {record.world_size} workers ({record.placement.backend})"
    return table_of("collectives", title, columns, points, COMM_NOTE)


class _Fit(NamedTuple):
    """What the link can do in a collective; the model is None where it says nothing."""

    collective: str
    backend: str
    peak: float | None
    share: float | None
    model: CostModel | None


def model_table(record: CommRecord) -> Table:
    """Peak, and the α–β model of each collective."""
    columns: list[ColumnOf[_Fit]] = [
        ColumnOf("Collective", ("collective",), align="left", value=_named),
        numbers("Peak busbw", "peak_bytes_per_s", lambda row: row.peak, "GB/s"),
        numbers("of the link", "share_of_payload_rate", lambda row: row.share, "%"),
        numbers("α", "alpha_s", lambda row: row.model.alpha_s if row.model else None, "µs"),
        numbers("β", "beta_bytes_per_s", lambda row: row.model.beta_bytes_per_s if row.model else None, "GB/s"),
        numbers("γ", "segment_s", lambda row: row.model.segment_s if row.model else None, "µs"),
        integers("p", "exponent", lambda row: row.model.exponent if row.model else None),
        numbers("R²", "r_squared", lambda row: row.model.r_squared if row.model else None),
        ColumnOf("Fitted to", ("smallest_bytes", "largest_bytes"), "bytes", value=_fitted_to),
    ]
    note = (
        "t(S) = ((steps·α)^p + (further segments·γ + factor·S/β)^p)^(1/p): latency and bytes are added where p is 1; "
        "the larger p is, the more of the shorter one hides behind the longer one. γ is 0 where the times show no "
        f"latency of segments. R² of log t, no model below {MIN_R_SQUARED} (method.md §5)."
    )
    rows = [_fit(record, name) for name in collectives_of(record)]
    if any(as_run(name, record.placement.backend) != name for name in collectives_of(record)):
        note += ALL_REDUCE_NOTE
    one_way_s = in_turn_s(record)
    if one_way_s is not None:
        note += f" Where gather and scatter take turns, each way of 1 KiB takes {number_text(1e6 * one_way_s)} µs."
    note += _links_note(record)
    return table_of("cost-models", "What the link can do", columns, rows, note)


def _fit(record: CommRecord, name: str) -> _Fit:
    size, backend, points = record.world_size, record.placement.backend, curve(record, name)
    best, model, rated = peak(points), fit(points, size, backend), _rated(record, name)
    share = best * wire_factor(name, size, backend) / rated.bytes_per_s if best and rated else None
    return _Fit(name, backend, best, share, None if model and model.r_squared < MIN_R_SQUARED else model)


def _rated(record: CommRecord, name: str) -> SlowestLink | None:
    """What the emulated links let a collective carry."""
    return record.hosts.slowest(record.world_size, rooted=name in ROOTED) if record.hosts else None


def _links_note(record: CommRecord) -> str:
    """What the shares of the link are of; where links differ, which one it is that carries no more."""
    rates: dict[SlowestLink, list[str]] = {}
    for name in collectives_of(record):
        if rated := _rated(record, name):
            rates.setdefault(rated, []).append(name)
    if not rates:
        return ""
    said = []
    for rated, names in rates.items():
        text = f"{rated.bytes_per_s / 1e9:.4g} GB/s of TCP payload"
        text += f" in {', '.join(names)}" if len(rates) > 1 else ""
        said.append(text if rated.host is None else f"{text}, bound by the link of host {rated.host}")
    return f" The emulated links can carry {'; '.join(said)} (method.md §12)."


def _named(row: _Fit) -> Entry:
    """The name of a collective, with a mark where another one is sent instead (method.md §5)."""
    mark = "" if as_run(row.collective, row.backend) == row.collective else SENT_AS_ANOTHER
    return Entry(f"{row.collective}{mark}", (row.collective,))


def _fitted_to(row: _Fit) -> Entry:
    if row.model is None:
        return Entry(ABSENT, (None, None))
    smallest, largest = row.model.smallest_bytes, row.model.largest_bytes
    return Entry(f"{smallest:,} … {largest:,}", (smallest, largest))


PEAK_NOTE = (
    "Link, measured: the best busbw of the collective benchmark, of gather and scatter for gather-scatter and of the "
    "other collectives for the rest; none stands beside workers of one process, whose copies no benchmark measures."
)


SHORT = {
    "cell": "Strategy, N, b",
    "exposed_timeline_s": "exposed",
    "exposed_pairing_s": "paired",
    "overlapped_s": "hidden",
    "wait_s": "wait",
    "transfer_s": "transfer",
    "busbw_bytes_per_s": "GB/s",
    "link_peak_bytes_per_s": "peak",
}
"""What the terminal shows of it, and under which headings."""


def communication_table(analysis: StudyAnalysis) -> Table:
    """Communication of each cell: exposed both ways, wait and transfer, bandwidth beside the link's."""
    columns: list[ColumnOf[CellAnalysis]] = [
        CELL,
        estimates("Step", "step_s", step_s, "ms"),
        estimates("Exposed, timeline", "exposed_timeline_s", lambda cell: cell.exposed_s, "ms"),
        estimates("Exposed, pairing", "exposed_pairing_s", lambda cell: cell.paired_s, "ms"),
        numbers("Overlapped", "overlapped_s", _overlapped_s, "ms"),
        numbers("Wait, mean over ranks", "wait_s", lambda cell: _sent(cell).wait_s, "ms"),
        ColumnOf("Longest wait", ("wait_most_s", "wait_most_rank"), "ms", value=lambda cell: _extreme(cell, 0)),
        ColumnOf("Shortest wait", ("wait_least_s", "wait_least_rank"), "ms", value=lambda cell: _extreme(cell, 1)),
        numbers("Transfer", "transfer_s", lambda cell: _sent(cell).transfer_s, "ms"),
        numbers("busbw", "busbw_bytes_per_s", lambda cell: _sent(cell).busbw_bytes_per_s, "GB/s"),
        numbers("Link, measured", "link_peak_bytes_per_s", lambda cell: link_peak(analysis, cell), "GB/s"),
        numbers("Link, rated", "link_payload_bytes_per_s", lambda cell: link_rate(analysis, cell), "GB/s"),
    ]
    found = _communicating(analysis)
    note = (
        "Step: elapsed time ÷ steps; the others: means over ranks, of this step: those of a cell that ended early are "
        "scaled to all blocks as its step is. Exposed: communication during which "
        "a rank computes nothing, by the timeline (all timed steps) and by pairing (steps with − "
        "without synchronisation of the same worker); the rest of it is overlapped. Wait: a rank has called a "
        "collective, and not all ranks have; longest and shortest: means of single ranks, where they differ by "
        "more than their clocks; transfer: from then on. busbw = bus bytes ÷ the time from the last "
        f"issue to the last end of each message. {PEAK_NOTE} Rated: TCP payload of the emulated link "
        f"(method §3, §5, §12).{slowest_note(analysis, found)}"
    )
    return table_of("communication", "Communication", columns, found, note)


def _communicating(analysis: StudyAnalysis) -> list[CellAnalysis]:
    return [cell for cell in analysis.cells if cell.communication is not None]


def _sent(cell: CellAnalysis) -> Communication:
    found = cell.communication_of_step
    assert found is not None, "only cells that communicate have a row"
    return found


def _overlapped_s(cell: CellAnalysis) -> float | None:
    hidden_s = cell.summary.overlapped_s if cell.summary else None
    return None if hidden_s is None else cell.step_scale * hidden_s


def _extreme(cell: CellAnalysis, place: int) -> Entry:
    """`20.4 (rank 0)`, the wait of the rank that waits longest (0) or shortest (1)."""
    extremes = _sent(cell).extremes
    if extremes is None:
        return Entry(ABSENT, (None, None))
    rank, wait_s = extremes[place]
    return Entry(f"{number_text(MS * wait_s)} (rank {rank})", (wait_s, rank))


def link_peak(analysis: StudyAnalysis, cell: CellAnalysis) -> float | None:
    """The best bus bandwidth (bytes/s) that the benchmark measured of the kind of collective that a cell uses.

    None for workers in one process: their copies cross no link, and no benchmark measures them.
    """
    link, placement = analysis.links.get(cell.world_size), cell.record.placement if cell.record else None
    if link is None or (placement is not None and placement.processes == 1):
        return None
    return link.peak(rooted=cell.traits.rooted)


def link_rate(analysis: StudyAnalysis, cell: CellAnalysis) -> float | None:
    """What the emulated links between the workers of a cell let it move (bytes/s of TCP payload); None of real ones."""
    rated = _slowest(analysis, cell)
    return rated.bytes_per_s if rated else None


def _slowest(analysis: StudyAnalysis, cell: CellAnalysis) -> SlowestLink | None:
    """The link that bounds the collectives of a cell (method.md §12)."""
    link = analysis.links.get(cell.world_size)
    return link.rated(rooted=cell.traits.rooted) if link else None


def slowest_note(analysis: StudyAnalysis, cells: Iterable[CellAnalysis]) -> str:
    """Which of the emulated links the rates of these cells are bound by, where these are not alike; else empty."""
    bound: dict[int, list[str]] = {}
    for cell in cells:
        rated = _slowest(analysis, cell)
        if rated and rated.host is not None:
            bound.setdefault(rated.host, []).append(cell.id)
    said = [f"host {host}'s" + (f" in {', '.join(names)}" if len(bound) > 1 else "") for host, names in bound.items()]
    return f" The links differ. Rated is the one that limits a cell: {', '.join(said)}." if said else ""


def communication_summary(analysis: StudyAnalysis) -> Table:
    """The same for 80 columns: a line per cell, without intervals and without columns that are empty."""
    found, short = _communicating(analysis), headed(communication_table(analysis), SHORT)
    known = [place for place in range(1, len(SHORT)) if any(row[place].raw[0] is not None for row in short.rows)]
    short = with_columns(short, [0, *known])
    labels = [column.label for column in short.columns]
    columns = tuple(replace(column, keys=column.keys[:1]) for column in short.columns)
    rows = tuple(
        (text(_name(cell)), *(Entry(entry.text, entry.raw[:1]) for entry in row[1:]))
        for cell, row in zip(found, short.rows, strict=True)
    )
    title = "Communication (ms per step"
    if "GB/s" in labels or "peak" in labels:
        title += "; GB/s" + (" beside the link's measured peak" if "peak" in labels else "")
    rated = sorted({rate for cell in found if (rate := link_rate(analysis, cell)) is not None})
    between = dict.fromkeys(number_text(rate / 1e9) for rate in (*rated[:1], *rated[-1:]))
    title += f", rated {' to '.join(between)})" if rated else ")"
    return Table("communication-summary", title, columns, rows, _most_unlike(found))


def _most_unlike(found: Sequence[CellAnalysis]) -> str:
    """That waits are means over ranks, and of which cell the ranks differ most."""
    note, most_s, unlike = "Wait: mean over ranks, by rank in the report.", 0.0, ""
    for cell in found:
        sent = _sent(cell)
        both = sent.extremes
        if both and both[0].wait_s - both[1].wait_s > most_s:
            most_s = both[0].wait_s - both[1].wait_s
            unlike = f" Most unlike in {_name(cell)}: {waits_text(sent)}."
    return note + unlike


def _name(cell: CellAnalysis) -> str:
    return f"{cell.strategy} {cell.world_size} {cell.batch_size}"
