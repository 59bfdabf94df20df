"""Bandwidths and the cost model, on benchmarks with known truth."""

from dataclasses import replace
from pathlib import Path

import pytest

from worldsize.analysis.bandwidth import analyse_link, curve, fit, peak
from worldsize.analysis.collective_cost import bus_factor, cost_s, steps
from worldsize.config import Hosts
from worldsize.measure.machine import provenance
from worldsize.results.comm_records import CommRecord, CommSample
from worldsize.results.records import Estimate, Placement

SIZES = [1024 * 4**k for k in range(8)]


def made(collective: str, world_size: int, alpha_s: float, beta: float, hosts: Hosts | None = None) -> CommRecord:
    """A benchmark whose calls take exactly the model's time; the last rank begins late, the others end early."""
    placement = Placement(
        processes=world_size, threads_per_worker=1, cores=(), oversubscribed=False, device="cpu", backend="gloo"
    )

    def sample(size: int, rank: int) -> CommSample:
        length_ns = round(3e9 * cost_s(collective, world_size, alpha_s, beta, size))
        last = rank == world_size - 1
        return CommSample(
            collective=collective,
            size_bytes=size,
            begin_ns=5_000 + (length_ns // 10 if last else 0),
            end_ns=5_000 + (length_ns if last else length_ns * 9 // 10),
            clock_error_ns=0,
            calls=3,
            wrong_elements=0,
        )

    ranks = [[sample(size, rank) for _ in range(3) for size in SIZES] for rank in range(world_size)]
    return CommRecord(
        provenance=provenance(["made"]), world_size=world_size, placement=placement, hosts=hosts, ranks=ranks
    )


@pytest.mark.parametrize(
    ("collective", "world_size", "factor", "messages"),
    [
        ("all-reduce", 2, 1.0, 2),
        ("all-reduce", 4, 1.5, 6),
        ("all-gather", 4, 0.75, 3),
        ("reduce-scatter", 2, 0.5, 1),
        ("broadcast", 4, 1.0, 2),
        ("gather", 4, 3.0, 3),
        ("scatter", 2, 1.0, 1),
    ],
)
def test_factors_and_steps_of_the_method(collective: str, world_size: int, factor: float, messages: int) -> None:
    assert bus_factor(collective, world_size) == factor
    assert steps(collective, world_size) == messages


@pytest.mark.parametrize("collective", ["all-reduce", "gather", "broadcast"])
def test_the_fit_finds_alpha_and_beta_and_predicts_sizes_it_has_not_seen(collective: str) -> None:
    model = fit(curve(made(collective, 4, 50e-6, 1e8), collective), 4)
    assert model is not None
    assert model.alpha_s == pytest.approx(50e-6, rel=1e-3)
    assert model.beta_bytes_per_s == pytest.approx(1e8, rel=1e-3)
    assert model.r_squared == pytest.approx(1, abs=1e-6)
    assert model.time_s(300_000) == pytest.approx(cost_s(collective, 4, 50e-6, 1e8, 300_000), rel=1e-3)


def test_sizes_that_vary_count_for_less_than_sizes_that_are_sure() -> None:
    """The smallest message is off by its noise: four times as long as it is, and known no better."""
    points = curve(made("broadcast", 2, 50e-6, 1e8), "broadcast")
    first = points[0]
    true_s = first.time_s.value
    sure = Estimate(value=4 * true_s, low=4 * true_s, high=4 * true_s, samples=3)
    vague = sure.model_copy(update={"low": 0.5 * true_s, "high": 7.5 * true_s})
    models = [fit([replace(first, time_s=time_s), *points[1:]], 2) for time_s in (sure, vague)]
    errors = [abs(model.alpha_s - 50e-6) for model in models if model is not None]
    assert len(errors) == 2
    assert errors[1] < 0.1 * errors[0]


def test_the_first_begin_and_the_last_end_count_and_busbw_is_algbw_times_the_factor() -> None:
    points = curve(made("all-reduce", 4, 0, 1e8), "all-reduce")
    assert [point.size_bytes for point in points] == SIZES
    for point in points:
        assert point.algbw_bytes_per_s == pytest.approx(1e8 / 1.5)
        assert point.busbw_bytes_per_s == pytest.approx(1e8)
    assert peak(points) == pytest.approx(1e8)


def test_samples_of_an_earlier_version_are_still_read() -> None:
    old = {"collective": "broadcast", "size_bytes": 8, "time_s": 0.002, "calls": 3, "wrong_elements": 0}
    sample = CommSample.model_validate(old)
    assert (sample.end_ns - sample.begin_ns) / sample.calls == pytest.approx(2e6)


def test_too_few_sizes_give_no_model() -> None:
    points = curve(made("all-reduce", 2, 1e-4, 1e8), "all-reduce")
    assert fit(points[:2], 2) is None


def test_the_payload_of_an_emulated_link_is_that_of_tcp_over_ethernet() -> None:
    link = analyse_link(made("all-reduce", 2, 1e-4, 1e8, Hosts(count=2, rate_bits_per_s=10**9)))
    assert link.payload_bytes_per_s == pytest.approx(119.55e6, rel=1e-3)
    assert set(link.peaks_bytes_per_s) == set(link.models) == {"all-reduce"}


def test_a_world_of_one_has_no_bandwidth(tmp_path: Path) -> None:
    record = made("all-reduce", 2, 1e-4, 1e8).model_copy(update={"world_size": 1})
    assert curve(record, "all-reduce") == []
    assert peak([]) is None
