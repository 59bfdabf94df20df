"""The benchmark for scripts has the numbers of the analysis."""

import pytest

from made_reports import made_link
from worldsize.analysis.bandwidth import analyse_link, curve
from worldsize.analysis.comm_report import comm_report
from worldsize.config import Hosts
from worldsize.report.comm_tables import model_table
from worldsize.report.narrow_tables import model_summary
from worldsize.results.comm_records import CommRecord, CommReport, CommSample
from worldsize.results.records import WarningRecord

NAMES = ("all-reduce", "gather", "scatter", "broadcast")


@pytest.fixture(scope="module")
def record() -> CommRecord:
    """Four workers; in a broadcast, of two steps, bytes hide latency with p = 2, in the others p is 1."""

    def hiding(sample: CommSample) -> CommSample:
        latency_s, bytes_s = 2 * 50e-6, sample.size_bytes / 1.18e8
        shorter = (latency_s**2 + bytes_s**2) ** (1 / 2) / (latency_s + bytes_s)
        end_ns = sample.begin_ns + round((sample.end_ns - sample.begin_ns) * shorter)
        return sample.model_copy(update={"end_ns": end_ns})

    made = made_link(4)
    ranks = [[hiding(each) if each.collective == "broadcast" else each for each in samples] for samples in made.ranks]
    return made.model_copy(update={"ranks": ranks})


def test_the_table_is_that_of_the_analysis(record: CommRecord) -> None:
    points = [point for name in NAMES for point in curve(record, name)]
    table = comm_report(record).table
    assert len(table) == len(points)
    for row, point in zip(table, points, strict=True):
        assert (row.collective, row.size_bytes, row.time_s) == (point.collective, point.size_bytes, point.time_s)
        assert row.wrong_elements == point.wrong_elements
        for found, wanted in (
            (row.algbw_gb_per_s, point.algbw_bytes_per_s),
            (row.busbw_gb_per_s, point.busbw_bytes_per_s),
        ):
            assert found.value == pytest.approx(wanted / 1e9)
            assert found.samples == point.time_s.samples == 3
            # The slowest time is the smallest rate.
            assert point.time_s.high is not None
            assert found.low == pytest.approx(found.value * point.time_s.value / point.time_s.high)
            assert found.high is not None
            assert found.high >= found.value


def test_the_fits_are_those_of_the_analysis(record: CommRecord) -> None:
    link = analyse_link(record)
    fits = comm_report(record).fits
    assert [found.collective for found in fits] == list(NAMES)
    assert {found.collective: found.exponent for found in fits} == {**dict.fromkeys(NAMES, 1), "broadcast": 2}
    for found in fits:
        model = link.models[found.collective]
        assert found.alpha_s == model.alpha_s
        assert found.beta_gb_per_s == pytest.approx(model.beta_bytes_per_s / 1e9)
        assert found.r_squared == model.r_squared
        assert found.exponent == model.exponent
        assert (found.smallest_bytes, found.largest_bytes) == (1024, 2**24)
        assert found.peak_busbw_gb_per_s == pytest.approx(link.peaks_bytes_per_s[found.collective] / 1e9)


def test_what_cannot_be_known_is_absent(record: CommRecord) -> None:
    """One sample has no interval, two sizes have no model; a model that describes nothing is not told."""
    single = record.model_copy(update={"ranks": [samples[:2] for samples in record.ranks]})
    report = comm_report(single)
    assert report.table[0].busbw_gb_per_s.low is None
    [fit] = report.fits
    assert (fit.alpha_s, fit.beta_gb_per_s, fit.r_squared, fit.largest_bytes) == (None, None, None, None)

    def scattered(number: int) -> int:
        return [9, 1, 9, 1, 9, 1, 9, 10][number % 8] * 10**6

    first = [s for s in record.ranks[0] if s.collective == "gather"]
    odd = [s.model_copy(update={"begin_ns": 0, "end_ns": scattered(number)}) for number, s in enumerate(first)]
    [fit] = comm_report(record.model_copy(update={"ranks": [odd] * 4})).fits
    assert fit.r_squared is not None
    assert fit.r_squared < 0.5
    assert fit.alpha_s is None


def test_the_report_is_read_again_and_holds_record_and_warnings(record: CommRecord) -> None:
    warning = WarningRecord(code="sizes-left-out", message="no time")
    report = comm_report(record.model_copy(update={"warnings": [warning]}))
    again = CommReport.model_validate_json(report.model_dump_json())
    assert again == report
    assert again.warnings == [warning]
    assert again.record.ranks == record.ranks


@pytest.mark.parametrize("hosts", [None, Hosts(count=4, rate_bits_per_s=10**9)], ids=["loopback", "links"])
def test_the_reduce_scatter_of_gloo_is_named_and_its_share_is_of_what_it_sends(hosts: Hosts | None) -> None:
    """Its times are those of an all-reduce: by busbw half of the link, by the bytes that are sent all of it."""
    made = made_link(4).model_copy(update={"hosts": hosts})
    renamed = [[s.model_copy(update={"collective": "reduce-scatter"}) for s in samples[:24]] for samples in made.ranks]
    record = made.model_copy(update={"ranks": [[*a[:24], *b] for a, b in zip(made.ranks, renamed, strict=True)]})
    whole, half = comm_report(record).fits
    assert (whole.as_run, half.as_run) == (None, "all-reduce")
    assert half.peak_busbw_gb_per_s == pytest.approx(whole.peak_busbw_gb_per_s / 2)
    assert (half.alpha_s, half.beta_gb_per_s) == pytest.approx((whole.alpha_s, whole.beta_gb_per_s))
    for table in (model_table(record), model_summary(record)):
        first, second = table.rows
        assert (first[0].text, second[0].text) == ("all-reduce", "reduce-scatter*")
        assert second[0].raw == ("reduce-scatter",)
        assert "* gloo sends an all-reduce instead" in table.note
        if hosts is not None:
            assert first[2].raw == pytest.approx(second[2].raw)
    heads = [column.label for column in model_summary(record).columns]
    assert ("Of link %" in heads) == (hosts is not None)
    assert "γ µs" not in heads
