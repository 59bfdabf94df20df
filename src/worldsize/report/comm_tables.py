"""Tables of communication: of the cells, and of the collective benchmark (method.md §3, §5)."""

from collections.abc import Iterator, Sequence

from worldsize.analysis.bandwidth import LEAST_R_SQUARED, CostModel, CurvePoint, curve, fit, peak
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.collective_cost import as_run, wire_factor
from worldsize.analysis.communication import RankWait, waits_text
from worldsize.analysis.numbers import ABSENT, number_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.tables import Column, Entry, Table, estimate, integer, interval_keys, number, text
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


def _named(collective: str, backend: str) -> Entry:
    """The name of a collective, with a mark where a backend sends another one instead (method.md §5)."""
    mark = "" if as_run(collective, backend) == collective else SENT_AS_ANOTHER
    return Entry(f"{collective}{mark}", (collective,))


def collectives_of(record: CommRecord) -> list[str]:
    """The collectives that were measured, in order."""
    return list(dict.fromkeys(sample.collective for sample in record.ranks[0]))


def comm_table(record: CommRecord) -> Table:
    """Time and bandwidths of each collective by size."""
    columns = (
        Column("Collective", ("collective",), align="left"),
        Column("S", ("size_bytes",), "bytes"),
        Column("Time", interval_keys("time_s"), "ms"),
        Column("algbw", ("algbw_bytes_per_s",), "GB/s"),
        Column("busbw", ("busbw_bytes_per_s",), "GB/s"),
        Column("Wrong", ("wrong_elements",), align="right"),
    )
    rows = tuple(_row(point) for name in collectives_of(record) for point in curve(record, name))
    title = f"Collectives between {record.world_size} workers ({record.placement.backend})"
    return Table("collectives", title, columns, rows, COMM_NOTE)


def _row(point: CurvePoint) -> tuple[Entry, ...]:
    return (
        text(point.collective),
        integer(point.size_bytes),
        estimate(point.time_s, 1e3),
        number(point.algbw_bytes_per_s, 1e-9),
        number(point.busbw_bytes_per_s, 1e-9),
        integer(point.wrong_elements),
    )


def model_table(record: CommRecord) -> Table:
    """Peak, and the α–β model of each collective."""
    rated = None if record.hosts is None else record.hosts.payload_bytes_per_s
    columns = (
        Column("Collective", ("collective",), align="left"),
        Column("Peak busbw", ("peak_bytes_per_s",), "GB/s"),
        Column("of the link", ("share_of_payload_rate",), "%"),
        Column("α", ("alpha_s",), "µs"),
        Column("β", ("beta_bytes_per_s",), "GB/s"),
        Column("γ", ("segment_s",), "µs"),
        Column("R²", ("r_squared",)),
        Column("Fitted to", ("smallest_bytes", "largest_bytes"), "bytes"),
    )
    rows = tuple(_model_rows(record, rated))
    note = (
        "t(S) = steps·α + further segments·γ + factor·S/β; γ is 0 where the times show no latency of segments. "
        f"R² of log t, no model below {LEAST_R_SQUARED} (method.md §5)."
    )
    if any(as_run(name, record.placement.backend) != name for name in collectives_of(record)):
        note += ALL_REDUCE_NOTE
    if rated is not None:
        note += f" The emulated links can carry {rated / 1e9:.4g} GB/s of TCP payload (method.md §12)."
    return Table("cost-models", "What the link can do", columns, rows, note)


def _model_rows(record: CommRecord, rated: float | None) -> Iterator[tuple[Entry, ...]]:
    backend = record.placement.backend
    for name in collectives_of(record):
        points = curve(record, name)
        best, model = peak(points), fit(points, record.world_size, backend)
        share = None if rated is None or best is None else best * wire_factor(name, record.world_size, backend) / rated
        yield (_named(name, backend), number(best, 1e-9), number(share, 100), *_model_entries(model))


def _model_entries(model: CostModel | None) -> tuple[Entry, ...]:
    if model is None or model.r_squared < LEAST_R_SQUARED:
        return *(number(None) for _ in range(4)), Entry("–", (None, None))
    fitted = f"{model.smallest_bytes:,} … {model.largest_bytes:,}"
    return (
        number(model.alpha_s, 1e6),
        number(model.beta_bytes_per_s, 1e-9),
        number(model.segment_s, 1e6),
        number(model.r_squared),
        Entry(fitted, (model.smallest_bytes, model.largest_bytes)),
    )


PEAK_NOTE = (
    "Link, measured: the best busbw of the collective benchmark, of gather and scatter for gather-scatter and of the "
    "other collectives for the rest; none stands beside workers of one process, whose copies no benchmark measures."
)


