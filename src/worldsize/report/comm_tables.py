"""Tables of the collective benchmark (method.md §5)."""

from collections.abc import Iterator

from worldsize.analysis.bandwidth import CostModel, CurvePoint, curve, fit, peak
from worldsize.report.tables import Column, Entry, Table, estimate, integer, interval_keys, number, text
from worldsize.results.records import CommRecord

COMM_NOTE = (
    "Time per call on the slowest rank, median over samples with its 95 % interval. algbw = S ÷ t; busbw = algbw × "
    "2(N−1)/N for all-reduce, (N−1)/N for all-gather and reduce-scatter, 1 for broadcast; for gather and scatter it is "
    "the rate through the root's link. 1 GB = 1e9 bytes (method.md §5)."
)


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
        Column("R²", ("r_squared",)),
        Column("Fitted to", ("smallest_bytes", "largest_bytes"), "bytes"),
    )
    rows = tuple(_model_rows(record, rated))
    note = "t(S) = steps·α + factor·S/β (method.md §5); R² of log t."
    if rated is not None:
        note += f" The emulated links can carry {rated / 1e9:.4g} GB/s of TCP payload (method.md §12)."
    return Table("cost-models", "What the link can do", columns, rows, note)


def _model_rows(record: CommRecord, rated: float | None) -> Iterator[tuple[Entry, ...]]:
    for name in collectives_of(record):
        points = curve(record, name)
        best, model = peak(points), fit(points, record.world_size)
        share = None if rated is None or best is None else best / rated
        yield (text(name), number(best, 1e-9), number(share, 100), *_model_entries(model))


def _model_entries(model: CostModel | None) -> tuple[Entry, ...]:
    if model is None:
        return number(None), number(None), number(None), Entry("–", (None, None))
    fitted = f"{model.smallest_bytes:,} … {model.largest_bytes:,}"
    return (
        number(model.alpha_s, 1e6),
        number(model.beta_bytes_per_s, 1e-9),
        number(model.r_squared),
        Entry(fitted, (model.smallest_bytes, model.largest_bytes)),
    )
