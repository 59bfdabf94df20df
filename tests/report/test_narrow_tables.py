"""The tables for 80 columns of the collective benchmark, as a terminal draws them."""

import io

import pytest
from rich.console import Console

from made_runs import provenance
from worldsize.analysis.collective_cost import cost_s
from worldsize.analysis.numbers import size_text
from worldsize.cli.tables import TerminalTable
from worldsize.config import Hosts
from worldsize.report.narrow_tables import comm_summary, model_summary
from worldsize.report.tables import Column, Table, integer, text, to_records
from worldsize.results.comm_records import CommRecord, CommSample
from worldsize.results.records import Placement

SIZES = [1024 * 4**k for k in range(10)]
COLLECTIVES = ("all-reduce", "reduce-scatter", "gather")


def drawn(table: Table) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=80).print(TerminalTable(table))
    return file.getvalue().splitlines()


@pytest.fixture(scope="module")
def record() -> CommRecord:
    """A slow link, whose times vary so that their intervals are long to write."""

    def sample(name: str, size: int, number: int) -> CommSample:
        length_ns = round(1e9 * cost_s(name, 2, 1e-4, 12e6, size) * (1 + number / 10))
        times = {"begin_ns": 0, "end_ns": length_ns, "clock_error_ns": 0}
        return CommSample(collective=name, size_bytes=size, calls=1, wrong_elements=0, **times)

    samples = [sample(name, size, number) for name in COLLECTIVES for size in SIZES for number in range(5)]
    placement = Placement(
        processes=2, threads_per_worker=1, cores=(), oversubscribed=False, device="cpu", backend="gloo"
    )
    return CommRecord(provenance=provenance(), world_size=2, placement=placement, ranks=[samples, samples])


def test_the_benchmark_fits_80_columns_with_every_number_on_its_line(record: CommRecord) -> None:
    for table in (comm_summary(record), model_summary(record)):
        lines = drawn(table)
        assert max(map(len, lines)) <= 80
        assert len(lines) == 3 + len(table.rows), "title, heading, rule, and a line for each row"
        for row, line in zip(table.rows, lines[3:], strict=True):
            assert all(entry.plain in line for entry in row)
    assert {"1 KiB", "256 MiB"} <= {row[1].text for row in comm_summary(record).rows}
    assert model_summary(record).rows[0][-1].text == "1 KiB … 256 MiB"


def test_scripts_find_the_same_raw_values(record: CommRecord) -> None:
    row = to_records(comm_summary(record))[-1]
    assert (row["collective"], row["size_bytes"], row["wrong_elements"]) == ("gather", SIZES[-1], 0)
    assert to_records(model_summary(record))[0]["largest_bytes"] == SIZES[-1]


def test_emulated_links_are_compared_with_their_rate(record: CommRecord) -> None:
    hosts = Hosts(count=2, rate_bits_per_s=100_000_000)
    table = model_summary(record.model_copy(update={"hosts": hosts}))
    assert max(map(len, drawn(table))) <= 80
    share = to_records(table)[0]["share_of_payload_rate"]
    assert isinstance(share, float)
    assert 0.8 < share < 1.1


@pytest.mark.parametrize(
    ("size", "written"), [(0, "0 B"), (1000, "1,000 B"), (1024, "1 KiB"), (3 * 2**20, "3 MiB"), (2**41, "2,048 GiB")]
)
def test_a_size(size: int, written: str) -> None:
    assert size_text(size) == written


def test_a_long_name_is_cut_so_that_numbers_stay_whole() -> None:
    columns = (Column("Strategy", ("strategy",), align="left"), Column("b", ("b",)), Column("s", ("s",), align="prose"))
    name = "a/long/path/to/a/file.py:" + "Strategy" * 10
    [_, heading, rule, line] = drawn(Table("made", "Made", columns, ((text(name), integer(1234567), text("fine")),)))
    assert max(map(len, (heading, rule, line))) <= 80
    assert line.startswith("a/long/path")
    assert "… " in line
    assert "1,234,567" in line
