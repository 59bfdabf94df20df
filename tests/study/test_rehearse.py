"""What is refused before anything is started, and what a rehearsal is: a study whose cells replay."""

import json
from pathlib import Path
from typing import Any

import pytest

from made_runs import MadeCell
from replayable import replayable
from worldsize.analysis.rehearsal import MIN_FIDELITY, core_warnings, first_line, link_warnings, links_text, refusal
from worldsize.config import (
    Hosts,
    NetworkSettings,
    RehearseSettings,
    ReplaySettings,
    SlowRank,
    StudySettings,
    validated,
)
from worldsize.errors import OutputError, UsageError
from worldsize.measure.abilities import Ability
from worldsize.results.comm_records import CommRecord, HostLink
from worldsize.results.folder import load_run, write_cell, write_study
from worldsize.results.records import CellRecord
from worldsize.results.training_records import ReplayedRecord, ReplayedTimes
from worldsize.study import comm, rehearse
from worldsize.study.rehearse import rehearsal_of
from worldsize.wire import WireBytes


@pytest.fixture(autouse=True)
def rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if hosts could be emulated: nothing here starts any."""
    monkeypatch.setattr(comm, "network_namespaces", lambda facts: _ability(available=True))


def _ability(*, available: bool) -> Ability:
    return Ability(group="network", name="hosts", available=available, detail="not root", remedy="run as root")


def asked(**settings: Any) -> RehearseSettings:
    return validated(RehearseSettings, {"hosts": 4, **settings})


def test_the_settings_of_a_rehearsal(tmp_path: Path) -> None:
    path = replayable(tmp_path)
    given = asked(link="1gbit", slow_link=("2:100mbit",), slow_rank=("3:20ms", "3:5ms"), steps=4)
    settings, replay = rehearsal_of(path, given)
    assert settings.strategies == ("single", "all-reduce", "ddp")
    assert (settings.world_sizes, settings.batch_sizes, settings.baseline) == ((1, 4), (32,), "single")
    assert settings.emulated == Hosts(count=4, rate_bits_per_s=10**9, own_rates={2: 10**8})
    assert settings.replay is not None
    assert (settings.replay.delay_s(3), settings.replay.delay_s(2)) == (0.025, 0)
    assert settings.trained == ()
    assert {*replay.cells} == {"single-w1-b32", "all-reduce-w4-b32", "ddp-w4-b32"}
    assert StudySettings.model_validate(json.loads(settings.model_dump_json())) == settings
    assert "Rehearsal of made on 4 emulated hosts with links of 1gbit. Real: " in first_line(settings)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"hosts": 1}, "hosts: 1 was given"),
        ({"link": "1gbps"}, "a rate such as 1gbit"),
        ({"link": "0.1kbit"}, "1kbit to 1000gbit is allowed"),
        ({"link": "5000gbit"}, "1kbit to 1000gbit is allowed"),
        ({"link_latency": "soon"}, "a delay such as 200us"),
        ({"slow_rank": "4:20ms"}, "rank 4 was given with 4 hosts; 0 to 3 are allowed"),
        ({"slow_rank": "3"}, "a rank and a time such as 3:20ms is allowed"),
        ({"slow_rank": "3:0ms"}, "a time above 0"),
        ({"slow_link": "4:1gbit"}, "host 4 was given with 4 hosts; 0 to 3 are allowed"),
        ({"slow_link": "1gbit"}, "a host and a rate such as 2:1gbit is allowed"),
        ({"slow_link": "2:fast"}, "a host and a rate such as 2:1gbit is allowed"),
        ({"budget": "0s"}, "nothing can be measured in no time"),
    ],
)
def test_impossible_hosts_links_and_plants(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told) as found:
        asked(**given)
    assert len(str(found.value).splitlines()) <= 2


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is not a worldsize run folder"):
        rehearsal_of(tmp_path, asked())


def test_a_rehearsal_is_not_rehearsed(tmp_path: Path) -> None:
    path = replayable(tmp_path)
    study = load_run(path).study
    study.settings, study.data = rehearsal_of(path, asked())[0], None
    write_study(path, study)
    with pytest.raises(UsageError, match="is a rehearsal itself\nGive the run"):
        rehearsal_of(path, asked())


def test_without_the_rights_it_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm, "network_namespaces", lambda facts: _ability(available=False))
    with pytest.raises(UsageError, match="hosts cannot be emulated here: not root\nTo mend it: run as root"):
        rehearsal_of(replayable(tmp_path), asked())


def test_a_strategy_that_was_not_measured_is_replayed_from_another(tmp_path: Path) -> None:
    path = replayable(tmp_path, [MadeCell("ddp", 2)])
    settings, replay = rehearsal_of(path, asked(strategies="bucketed"))
    assert settings.world_sizes == (4,)
    assert {name: cell.source for name, cell in replay.cells.items()} == {"bucketed-w4-b32": "ddp-w2-b32"}


def test_a_link_over_which_no_step_fits_into_the_budget_is_refused(tmp_path: Path) -> None:
    path = replayable(tmp_path)
    run = load_run(path)
    wire = WireBytes(payload_bytes=2_300_000, busiest_rank_bytes=1, other_rank_bytes=1, formula="")
    for cell in run.cells.values():
        write_cell(path, cell.record.model_copy(update={"wire": wire}))
    with pytest.raises(
        UsageError, match=r"a step over links of 0.5mbit takes 57\.\d s or more.*\nGive --budget \d+s or more"
    ):
        rehearsal_of(path, asked(link="0.5mbit"))
    assert rehearsal_of(path, asked(link="0.5mbit", budget="30min")).settings.budget == "30min"
    assert rehearsal_of(path, asked(link="0.5mbit", steps=2)).settings.steps == 2
    assert rehearsal_of(path, asked(link="100mbit")).settings.budget is None


@pytest.mark.parametrize(
    ("given", "rate", "own", "latency_s"),
    [
        ({}, 300e6, {1: 10**8}, 0.002),
        ({"link": "1gbit"}, 1e9, {}, 0.002),
        ({"link": "unlimited"}, None, {}, 0.002),
        ({"slow_link": "2:1mbit"}, 300e6, {2: 10**6}, 0.002),
        ({"link_latency": "5ms"}, 300e6, {1: 10**8}, 0.005),
        ({"link_latency": "0us"}, 300e6, {1: 10**8}, None),
        ({"hosts": 2}, 300e6, {1: 10**8}, 0.002),
    ],
)
def test_links_are_those_of_the_run_where_none_are_given(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    rate: float | None,
    own: dict[int, int],
    latency_s: float | None,
) -> None:
    monkeypatch.setattr(comm, "can_delay", lambda: True)
    monkeypatch.setattr(rehearse, "can_delay", lambda: True)
    path = replayable(tmp_path)
    study = load_run(path).study
    links = {"hosts": 2, "link": "300mbit", "link_latency": "2ms", "slow_link": ("1:100mbit",)}
    assert study.settings is not None
    study.settings = study.settings.model_copy(update=links)
    write_study(path, study)
    settings, _ = rehearsal_of(path, asked(**given))
    hosts = settings.emulated
    assert hosts is not None
    assert (hosts.rate_bits_per_s, hosts.own_rates, hosts.latency_s) == (rate, own, latency_s)
    assert settings.link == {None: None, 1e9: "1gbit"}.get(rate, "300mbit")
    line = first_line(settings)
    assert ("have no limit" in line) == (rate is None)
    assert (f"and {settings.link_latency} of latency" in line) == (latency_s is not None)


def test_a_latency_of_the_run_that_cannot_be_had_here_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearse, "can_delay", lambda: False)
    path = replayable(tmp_path)
    study = load_run(path).study
    assert study.settings is not None
    study.settings = study.settings.model_copy(update={"hosts": 2, "link_latency": "2ms"})
    write_study(path, study)
    with pytest.raises(
        UsageError, match=r"had a latency of 2ms, and this kernel has no netem.*\nGive --link-latency 0us"
    ):
        rehearsal_of(path, asked())
    assert rehearsal_of(path, asked(link_latency="0us")).settings.link_latency == "0us"
    study.settings = study.settings.model_copy(update={"link_latency": "0us"})  # a run that had none
    write_study(path, study)
    assert rehearsal_of(path, asked()).settings.emulated == Hosts(count=4)


def test_a_slow_link_of_a_host_that_a_rehearsal_lacks_is_left_out(tmp_path: Path) -> None:
    path = replayable(tmp_path)
    study = load_run(path).study
    assert study.settings is not None
    study.settings = study.settings.model_copy(update={"hosts": 4, "link": "1gbit", "slow_link": ("3:1mbit",)})
    write_study(path, study)
    assert rehearsal_of(path, asked(hosts=2)).settings.slow_link == ()


def test_links_of_a_run_without_hosts_are_none_of_a_rehearsal(tmp_path: Path) -> None:
    assert rehearsal_of(replayable(tmp_path), asked()).settings.link is None


def test_slow_link_need_hosts() -> None:
    with pytest.raises(UsageError, match="give hosts as well"):
        validated(NetworkSettings, {"slow_link": ("0:1gbit",)})
    assert validated(NetworkSettings, {"hosts": 2, "slow_link": "0:1gbit,1:2gbit"}).emulated == Hosts(
        count=2, own_rates={0: 10**9, 1: 2 * 10**9}
    )


def test_the_settings_say_the_counts_of_the_model() -> None:
    assert {*rehearse.COUNTS} <= {*ReplaySettings.model_fields}
    assert SlowRank(rank=0, delay_s=0.1).delay_s == 0.1


@pytest.mark.parametrize(("waited_s", "refused"), [(1.0, False), (1 / MIN_FIDELITY - 1e-9, False), (1.03, True)])
def test_ranks_that_were_late_have_no_numbers(waited_s: float, *, refused: bool) -> None:
    replayed = ReplayedRecord(
        source="ddp-w2-b32", source_world_size=2, source_steps=9, intended_s=1.0, waited_s=waited_s
    )
    record = CellRecord(id="ddp-w8-b32", strategy="ddp", world_size=8, batch_size=32, replayed=replayed)
    error = refusal(record)
    assert (error is not None) == refused
    if error is not None:
        assert "Give fewer --hosts, or give a larger --batch-size" in error.message
        two, one = (refusal(record.model_copy(update={"world_size": size})) for size in (2, 1))
        assert two is not None
        assert "End what else runs here" in two.message
        assert one is not None
        assert (
            "its rank waited longer than was measured, because the cores were busy with something else" in one.message
        )


@pytest.mark.parametrize(("queued_s", "turns_s", "warned"), [(0.05, 1.0, False), (0.3, 4.0, True), (0.0, 0.0, False)])
def test_messages_that_waited_for_the_cores_of_this_machine_are_named(
    queued_s: float, turns_s: float, *, warned: bool
) -> None:
    replayed = ReplayedRecord(source="ddp-w2-b32", source_world_size=2, source_steps=9)
    replayed.add(ReplayedTimes(intended_s=1, waited_s=1, queued_s=queued_s, turns_s=turns_s))
    record = CellRecord(id="ddp-w8-b32", strategy="ddp", world_size=8, batch_size=32, replayed=replayed)
    said = [each.message for each in core_warnings(record)]
    assert len(said) == warned
    assert all("its 8 ranks queued for the cores of this machine for 7.50 % of the time" in text for text in said)


def test_links_that_carry_less_or_burst_are_named() -> None:
    def link(host: int, *, carried: float = 0.97, burst: float = 1.0) -> HostLink:
        return HostLink(
            host=host, payload_bytes_per_s=1e8, steady_bytes_per_s=carried * 1e8, burst=burst, round_trip_s=2e-4
        )

    def record(*links: HostLink) -> CommRecord:
        return CommRecord.model_construct(world_size=len(links), links=list(links))

    assert list(link_warnings(record(link(0), link(1)))) == []
    slow, bursting = link_warnings(record(link(0, carried=0.5), link(1, burst=1.2)))
    assert (slow.code, bursting.code) == ("link-not-carried", "link-bursts")
    assert "host 0 carries 50.0 %" in slow.message
    assert "link of host 1 let 1.20" in bursting.message
    text = links_text(record(link(0), link(1, carried=0.95, burst=1.05)))
    assert text == (
        "Links, all hosts sending: at least 760 Mbit/s (95.0 % of the 800 Mbit/s that TCP gets of this link); "
        "largest burst in 100 ms 1.05 of the rate; round trip 200 µs."
    )