def communication_table(analysis: StudyAnalysis) -> Table:
    """Communication of each cell: exposed both ways, wait and transfer, bandwidth beside the link's."""
    columns = (
        Column("Cell", ("cell",), align="left"),
        Column("Step", interval_keys("step_s"), "ms"),
        Column("Exposed, timeline", interval_keys("exposed_timeline_s"), "ms"),
        Column("Exposed, pairing", interval_keys("exposed_pairing_s"), "ms"),
        Column("Overlapped", ("overlapped_s",), "ms"),
        Column("Wait, mean over ranks", ("wait_s",), "ms"),
        Column("Longest wait", ("wait_most_s", "wait_most_rank"), "ms"),
        Column("Shortest wait", ("wait_least_s", "wait_least_rank"), "ms"),
        Column("Transfer", ("transfer_s",), "ms"),
        Column("busbw", ("busbw_bytes_per_s",), "GB/s"),
        Column("Link, measured", ("link_peak_bytes_per_s",), "GB/s"),
        Column("Link, rated", ("link_payload_bytes_per_s",), "GB/s"),
    )
    found = [cell for cell in analysis.cells if cell.communication is not None]
    rows = tuple(_communication_row(analysis, cell) for cell in found)
    note = (
        "Step: elapsed time ÷ steps; the others: means per step over ranks. Exposed: communication during which "
        "a rank computes nothing, by the timeline (all timed steps) and by pairing (step − the same worker's step "
        "without exchange, in turn, in the blocks that were paired); the rest of it is overlapped. Wait: until the "
        "last rank has issued a message; longest and shortest: means of single ranks, where they differ by "
        "more than their clocks; transfer: from then on. busbw = bus bytes ÷ the time from the last "
        f"issue to the last end of each message. {PEAK_NOTE} Rated: TCP payload of the emulated link "
        "(method §3, §5, §12)."
    )
    return Table("communication", "Communication", columns, rows, note)


def _communication_row(analysis: StudyAnalysis, cell: CellAnalysis) -> tuple[Entry, ...]:
    found, both, link = cell.communication, cell.exposed, analysis.links.get(cell.world_size)
    assert found is not None, "only cells that communicate have a row"
    return (
        text(cell.id),
        estimate(cell.summary.step_s if cell.summary else None, 1e3),
        estimate(cell.exposed_s, 1e3),
        estimate(both.pairing if both else None, 1e3),
        number(cell.summary.overlapped_s if cell.summary else None, 1e3),
        number(found.wait_s, 1e3),
        *(_wait_of(each) for each in found.extremes or (None, None)),
        number(found.transfer_s, 1e3),
        number(found.busbw_bytes_per_s, 1e-9),
        number(link_peak(analysis, cell), 1e-9),
        number(link.payload_bytes_per_s if link else None, 1e-9),
    )


def _wait_of(each: RankWait | None) -> Entry:
    """`20.4 (rank 0)`."""
    if each is None:
        return Entry(ABSENT, (None, None))
    return Entry(f"{number_text(1e3 * each.wait_s)} (rank {each.rank})", (each.wait_s, each.rank))


def link_peak(analysis: StudyAnalysis, cell: CellAnalysis) -> float | None:
    """The best bus bandwidth (bytes/s) that the benchmark measured of the kind of collective that a cell uses.

    None for workers in one process: their copies cross no link, and no benchmark measures them.
    """
    link, placement = analysis.links.get(cell.world_size), cell.record.placement if cell.record else None
    if link is None or (placement is not None and placement.processes == 1):
        return None
    return link.peak(rooted=cell.traits.rooted)


def communication_summary(analysis: StudyAnalysis) -> Table:
    """The same for 80 columns: a line per cell, without intervals and without columns that are empty."""
    full = communication_table(analysis)
    names = {2: "exposed", 3: "paired", 4: "hidden", 5: "wait", 8: "transfer", 9: "GB/s", 10: "peak"}
    shown = [i for i in names if any(row[i].raw[0] is not None for row in full.rows)]
    columns = (
        Column("Strategy, N, b", ("cell",), align="left"),
        *(Column(names[i], full.columns[i].keys[:1]) for i in shown),
    )
    found = [cell for cell in analysis.cells if cell.communication is not None]
    rows = tuple(
        (
            text(f"{cell.strategy} {cell.world_size} {cell.batch_size}"),
            *(Entry(row[i].text, row[i].raw[:1]) for i in shown),
        )
        for cell, row in zip(found, full.rows, strict=True)
    )
    title = "Communication (ms per step"
    if 9 in shown or 10 in shown:
        title += "; GB/s" + (" beside the link's measured peak" if 10 in shown else "")
    rated = {rate for link in analysis.links.values() if (rate := link.payload_bytes_per_s) is not None}
    title += f", rated {number_text(max(rated) / 1e9)})" if rated else ")"
    return Table("communication-summary", title, columns, rows, _most_unlike(found))


def _most_unlike(found: Sequence[CellAnalysis]) -> str:
    """That waits are means over ranks, and of which cell the ranks differ most."""
    note, most_s, unlike = "Wait: mean over ranks, by rank in the report.", 0.0, ""
    for cell in found:
        both = cell.communication.extremes if cell.communication else None
        if cell.communication and both and both[0].wait_s - both[1].wait_s > most_s:
            most_s = both[0].wait_s - both[1].wait_s
            name = f"{cell.strategy} {cell.world_size} {cell.batch_size}"
            unlike = f" Most unlike in {name}: {waits_text(cell.communication)}."
    return note + unlike
