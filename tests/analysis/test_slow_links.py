"""Hosts whose links differ: the slowest one on its way bounds a collective, and shares and limits are of that."""

from collections.abc import Callable
from pathlib import Path

import pytest

from advised import SINGLE, Messages, evidence, exchanging, found, link, messages, study
from made_runs import MadeCell
from worldsize.analysis.bandwidth import analyse_link
from worldsize.analysis.numbers import number_text
from worldsize.analysis.rungs import link_bytes_per_s, rungs
from worldsize.config import Hosts
from worldsize.report.comm_tables import communication_summary, communication_table, link_rate, model_table
from worldsize.report.tables import Table
from worldsize.results.comm_records import CommRecord
from worldsize.results.folder import load_run, write_comm

SLOW = Hosts(count=2, rate_bits_per_s=10**9, own_rates={1: 10**8})
"""One host at 1 Gbit/s, the other at a tenth of it: 11.96 MB/s of TCP payload."""
SLOW_OF_FOUR = Hosts(count=4, rate_bits_per_s=10**9, own_rates={2: 10**8})


def payload(mbit: float) -> float:
    """Bytes/s that TCP over Ethernet carries of a rate."""
    return mbit * 1e6 / 8 * 1448 / 1514


def bound(hosts: Hosts, world_size: int, *, rooted: bool) -> tuple[float, int | None]:
    """What the slowest link lets pass, and whose it is."""
    slowest = hosts.slowest(world_size, rooted=rooted)
    assert slowest is not None
    return slowest.bytes_per_s, slowest.host


def between(hosts: Hosts, bytes_per_s: float) -> Callable[[Path], None]:
    """The benchmark of a link that reaches so much, on these hosts."""

    def apply(folder: Path) -> None:
        link(1e-6, bytes_per_s, world_size=hosts.count)(folder)
        record = load_run(folder).comm[hosts.count]
        write_comm(folder, record.model_copy(update={"hosts": hosts}))

    return apply


def measured(folder: Path, hosts: Hosts, bytes_per_s: float) -> CommRecord:
    analysis = study(folder, [SINGLE], changes=[between(hosts, bytes_per_s)])
    return analysis.run.comm[hosts.count]


def column(table: Table, key: str) -> dict[str, float]:
    """The numbers of a column by the first entry of each row."""
    place = next(number for number, each in enumerate(table.columns) if each.keys[0] == key)
    return {str(row[0].raw[0]): float(str(row[place].raw[0])) for row in table.rows}


@pytest.mark.parametrize(
    ("own_mbit", "ring", "root"),
    [
        ({1: 100}, (100, 1), (300, 1)),
        ({0: 100}, (100, 0), (100, 0)),
        ({1: 600, 3: 500}, (500, 3), (1000, 0)),
        ({0: 2000}, (1000, 1), (2000, 0)),
        ({4: 100}, (1000, None), (1000, None)),
        (dict.fromkeys(range(4), 50), (50, None), (50, None)),
    ],
    ids=["a slow one", "a slow root", "not so slow", "a fast root", "an idle host", "all alike after all"],
)
def test_the_slowest_link_of_four_bounds_a_ring_and_its_share_bounds_a_root(
    own_mbit: dict[int, int], ring: tuple[int, int | None], root: tuple[int, int | None]
) -> None:
    """All other links have 1 Gbit/s. Over one of 100 goes a third of what the root takes: 300 in all."""
    hosts = Hosts(count=5, rate_bits_per_s=10**9, own_rates={host: mbit * 10**6 for host, mbit in own_mbit.items()})
    for rooted, (mbit, host) in ((False, ring), (True, root)):
        rate, slowest = bound(hosts, 4, rooted=rooted)
        assert slowest == host
        assert rate == pytest.approx(payload(mbit))


def test_of_links_without_a_rate_only_those_that_have_one_bound() -> None:
    assert Hosts(count=2).slowest(2, rooted=False) is None
    one = Hosts(count=3, own_rates={2: 10**8})
    for rooted, shares in ((False, 1), (True, 2)):
        rate, slowest = bound(one, 3, rooted=rooted)
        assert slowest == 2
        assert rate == pytest.approx(shares * payload(100))
    assert one.slowest(2, rooted=False) is None


def test_a_full_link_is_full_in_the_table_of_two(tmp_path: Path) -> None:
    record = measured(tmp_path, SLOW, 0.98 * payload(100))
    table = model_table(record)
    shares = column(table, "share_of_payload_rate")
    assert set(shares) == {"all-reduce", "broadcast", "gather", "scatter"}
    assert list(shares.values()) == pytest.approx([0.98] * 4, rel=1e-3)
    assert "The emulated links can carry 0.01196 GB/s of TCP payload, bound by the link of host 1 (method.md §12)." in (
        table.note
    )
    assert analyse_link(record).peak(rooted=False) == pytest.approx(0.98 * payload(100), rel=1e-3)
    quicker = measured(tmp_path / "burst", SLOW, 1.09 * payload(100))
    assert analyse_link(quicker).peak(rooted=False) == pytest.approx(payload(100)), "what it saved up is no rate"


