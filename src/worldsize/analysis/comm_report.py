"""The collective benchmark for scripts: the same numbers as its tables (method.md §5)."""

from worldsize.analysis.bandwidth import LEAST_R_SQUARED, CurvePoint, curve, fit, peak
from worldsize.analysis.collective_cost import as_run
from worldsize.analysis.interfaces import slow_peers
from worldsize.analysis.numbers import GB
from worldsize.analysis.statistics import reciprocal, scaled
from worldsize.results.comm_records import CommFit, CommPoint, CommRecord, CommReport
from worldsize.results.records import WarningRecord


def comm_report(record: CommRecord) -> CommReport:
    """Table, fits and warnings of a benchmark, and the record itself."""
    names = dict.fromkeys(sample.collective for sample in record.ranks[0])
    curves = {name: curve(record, name) for name in names}
    return CommReport(
        table=[_point(point) for points in curves.values() for point in points],
        fits=[_fit(name, points, record) for name, points in curves.items() if points],
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
    if model.r_squared >= LEAST_R_SQUARED:
        found.alpha_s, found.beta_gb_per_s = model.alpha_s, model.beta_bytes_per_s / GB
        found.segment_s = model.segment_s
    return found
