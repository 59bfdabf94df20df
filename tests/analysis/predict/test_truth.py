"""Forecasts of runs whose truth was put there, at world sizes, links and batches that the run does not have."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from made_forecasts import Truth, made_forecast_run
from worldsize.analysis.predict import answer as answer_module
from worldsize.analysis.predict.answer import answer
from worldsize.analysis.predict.bounds import check_asked
from worldsize.analysis.predict.doubts import doubt_of
from worldsize.analysis.predict.forecast import Predicted, Target, inputs_of, predicted
from worldsize.analysis.predict.model import Model
from worldsize.analysis.predict.narrow import narrowing
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.config import Hosts, PredictSettings
from worldsize.results.folder import load_run, write_cell
from worldsize.traits import TraitsRecord

CELLS = (("single", 1, 32), ("all-reduce", 2, 32))


def made(folder: Path, truth: Truth, cells: tuple[tuple[str, int, int], ...] = CELLS) -> StudyAnalysis:
    return analyse(load_run(made_forecast_run(folder / "run", truth, cells)))


def step_s(analysis: StudyAnalysis, world_size: int, batch: int = 32, hosts: Hosts | None = None) -> float:
    found = predicted(Model(analysis), Target("all-reduce", world_size, batch, hosts=hosts))
    assert found is not None
    return found.step_s


@pytest.mark.parametrize("world_size", [2, 4, 8, 32])
@pytest.mark.parametrize("spread", [0.0, 0.05, 0.15])
def test_the_maximum_over_more_ranks(tmp_path: Path, world_size: int, spread: float) -> None:
    """Own spread grows with N as the maximum of so many does; what is shared does not."""
    truth = Truth(spread=spread)
    assert step_s(made(tmp_path, truth), world_size) == pytest.approx(truth.step_s(world_size), rel=0.03)


@pytest.mark.parametrize(("bits", "latency_s"), [(100_000_000, None), (300_000_000, None), (1_000_000_000, 2e-3)])
def test_another_link(tmp_path: Path, bits: int, latency_s: float | None) -> None:
    """A link of a tenth has a tenth of the rate; added latency comes to that of each step of the ring."""
    truth = Truth()
    other = Truth(alpha_s=truth.alpha_s + (latency_s or 0), bytes_per_s=truth.bytes_per_s * bits / 1e9)
    hosts = Hosts(count=2, rate_bits_per_s=bits, latency_s=latency_s)
    assert step_s(made(tmp_path, truth), 4, hosts=hosts) == pytest.approx(other.step_s(4), rel=0.03)


def test_a_slower_link_slows_computing_less(tmp_path: Path) -> None:
    """The run has no strategy that overlaps, so it knows what is usual over its own link, and over a tenth of it."""
    model = Model(made(tmp_path, Truth()))
    target = Target("all-reduce", 2, 32, hosts=Hosts(count=2, rate_bits_per_s=100_000_000))
    here, there = inputs_of(model, target._replace(hosts=None)), inputs_of(model, target)
    assert here is not None
    assert there is not None
    assert here.slowdown == pytest.approx(0.03 + 0.9e-9 * Truth().bytes_per_s, rel=0.02)
    assert there.slowdown == pytest.approx(0.03 + 0.09e-9 * Truth().bytes_per_s, rel=0.02)


def test_the_own_steps_of_a_script_hold_what_messages_slow(tmp_path: Path) -> None:
    """Its computing was never seen without messages, so nothing is added to it."""
    analysis = made(tmp_path, Truth())
    assert Model(analysis).overhead.slowdown > 0.03
    analysis.record.settings = None
    assert not analysis.record.trains
    assert Model(analysis).overhead == (0.0, 0.0)


@pytest.mark.parametrize("batch", [16, 24, 48])
def test_another_batch(tmp_path: Path, batch: int) -> None:
    """From two batches on a line; from one all grows with the samples."""
    truth = Truth()
    cells = (*CELLS, ("single", 1, 64))
    wanted = pytest.approx(truth.step_s(2, batch), rel=0.03)
    assert step_s(made(tmp_path / "two", truth, cells), 2, batch) == wanted
    assert step_s(made(tmp_path / "one", truth), 2, batch) == wanted


@pytest.mark.parametrize(("bits", "rel"), [(1_000_000_000, 1.0), (100_000_000, 0.1)])
def test_nine_in_ten_steps_lie_in_the_band(tmp_path: Path, bits: int, rel: float) -> None:
    """Also over another link: what chance does to a short step does not grow with a long one."""
    truth = Truth(spread=0.1)
    target = Target("all-reduce", 8, 32, hosts=Hosts(count=2, rate_bits_per_s=bits))
    found = predicted(Model(made(tmp_path, truth)), target)
    assert found is not None
    other = Truth(spread=0.1, bytes_per_s=truth.bytes_per_s * rel)
    steps = truth.computing_s(8, 32, 5_000, seed=5).max(axis=1) + other.message_s(8)
    low, high = found.band_s()
    assert 0.85 <= np.mean((steps >= low) & (steps <= high)) <= 0.95


@pytest.mark.parametrize("off", [0.0, 0.03, 0.10])
def test_the_band_holds_nine_in_ten_steps_where_forecasts_are_off(tmp_path: Path, off: float) -> None:
    """Of worlds that differ from what their forecast says by a known share, as the held-out errors of a run tell."""
    found = predicted(Model(made(tmp_path, Truth(spread=0.1))), Target("all-reduce", 8, 32))
    assert found is not None
    generator = np.random.default_rng(3)
    worlds = np.exp(off * generator.standard_normal(2_000))
    steps = worlds[:, None] * generator.choice(found.steps_s, (2_000, 20))
    low, high = found.band_s(doubt_of(np.expm1(off * generator.standard_normal(400))))
    assert 0.88 <= np.mean((steps >= low) & (steps <= high)) <= 0.93  # the usual errors always count for four cells


def test_the_band_is_wider_where_latency_is_most_of_a_step_that_no_run_had(tmp_path: Path) -> None:
    """The same run, link and N: a hundred small steps of a ring are less sure than one long message."""
    settings = PredictSettings(world_sizes=(2, 16))
    widths = []
    for truth in (Truth(alpha_s=5e-3, bytes_per_s=1e9, hosts=None), Truth(alpha_s=1e-5, bytes_per_s=2e7, hosts=None)):
        measured, more = answer(made(tmp_path / str(truth.alpha_s), truth), settings).rows
        widths.append([row.step_s.high / row.step_s.low for row in (measured, more)])
    (latency_known, latency_more), (bytes_known, bytes_more) = widths
    assert latency_known == pytest.approx(bytes_known, rel=0.1)
    assert bytes_more == pytest.approx(bytes_known, rel=0.1)
    assert latency_more > 1.5 * latency_known


@pytest.mark.parametrize(
    ("truth", "world_size", "limit"),
    [
        (Truth(spread=0.0, shared=0.0, bytes_per_s=1e10, alpha_s=1e-6, hosts=None), 8, "computing"),
        (Truth(bytes_per_s=20e6, hosts=None), 4, "bytes"),
        (Truth(alpha_s=5e-3, bytes_per_s=1e9, hosts=None), 16, "latency"),
        (Truth(spread=0.25, bytes_per_s=1e10, alpha_s=1e-6, hosts=None), 16, "stragglers"),
    ],
)
def test_what_limits_it(tmp_path: Path, truth: Truth, world_size: int, limit: str) -> None:
    report = answer(made(tmp_path, truth), PredictSettings(world_sizes=(world_size,)))
    assert [row.limit for row in report.rows] == [limit]


def test_speedup_and_efficiency_follow_from_the_step(tmp_path: Path) -> None:
    truth = Truth()
    analysis = made(tmp_path, truth)
    row = answer(analysis, PredictSettings(world_sizes=(8,))).rows[0]
    alone = next(cell.summary.step_s.value for cell in analysis.cells if cell.summary and cell.world_size == 1)
    assert row.speedup is not None
    assert row.efficiency is not None
    assert row.speedup.value == pytest.approx(8 * alone / row.step_s.value)
    assert row.efficiency.value == pytest.approx(row.speedup.value / 8)
    assert row.samples_per_s.value == pytest.approx(8 * 32 / row.step_s.value)
    assert row.step_s.low <= row.step_s.value <= row.step_s.high
    assert sum(row.parts_s.values()) == pytest.approx(row.step_s.value)


def test_speedups_of_neighbouring_batches_are_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the forecast of one worker is far off: at a measured batch its measured step is the baseline."""

    def off(model: Model, target: Target) -> Predicted | None:
        found = predicted(model, target)
        return found and (replace(found, steps_s=1.3 * found.steps_s) if target.world_size == 1 else found)

    monkeypatch.setattr(answer_module, "predicted", off)
    analysis = made(
        tmp_path, Truth(), (("single", 1, 32), ("single", 1, 64), ("all-reduce", 2, 32), ("all-reduce", 2, 64))
    )
    for batch in (32, 64):
        rows = (
            answer(analysis, PredictSettings(world_sizes=(2,), batch_size=size)).rows[0]
            for size in (batch - 1, batch, batch + 1)
        )
        below, at, above = (row.speedup.value for row in rows if row.speedup)
        assert [below, above] == pytest.approx([at, at], rel=0.05)