def test_through_a_root_of_four_goes_three_times_what_the_slow_one_has(tmp_path: Path) -> None:
    table = model_table(measured(tmp_path, SLOW_OF_FOUR, 0.98 * payload(100)))
    shares = column(table, "share_of_payload_rate")
    assert [shares["all-reduce"], shares["broadcast"]] == pytest.approx([0.98, 0.98], rel=1e-3)
    assert [shares["gather"], shares["scatter"]] == pytest.approx([0.98 / 3, 0.98 / 3], rel=1e-3)
    assert (
        "can carry 0.01196 GB/s of TCP payload in all-reduce, broadcast, bound by the link of host 2; 0.03587 GB/s of "
        "TCP payload in gather, scatter, bound by the link of host 2 (method.md §12)."
    ) in table.note


def test_messages_that_fill_the_slowest_link_are_bound_by_it(tmp_path: Path) -> None:
    """0.69 MB in 60 ms are 11.5 MB/s: a tenth of the link of host 0, and all that host 1 can take."""
    cell = exchanging(exposed=0.2, hidden_s=0.02)
    sent = Messages(payload_bytes=345_000, transfer_s=0.06)
    analysis = study(tmp_path, [SINGLE, cell], changes=[messages(cell, sent), between(SLOW, 11.5e6)])
    advice = found(analysis, "bandwidth-bound")
    assert advice is not None
    assert "96.2 [96.2, 96.2] % of the payload rate of the link of host 1" in advice.finding
    assert evidence(advice)["Payload rate of the link of host 1"].startswith("0.0120 ")
    assert found(analysis, "communication-bound") is None


def test_the_tables_of_cells_have_the_rate_of_the_slowest_link(tmp_path: Path) -> None:
    cell = exchanging(exposed=0.2, hidden_s=0.02)
    sent = Messages(payload_bytes=345_000, transfer_s=0.06)
    analysis = study(tmp_path, [SINGLE, cell], changes=[messages(cell, sent), between(SLOW, 11.5e6)])
    table = communication_table(analysis)
    assert column(table, "link_payload_bytes_per_s") == {cell.id: pytest.approx(payload(100))}
    assert table.note.endswith("The links differ. Rated is the one that limits a cell: host 1's.")
    assert f"rated {number_text(payload(100) / 1e9)})" in communication_summary(analysis).title


def test_cells_of_two_kinds_have_two_rates(tmp_path: Path) -> None:
    several = [exchanging(name, exposed=0.2, world_size=4) for name in ("ddp", "gather-scatter")]
    sent = [
        messages(cell, Messages(kind=kind, payload_bytes=345_000, transfer_s=0.06))
        for cell, kind in zip(several, ("all_reduce", "gather"), strict=True)
    ]
    hosts = Hosts(count=4, rate_bits_per_s=10**9, own_rates={2: 4 * 10**8})
    analysis = study(tmp_path, [SINGLE, *several], changes=[*sent, between(hosts, 1e7)])
    assert [link_rate(analysis, cell) for cell in analysis.cells[1:]] == pytest.approx([payload(400), payload(1000)])
    assert communication_table(analysis).note.endswith(
        "limits a cell: host 2's in ddp-w4-b32, host 0's in gather-scatter-w4-b32."
    )
    low, high = (number_text(payload(mbit) / 1e9) for mbit in (400, 1000))
    assert f"rated {low} to {high})" in communication_summary(analysis).title


@pytest.mark.parametrize("timed", [True, False], ids=["benchmark", "settings alone"])
def test_the_limit_of_a_rung_is_that_of_the_slowest_link(tmp_path: Path, *, timed: bool) -> None:
    """44.7 MB over 11.96 MB/s take 3.74 s; over the other link a tenth of that."""
    cells = [SINGLE, MadeCell("ddp", 2, step_s=8.0, rank_spread=0), MadeCell("ddp-bf16", 2, step_s=5.0, rank_spread=0)]
    settings = {"hosts": 2, "link": "1gbit", "slow_link": ("1:100mbit",)}
    analysis = study(tmp_path, cells, changes=[between(SLOW, 1.1e7)] if timed else [], **settings)
    assert link_bytes_per_s(analysis, analysis.cells[1]) == pytest.approx(payload(100))
    lossy = next(each for each in rungs(analysis) if each.lossy)
    assert lossy.of_fp32_limit is not None
    assert lossy.of_fp32_limit.value == pytest.approx(5.0 / (44_695_848 / payload(100)))
