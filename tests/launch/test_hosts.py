"""Emulated hosts: real namespaces and links (needs root; CI has it)."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from held_hosts import ADDRESSES, on_each, two_hosts
from repeated import Repeated
from rights import needs_rights
from soak_watch import networks
from worldsize.analysis.bandwidth import analyse_link, curve, peak
from worldsize.config import CommSettings, Hosts, validated
from worldsize.errors import UsageError
from worldsize.launch import hosts as emulated
from worldsize.launch.hosts import _hardware, address
from worldsize.results.comm_records import CommRecord
from worldsize.study.comm import check_hosts, run_comm

SYSTEM_WIDE = "/proc/sys/net/ipv4/tcp_congestion_control"
CONGESTION_CONTROL = """
import socket, sys, time

def connection():
    if not sys.argv[1:]:
        return socket.create_server(("", 9009)).accept()[0]
    while True:
        try:
            return socket.create_connection((sys.argv[1], 9009))
        except ConnectionRefusedError:
            time.sleep(0.01)

print(connection().getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode())
"""
"""Says that of a connection with a listener at an address, or of what listens where none is given."""


@pytest.mark.parametrize("text", ["1gbps", "fast", "-1mbit", "1", "10 Mb/s"])
def test_a_rate_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(UsageError, match="a rate such as 1gbit"):
        validated(CommSettings, {"hosts": 2, "link": text})


def test_rates_and_delays_are_read() -> None:
    settings = CommSettings(hosts=3, link="2.5gbit", link_latency="2s")
    assert settings.emulated == Hosts(count=3, rate_bits_per_s=2_500_000_000, latency_s=2.0)
    assert CommSettings().emulated is None


def test_a_link_without_hosts_is_refused() -> None:
    with pytest.raises(UsageError, match="give hosts"):
        validated(CommSettings, {"link": "1gbit"})


def test_addresses_are_distinct_and_leave_the_switch_alone() -> None:
    addresses = [address(host) for host in range(600)]
    assert len(set(addresses)) == 600
    assert "10.0.0.254" not in addresses
    assert all(0 <= int(part) <= 255 for one in addresses for part in one.split("."))


def test_hardware_addresses_are_distinct_and_those_of_no_vendor() -> None:
    found = [_hardware(host) for host in (None, *range(600))]
    assert len(set(found)) == 601
    assert all(int(each[:2], 16) & 3 == 2 for each in found), "locally administered, and of one interface"


def test_a_host_may_have_a_rate_of_its_own() -> None:
    hosts = validated(
        CommSettings, {"hosts": 3, "world_size": 3, "link": "1gbit", "slow_link": ("2:100mbit",)}
    ).emulated
    assert hosts is not None
    assert [hosts.rate_of(host) for host in range(3)] == [10**9, 10**9, 10**8]
    assert hosts.payload_of(2) == pytest.approx(1e8 / 8 * 1448 / 1514)


def test_more_workers_than_hosts_are_refused() -> None:
    with pytest.raises(UsageError, match="each takes one worker"):
        check_hosts(CommSettings(hosts=2), 4)


class TestWithRights:
    """Everything below makes namespaces."""

    pytestmark = needs_rights

    @pytest.mark.quiet
    def test_the_link_is_as_slow_as_it_was_asked_to_be(self, tmp_path: Path) -> None:
        """A message cannot travel faster than the link; how near it comes is for a quiet machine (make bench)."""
        settings = CommSettings(
            collectives=("broadcast", "all-reduce"), hosts=2, link="100mbit", top_bytes=2**20, samples=3
        )

        def measure() -> CommRecord:
            return run_comm(settings, tmp_path / str(len(list(tmp_path.iterdir()))), ["test"])

        def holds(record: CommRecord) -> None:
            rated = analyse_link(record).rated(rooted=False)
            assert rated is not None
            for name in settings.collectives:
                best = peak(curve(record, name))
                assert best is not None
                assert best < 1.1 * rated.bytes_per_s  # a burst may go at once after a pause
            largest = curve(record, "broadcast")[-1]
            assert largest.time_s.value > 2**20 / rated.bytes_per_s * 0.9

        Repeated(measure).check(holds)

    def test_the_congestion_control_is_not_that_of_the_machine(self, tmp_path: Path) -> None:
        """bbr, which some machines use, leaves a part of slow links unused where all hosts send."""
        known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text(encoding="ascii").split()
        with two_hosts() as (first, second):
            for host in (first, second):
                subprocess.run([*host, "sh", "-c", f"echo reno > {SYSTEM_WIDE}"], check=True)
            said = on_each(
                [
                    [*first, sys.executable, "-c", CONGESTION_CONTROL],
                    [*second, sys.executable, "-c", CONGESTION_CONTROL, ADDRESSES[0]],
                ],
                tmp_path,
            )
        assert said == ["cubic\n" if "cubic" in known else "reno\n"] * 2

    @pytest.mark.quiet  # it counts the networks of the machine
    def test_nothing_is_left_and_nothing_shows_outside(self, tmp_path: Path) -> None:
        before = set(psutil.net_if_addrs()), networks()
        run_comm(
            CommSettings(collectives=("broadcast",), hosts=2, link="1gbit", top_bytes=1024, samples=1), tmp_path, []
        )
        assert (set(psutil.net_if_addrs()), networks()) == before

    def test_two_runs_at_once_do_not_collide(self, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "worldsize", "comm", "--hosts", "2", "--top", "1KiB", "--samples", "1"]
        runs = [
            subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
            for _ in range(2)
        ]
        for run in runs:
            said = run.communicate(timeout=120)
            assert run.returncode == 0, said

    def test_a_killed_run_leaves_no_process_and_no_network(self, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "worldsize", "comm", "--hosts", "2", "--link", "1mbit", "--top", "4MiB"]
        run = subprocess.Popen([*command, "--samples", "9"], cwd=tmp_path, stderr=subprocess.DEVNULL)

        def made() -> set[str]:
            return networks(*(each.pid for each in psutil.Process(run.pid).children(recursive=True))) - own

        own = networks(os.getpid())
        _wait(lambda: len(made()) == 3, "three networks: the switch and two hosts")
        family, seen = psutil.Process(run.pid).children(recursive=True), made()
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        _wait(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family), "no process")
        _wait(lambda: not networks() & seen, "no network")

    def test_a_host_whose_agent_has_ended_already_ends_as_well(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is killed with its agent only from when on it has asked for that."""
        monkeypatch.setattr(os, "getpid", lambda: 1)
        assert emulated._sleeper().wait(30) != 0


def _wait(condition: Callable[[], bool], what: str, patience_s: float = 60) -> None:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.1)
    pytest.fail(f"after {patience_s:.0f} s: not yet {what}")