def test_its_own_error_beside_the_formulas(tmp_path: Path) -> None:
    """A measured cell that was left out: the formulas do not know its link, the forecast does."""
    truth = Truth(bytes_per_s=40e6, hosts=None)
    report = answer(made(tmp_path, truth, (*CELLS, ("single", 1, 64), ("all-reduce", 2, 64))), PredictSettings())
    assert {each.cell for each in report.held_out} == {"all-reduce-w2-b32", "all-reduce-w2-b64"}
    for each in report.held_out:
        assert abs(each.error) < 0.03
        assert each.amdahl_error is not None
        assert abs(each.error) < abs(each.amdahl_error)


def test_the_knee(tmp_path: Path) -> None:
    """Where latency grows with N as throughput does, more workers bring nothing."""
    truth = Truth(compute_s=0.02, alpha_s=5e-3, bytes_per_s=1e9, spread=0.0, shared=0.0, hosts=None)
    report = answer(made(tmp_path, truth), PredictSettings(world_sizes=(4, 16, 64, 256)))
    rates = {row.world_size: row.samples_per_s.value for row in report.rows}
    knee = report.knees[0].world_size
    assert knee is not None
    assert rates[knee] >= 0.95 * max(rates.values())
    assert all(rate < 0.95 * max(rates.values()) for size, rate in rates.items() if size < knee)


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
def test_a_rank_that_is_always_slower(tmp_path: Path, world_size: int) -> None:
    """Of more ranks as large a part is slow: three workers are not quicker than two."""
    truth = Truth(spread=0.01, rank=(-0.13, 0.13))
    assert step_s(made(tmp_path, truth), world_size) == pytest.approx(truth.step_s(world_size), rel=0.03)


