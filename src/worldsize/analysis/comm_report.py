"""The collective benchmark for scripts, with the same numbers as its tables (method.md §5), and its warnings.

A rank on the wrong network interface reaches rank 0 far more slowly than the others do.
"""

from statistics import median

from worldsize.analysis.bandwidth import MIN_R_SQUARED, CurvePoint, collectives_of, curve, fit, in_turn_s, peak
from worldsize.analysis.collective_cost import as_run
from worldsize.analysis.numbers import GB, number_text
from worldsize.analysis.statistics import reciprocal, scaled
from worldsize.results.comm_records import CommFit, CommPoint, CommRecord, CommReport, PeerRate
from worldsize.results.records import WarningRecord

FAR_BELOW = 0.3
"""Share of the others' rate below which a rank is named: no noise of a machine makes the best of three so slow."""


def slow_peers(record: CommRecord) -> WarningRecord | None:
    """The warning `slow-interface`, if one rank or more are far slower than the others that are as far from rank 0."""
    slow = [peer for peer in _alike(record.peers) if _far_below(peer, _alike(record.peers))]
    if not slow:
        return None
    rest = median(peer.bytes_per_s for peer in _alike(record.peers) if peer not in slow)
    named = "; ".join(f"rank {peer.rank} ({_where(peer)}) {number_text(peer.bytes_per_s / 1e9)} GB/s" for peer in slow)
    return WarningRecord(
        code="slow-interface",
        message=(
            f"to rank 0 go: {named}; the others have {number_text(rest / 1e9)} GB/s\n"
            "Likely the wrong network interface. Name another one on that host: GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME."
        ),
    )


def _alike(peers: list[PeerRate]) -> list[PeerRate]:
    """Those on other hosts than rank 0, where there are any: a neighbour on the same host is no measure for them."""
    away = [peer for peer in peers if not peer.beside_first]
    return away or peers


def _far_below(peer: PeerRate, peers: list[PeerRate]) -> bool:
    others = [each.bytes_per_s for each in peers if each is not peer]
    return bool(others) and peer.bytes_per_s < FAR_BELOW * median(others)


def _where(peer: PeerRate) -> str:
    return f"host {peer.place.host}, interface {peer.place.interface or 'not named'}"


def comm_report(record: CommRecord) -> CommReport:
    """Table, fits and warnings of a benchmark, and the record itself."""
    curves = {name: curve(record, name) for name in collectives_of(record)}
    return CommReport(
        table=[_point(point) for points in curves.values() for point in points],
        fits=[_fit(name, points, record) for name, points in curves.items() if points],
        in_turn_s=in_turn_s(record),
        warnings=comm_warnings(record),
        record=record,
    )


def comm_warnings(record: CommRecord) -> list[WarningRecord]:
    """What was noted while it ran, and what its numbers show."""
    slow = slow_peers(record)
    return [*record.warnings, *([slow] if slow else [])]


def _point(point: CurvePoint) -> CommPoint:
    algbw = reciprocal(point.time_s, point.size_bytes / GB)
    return CommPoint(
        collective=point.collective,
        size_bytes=point.size_bytes,
        time_s=point.time_s,
        algbw_gb_per_s=algbw,
        busbw_gb_per_s=scaled(algbw, point.busbw_bytes_per_s / point.algbw_bytes_per_s),
        wrong_elements=point.wrong_elements,
    )


def _fit(name: str, points: list[CurvePoint], record: CommRecord) -> CommFit:
    backend = record.placement.backend
    best, model = peak(points), fit(points, record.world_size, backend)
    assert best is not None, "there are points"
    sent_as = as_run(name, backend)
    found = CommFit(collective=name, peak_busbw_gb_per_s=best / GB, as_run=sent_as if sent_as != name else None)
    if model is None:
        return found
    found.r_squared = model.r_squared
    found.smallest_bytes, found.largest_bytes = model.smallest_bytes, model.largest_bytes
    if model.r_squared >= MIN_R_SQUARED:
        found.alpha_s, found.beta_gb_per_s = model.alpha_s, model.beta_bytes_per_s / GB
        found.segment_s, found.exponent = model.segment_s, model.exponent
    return found