def test_computing_is_that_of_the_largest_world(tmp_path: Path) -> None:
    """Memory is shared among as many as there are: a mean over N would predict four workers too quick."""
    truth = Truth(contention=0.1, bytes_per_s=1e9, alpha_s=1e-5, spread=0.0, shared=0.0)
    analysis = made(tmp_path, truth, (*CELLS, ("all-reduce", 4, 32)))
    assert step_s(analysis, 4) == pytest.approx(truth.step_s(4), rel=0.03)


def test_steps_are_drawn_from_the_batch_that_is_asked_for(tmp_path: Path) -> None:
    analysis = made(tmp_path, Truth(), (*CELLS, ("single", 1, 64), ("all-reduce", 2, 64)))
    found = Model(analysis).reference("all-reduce", 64)
    assert found is not None
    assert found.id == "all-reduce-w2-b64"


@pytest.mark.parametrize("overlaps", [False, True])
def test_what_a_strategy_of_the_users_own_says_of_itself_is_believed(tmp_path: Path, *, overlaps: bool) -> None:
    """What it computes besides comes in backward where it overlaps, else after its messages."""
    folder = made_forecast_run(tmp_path / "run", Truth(contention=0.2), CELLS)
    record = load_run(folder).cells["all-reduce-w2-b32"].record
    record.own_traits = TraitsRecord(collectives=("all-reduce",), overlaps=overlaps)
    write_cell(folder, record)
    model = Model(analyse(load_run(folder)))
    work = model.work("all-reduce", 0.04)  # two workers compute 10 ms longer, of which backward is two thirds
    assert model.wire is not None
    longer = (0.04 / Truth().message_s(2)) ** 0.3  # they wait as long for their message
    wanted = (0.0, 0.01 * 2 / 3, 0.0) if overlaps else (0.0, 0.0, 0.01 * longer)
    assert work == pytest.approx(wanted, rel=0.05, abs=1e-9)


@pytest.mark.parametrize("world_size", [4, 8])
def test_what_a_strategy_computes_after_waiting_follows_the_wait(tmp_path: Path, world_size: int) -> None:
    """Of two and of four workers, each by what its own ranks wait."""
    analysis = made(tmp_path, Truth(contention=0.1, spread=0.0, shared=0.0), (*CELLS, ("all-reduce", 4, 32)))
    model = Model(analysis)
    own_s = [model.work("all-reduce", Truth().message_s(size)).after_s for size in (2, 4)]
    assert own_s[1] / own_s[0] == pytest.approx((Truth().message_s(4) / Truth().message_s(2)) ** 0.3, rel=0.01)
    for link, slower in (("1gbit", 1.0), ("100mbit", 10.0)):
        hosts = check_asked(model, PredictSettings(link=link, world_sizes=(world_size,)))
        found = inputs_of(model, Target("all-reduce", world_size, 32, None, hosts))
        assert found is not None
        waited = Truth(bytes_per_s=100e6 / slower).message_s(world_size) / Truth().message_s(2)
        assert found.work.after_s / own_s[0] == pytest.approx(min(waited, 20.0) ** 0.3, rel=0.02)


def test_a_link_that_is_the_runs_own_is_no_other(tmp_path: Path) -> None:
    analysis = made(tmp_path, Truth())
    same, plain = (answer(analysis, PredictSettings(link=link, world_sizes=(4,))) for link in ("1gbit", None))
    assert same == plain
    assert not same.other_links


@pytest.mark.parametrize(
    ("host", "room", "proposed"),
    [
        ({"allowed_cores": [0, 1]}, None, False),
        ({"allowed_cores": [0, 1, 2, 3]}, None, True),
        ({"allowed_cores": [0, 1, 2, 3], "allowed_physical_cores": 2}, None, False),
        ({"allowed_cores": [*range(8)], "allowed_physical_cores": 4}, None, True),
        ({"allowed_cores": [0, 1, 2, 3], "quota_cores": 3.5}, None, False),
        ({"allowed_cores": [*range(8)]}, 2.0, False),
        ({"allowed_cores": [0, 1]}, 4.0, True),
    ],
    ids=["two", "four", "two of two threads", "four of two threads", "a quota", "a node of two", "a node of four"],
)
def test_no_study_is_proposed_that_the_machine_has_no_cores_for(
    tmp_path: Path, host: dict[str, object], room: float | None, *, proposed: bool
) -> None:
    """Two workers were measured, and what ranks differ by would be known better from four, each on its own core.

    `room` is what was noted of the node on which the cells ran, which need not be the host that started them.
    """
    place = made_forecast_run(tmp_path / "run", Truth(spread=0.3), CELLS) / "study.json"
    record = json.loads(place.read_text())
    record["provenance"]["host"] |= host
    place.write_text(json.dumps(record))
    cell = load_run(place.parent).cells["all-reduce-w2-b32"].record
    assert cell.placement is not None
    cell.placement = cell.placement.model_copy(update={"room_cores": room})
    write_cell(place.parent, cell)
    here = analyse(load_run(place.parent))
    found = {each.what: each.command for each in narrowing(Model(here), Target("all-reduce", 16, 32))}
    for what in ("differences between workers", "rate of the link", "latency of the link"):
        command = found[what]
        assert (command is not None) == proposed, "two workers over the same link again would tell nothing new"
        assert command is None or "--world-sizes 1,4" in command
