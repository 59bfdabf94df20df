"""What measured cells say of latency and rate in training, and what an emulated link saves up between turns."""

from dataclasses import replace

import numpy as np
import pytest

from worldsize.analysis.bandwidth import CostModel
from worldsize.analysis.predict.calibration import (
    MOST_SLOWDOWN,
    MOST_USUAL_SLOWDOWN,
    Factor,
    Overhead,
    Slowdown,
    combined,
    overhead_of,
    slowdown_over,
    usual_slowdown,
    woken,
)
from worldsize.analysis.predict.network import AS_TIMED, Factors, LinkModel
from worldsize.config import Hosts
from worldsize.sending import AFTER_BACKWARD, Sent

RATE = 1_000_000_000
TURNS = ("gather", "scatter")


def seen(latency: float, true: Factors, doubt: float = 0.02) -> Factor:
    """What a cell says whose messages are latency in this share, where training keeps to these factors."""
    return Factor("ddp", float(np.log(latency * true.latency + (1 - latency) * true.rate)), doubt, latency)


@pytest.mark.parametrize("true", [Factors(0.6, 1.0), Factors(1.5, 1.0), Factors(1.0, 1.1), Factors(1.0, 1.0)])
def test_small_and_large_messages_together_tell_latency_from_rate(true: Factors) -> None:
    found = combined([seen(0.05, true), seen(0.7, true)], AS_TIMED)
    assert found.latency == pytest.approx(true.latency, rel=0.1)
    assert found.rate == pytest.approx(true.rate, rel=0.03)


def test_one_cell_of_small_messages_blames_their_latency() -> None:
    """The benchmark tells a rate within a tenth, a latency hardly: over a faster link that is what remains."""
    found = combined([seen(0.5, Factors(0.6, 1.0))], AS_TIMED)
    assert found.latency == pytest.approx(0.6, rel=0.1)
    assert found.rate == pytest.approx(1.0, rel=0.03)


def test_one_cell_of_large_messages_says_nothing_of_latency() -> None:
    assert combined([seen(0.01, Factors(1.0, 1.2))], AS_TIMED) == pytest.approx((1.0, 1.2), rel=0.06)


def test_where_messages_take_turns_as_they_were_timed_the_rate_takes_more_of_the_blame() -> None:
    """Of messages that are a sixth latency, as of small layers over 300 Mbit/s, by which a faster link was forecast."""
    found = seen(0.17, Factors(1.0, 1.05))
    back_to_back, in_turn = (combined([found._replace(in_turn=each)], AS_TIMED) for each in (False, True))
    assert in_turn.latency < 1.04 < 1.1 < back_to_back.latency
    assert in_turn.rate == pytest.approx(1.05, abs=0.01)


def test_no_cell_says_what_is_usual() -> None:
    assert combined([], Factors(0.8, 1.1)) == pytest.approx((0.8, 1.1))


@pytest.mark.parametrize("true", [Overhead(0.01, 0.1), Overhead(0.0, 0.3), Overhead(0.02, 0.0)])
def test_work_is_told_from_slowdown_where_some_messages_are_under_way_longer(true: Overhead) -> None:
    """By cells alone, however far from what is usual: their backwards of 20 and 80 ms are known to 1.5 %."""
    draw = np.random.default_rng(3)
    found = []
    for _ in range(50):
        cells = [
            Slowdown(true.work_s + true.slowdown * each + draw.normal(0, 0.015 * each), each, each)
            for each in (0.02, 0.021, 0.075, 0.08)
        ]
        found.append(overhead_of(cells, 0.1))
    assert np.mean([each.work_s for each in found]) == pytest.approx(true.work_s, abs=8e-4)
    assert np.mean([each.slowdown for each in found]) == pytest.approx(true.slowdown, abs=0.025)


def test_hooks_of_many_small_layers_are_no_slowdown() -> None:
    """Planted as in 80 small layers: 3 ms of hooks, a slowdown of 0.1 beside overlaps of 8 to 17 ms; 0.06 is usual."""
    cells = [Slowdown(0.003 + 0.1 * each, each, each) for each in (0.010, 0.008, 0.017, 0.013)]
    assert overhead_of(cells, 0.06) == pytest.approx((0.0032, 0.083), rel=0.05)


def test_where_all_overlaps_are_alike_what_is_usual_decides() -> None:
    alike = [Slowdown(0.005, 0.020, 0.020), Slowdown(0.0052, 0.021, 0.021)]
    found = overhead_of(alike, 0.1)
    assert found.slowdown == pytest.approx(0.1, rel=0.1)
    assert found.work_s + 0.0205 * found.slowdown == pytest.approx(0.0051, rel=0.02)
    assert overhead_of([], 0.06) == pytest.approx((0.0, 0.06))


def test_where_nothing_is_usual_the_cells_decide() -> None:
    assert overhead_of([], None) == (0.0, 0.0)
    cells = [Slowdown(0.003 + 0.1 * each, each, each) for each in (0.01, 0.08)]
    assert overhead_of(cells, None) == pytest.approx((0.003, 0.1))


def test_work_and_slowdown_stay_within_what_can_be() -> None:
    assert overhead_of([Slowdown(-0.002, 0.02, 0.02), Slowdown(-0.004, 0.08, 0.08)], 0.06) == pytest.approx(
        (0, 0), abs=2e-3
    )
    assert overhead_of([Slowdown(0.02, 0.02, 0.02), Slowdown(0.1, 0.1, 0.1)], 0.2).slowdown == MOST_SLOWDOWN


def test_one_cell_far_off_does_not_turn_work_into_slowdown() -> None:
    """A study's last cell ran while the machine was quicker: its backward seems to be shorter beside messages."""
    cells = [Slowdown(0.015 + 0.05 * each, each, each) for each in (0.09, 0.10, 0.27)]
    found = overhead_of([*cells, Slowdown(-0.006, 0.26, 0.26)], 0.14)
    assert found.slowdown == pytest.approx(0.05, abs=0.03)
    assert found.work_s == pytest.approx(0.015, abs=0.003)


def test_what_slows_computing_grows_with_the_bytes_that_a_link_carries() -> None:
    slow, quick = 37.5e6, 125e6  # 300 Mbit/s and 1 Gbit/s
    assert usual_slowdown(slow) == pytest.approx(0.064, abs=0.001)
    assert usual_slowdown(quick) == pytest.approx(0.1425)
    assert usual_slowdown(12.5e9) == MOST_USUAL_SLOWDOWN
    assert slowdown_over(0.1, slow, quick) == pytest.approx(0.1 * 0.1425 / 0.06375)
    assert slowdown_over(0.1, slow, slow) == 0.1
    assert slowdown_over(0.5, slow, 1.25e9) == MOST_SLOWDOWN
    for old in (slow, quick, 2e9):  # what is usual over one link is usual over any other
        for new in (slow, quick, 2e9):
            assert slowdown_over(usual_slowdown(old), old, new) == pytest.approx(usual_slowdown(new))


def wire(hosts: Hosts | None) -> LinkModel:
    """Without latency, at 100 MB/s."""
    models = {name: CostModel(name, name, 2, 0.0, 100e6, 0.0, 1.0, 1, 10**8) for name in ("gather", "scatter")}
    return LinkModel(models, hosts, 2)


@pytest.mark.parametrize(("size", "whole_s"), [(10**5, 1e-3), (10**7, 0.1)])
def test_a_link_that_rests_every_other_message_sends_a_burst_at_once(size: int, whole_s: float) -> None:
    """There and back in turn: each finds a link that has rested as long as the other took, 1 ms at most."""
    sent = [Sent(name, size, AFTER_BACKWARD, blocking=True) for name in TURNS * 20]
    shaped, plain = (wire(hosts).messages(sent, 2) for hosts in (Hosts(count=2, rate_bits_per_s=RATE), None))
    assert [message.alone_s for message in plain] == pytest.approx([whole_s] * 40)
    assert shaped[0].alone_s == pytest.approx(whole_s)
    assert np.mean([message.alone_s for message in shaped[20:]]) == pytest.approx(
        max(whole_s / 2, whole_s - 1e-3), rel=0.06
    )


def test_turns_through_the_root_have_the_latency_of_turns() -> None:
    """Back to back, gathers of 1 KiB took 0.2 ms each and scatters 0.5; in turn both together took 0.55."""
    timed = {"gather": (0.2e-3, 8), "scatter": (0.5e-3, 1)}
    models = {
        name: CostModel(name, name, 2, alpha_s, 100e6, 0.0, 1.0, 1, 10**8, exponent)
        for name, (alpha_s, exponent) in timed.items()
    }
    plain = LinkModel(models, None, 2, in_turn_s=0.275e-3)
    sent = [Sent(name, 10_000, AFTER_BACKWARD, blocking=True) for name in timed] * 20
    first, *others = plain.messages(sent, 2)
    assert first.alone_s == pytest.approx(0.2e-3, rel=1e-3)
    assert [each.alone_s for each in others] == pytest.approx([0.275e-3 + 0.1e-3] * 39)
    assert plain.latency_share(sent, 2) == pytest.approx(0.275 / 0.375, rel=0.02)
    slower = Hosts(count=2, rate_bits_per_s=RATE, latency_s=1e-3)
    far = replace(plain, hosts=Hosts(count=2, rate_bits_per_s=RATE)).over(slower)
    assert far.in_turn_s == pytest.approx(1.275e-3)
    assert plain.changed(latency=2.0).in_turn_s == pytest.approx(0.55e-3)
    alike = [Sent("gather", 10_000, AFTER_BACKWARD, blocking=True)] * 3
    assert [each.alone_s for each in plain.messages(alike, 2)] == pytest.approx([0.2e-3] * 3, rel=1e-3)


def test_the_way_itself_is_counted_once_however_many_workers_take_turns() -> None:
    """Parts of all workers are under way side by side; what the root does with each is not."""
    far = Hosts(count=2, latency_s=10e-3)
    plain = replace(wire(far), in_turn_s=10.3e-3)
    sent = [Sent(name, 1, AFTER_BACKWARD, blocking=True) for name in TURNS * 20]
    assert plain.messages(sent, 8)[-1].alone_s == pytest.approx(10e-3 + 7 * 0.3e-3, rel=0.001)
    nearer = plain.over(Hosts(count=2, latency_s=1e-3))
    assert nearer.messages(sent, 8)[-1].alone_s == pytest.approx(1e-3 + 7 * 0.3e-3, rel=0.001)


def test_what_sends_both_ways_leaves_nothing_saved() -> None:
    models = {name: CostModel(name, name, 2, 0.0, 100e6, 0.0, 1.0, 1, 10**8) for name in (*TURNS, "all-reduce")}
    shaped = LinkModel(models, Hosts(count=2, rate_bits_per_s=RATE), 2, in_turn_s=0.0)
    sent = [Sent(name, 10**6, AFTER_BACKWARD, blocking=True) for name in ("all-reduce", *TURNS)]
    assert [message.alone_s for message in shaped.messages(sent, 2)] == pytest.approx([0.01, 0.01, 0.009])


def test_small_messages_leave_the_burst_to_large_ones() -> None:
    """Each way rests while the other sends and while answers are waited for, and what it saves up lasts."""
    sizes = (400_000, 400_000, 1_000, 1_000) * 10
    sent = [Sent(name, size, AFTER_BACKWARD, blocking=True) for name, size in zip(TURNS * 20, sizes, strict=True)]
    shaped = replace(wire(Hosts(count=2, rate_bits_per_s=RATE)), in_turn_s=0.3e-3).messages(sent, 2)
    times_s = [message.alone_s for message in shaped[4:]]
    assert times_s == pytest.approx(([4e-3 - 1e-3 + 0.3e-3] * 2 + [0.3e-3] * 2) * 9, rel=0.01)


def test_messages_one_way_save_nothing_up() -> None:
    sent = [Sent("gather", 10**6, AFTER_BACKWARD, blocking=True)] * 5
    found = wire(Hosts(count=2, rate_bits_per_s=RATE)).messages(sent, 2)
    assert [message.alone_s for message in found] == pytest.approx([0.01] * 5)


def all_reduces(count: int = 10, size: int = 10**6) -> list[Sent]:
    return [Sent("all-reduce", size, AFTER_BACKWARD, blocking=True)] * count


def ring(rate: float, *, alpha_s: float = 2e-4, latency_s: float | None = None) -> LinkModel:
    """Two hosts with a link of this rate (bits/s), and an all-reduce that fills it."""
    hosts = Hosts(count=2, rate_bits_per_s=round(rate), latency_s=latency_s)
    payload = hosts.payload_bytes_per_s
    assert payload is not None
    return LinkModel(
        {"all-reduce": CostModel("all-reduce", "all-reduce", 2, alpha_s, payload, 0.0, 1.0, 1, 10**8)}, hosts, 2
    )


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0, 1.8])
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_what_a_link_adds_takes_as_long_in_training(factor: float, world_size: int) -> None:
    """A delay is known: only the rest of the latency takes longer or shorter than the benchmark says.

    While a message waits for its way, the link saves up what the next one spends: 1 ms at most.
    """
    near = ring(1e9)
    assert near.hosts is not None
    far = near.over(near.hosts.model_copy(update={"latency_s": 0.01}))
    taken = [
        sum(each.alone_s for each in link.messages(all_reduces(), world_size, Factors(factor))) for link in (near, far)
    ]
    steps = 2 * (world_size - 1)
    saved_s = 1e-3 - min(1e-3, steps * factor * 2e-4)
    assert taken[1] - taken[0] == pytest.approx(10 * steps * 0.01 - 9 * saved_s)


@pytest.mark.parametrize(("between_s", "alone_s"), [(0.0, 0.0), (2e-4, -2e-4), (9e-3, -1e-3 + 4e-4)])
def test_what_a_link_saves_up_between_small_messages_their_bytes_spend(between_s: float, alone_s: float) -> None:
    """All-reduces one after the other: neither their latency nor what ranks do between them makes the link idle."""
    link, plain = ring(1e9), replace(ring(1e9), hosts=None)
    bytes_s, work_s = 1e6 / link.bytes_per_s, 10 * between_s
    assert [each.alone_s for each in plain.messages(all_reduces(), 2, work_s=work_s)] == pytest.approx(
        [4e-4 + bytes_s] * 10
    )
    found = [each.alone_s for each in link.messages(all_reduces(), 2, work_s=work_s)]
    assert found[0] == pytest.approx(4e-4 + bytes_s)
    assert found[2:] == pytest.approx([bytes_s + alone_s] * 8)
    model = replace(link.models["all-reduce"], exponent=8)
    hidden = replace(link, models={"all-reduce": model}).messages(all_reduces(), 2, work_s=work_s)
    assert [each.alone_s for each in hidden[2:]] == pytest.approx(found[2:]), "the same bytes over the same link"
    overlapped = [Sent("all-reduce", 10**6, 0.5, blocking=False), *all_reduces()]
    assert link.messages(overlapped, 2, work_s=work_s)[1].alone_s == pytest.approx(found[0])
    assert plain.latency_share(all_reduces(), 2) == pytest.approx(4e-4 / (4e-4 + bytes_s), rel=0.05)
    assert link.latency_share(all_reduces(1000), 2) == pytest.approx(0.0, abs=1e-3), "it hides behind the bytes"


def test_what_follows_a_message_takes_longer_after_a_longer_wait() -> None:
    """A link of a tenth of the rate: 10 messages of 10 ms each in place of 1 ms; those beside backward do not count."""
    slow, quick = (replace(wire(None), models={"all-reduce": model_at(rate)}) for rate in (1e8, 1e9))
    sent = [Sent("all-reduce", 10**6, 0.5, blocking=False), *all_reduces()]
    assert slow.waiting_s(sent, 2) == pytest.approx(0.1)
    waits = slow.waiting_s(sent, 2), quick.waiting_s(sent, 2)
    assert woken(20e-3, *waits) == pytest.approx(20e-3 * 10**0.3), "two machines: 1.3 to 1.6 times for 3 times"
    assert woken(20e-3, *reversed(waits)) == pytest.approx(20e-3 / 10**0.3)
    assert woken(20e-3, 1e3, 1.0) == pytest.approx(20e-3 * 20**0.3), "no longer wait was measured"
    assert woken(20e-3, 0.0, 0.0) == 20e-3, "nothing is sent after backward"
    assert woken(-5e-3, *waits) == -5e-3, "what was not seen is no work"


def model_at(rate: float) -> CostModel:
    """An all-reduce that takes its bytes at this rate (bytes/s)."""
    return CostModel("all-reduce", "all-reduce", 2, 0.0, rate, 0.0, 1.0, 1, 10**8)


@pytest.mark.parametrize("exponent", [1, 2, 8])
def test_a_longer_way_hides_behind_no_bytes(exponent: int) -> None:
    """32 KB over 1 Gbit/s: 0.23 ms of latency, which was timed, beside 0.27 of bytes; a delay comes on top of both."""
    near = ring(1e9, alpha_s=115e-6)
    near = replace(near, models={"all-reduce": replace(near.models["all-reduce"], exponent=exponent)})
    assert near.hosts is not None
    sent = [Sent("all-reduce", 32_000, 0.5, blocking=False)]
    timed_s = near.messages(sent, 2)[0].alone_s
    for latency_s in (10e-6, 5e-3):
        far = near.over(near.hosts.model_copy(update={"latency_s": latency_s}))
        assert far.messages(sent, 2)[0].alone_s == pytest.approx(timed_s + 2 * latency_s)
        assert far.over(near.hosts).messages(sent, 2)[0].alone_s == pytest.approx(timed_s)
    # The power at that very latency; over the range of 1.5 times either way it is less steep.
    power = 0.23**exponent / (0.23**exponent + 0.268**exponent)
    assert near.latency_share(sent, 2) == pytest.approx(power, abs=0.12)
    senders = Sent("gather", 32_000, 0.5, blocking=False)
    rooted = replace(near, models={"gather": replace(near.models["all-reduce"], collective="gather", as_run="gather")})
    farther = rooted.over(near.hosts.model_copy(update={"latency_s": 5e-3}))
    alone_s = [link.messages([senders], 64)[0].alone_s for link in (rooted, farther)]
    assert alone_s[1] - alone_s[0] == pytest.approx(5e-3), "63 send side by side"


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.5])
@pytest.mark.parametrize(("known_s", "asked_s"), [(None, 1e-3), (None, 5e-3), (1e-4, 1e-3), (1e-3, None)])
def test_latency_has_at_most_all_of_the_time(factor: float, known_s: float | None, asked_s: float | None) -> None:
    """160 small all-reduces over a link whose delay is known, and takes as long in training."""
    near = ring(3e8, alpha_s=1e-4 + (known_s or 0.0), latency_s=known_s)
    assert near.hosts is not None
    far = near.over(near.hosts.model_copy(update={"latency_s": asked_s}))
    sent = [Sent("all-reduce", 100, 0.5, blocking=False)] * 160
    assert far.latency_share(sent, 2, Factors(factor)) == pytest.approx(1.0, abs=0.05)
    assert far.latency_share(sent, 2, Factors(factor)) <= 1.0


@pytest.mark.parametrize("exponent", [1, 2, 4, 8])
def test_what_hides_in_the_benchmark_hides_in_training(exponent: int) -> None:
    """Latency of 0.4 ms and 10 ms of bytes, where a real link saves nothing up; each part has its factor first."""
    link = replace(ring(8e8), hosts=None)
    link = replace(link, models={"all-reduce": replace(link.models["all-reduce"], exponent=exponent)})
    bytes_s = 1e6 / link.bytes_per_s
    for factors in (Factors(), Factors(latency=2.0), Factors(latency=10.0, rate=1.5)):
        latency_s, wire_s = 4e-4 * factors.latency, bytes_s * factors.rate
        expected_s = (latency_s**exponent + wire_s**exponent) ** (1 / exponent)
        for sent in (all_reduces(), [Sent("all-reduce", 10**6, 0.5, blocking=False)] * 3):
            found = [each.alone_s for each in link.messages(sent, 2, factors)]
            assert found == pytest.approx([expected_s] * len(sent))


def test_no_step_takes_less_than_its_bytes() -> None:
    """Whatever the measured steps took beside the model: what they took less would grow with a slower link."""
    link = ring(1e8)
    assert link.hosts is not None
    payload = link.hosts.payload_bytes_per_s
    assert payload is not None
    assert link.least_s(all_reduces(), 4) == pytest.approx(1.5 * 10**7 / payload - link.burst_s)
    there_and_back = [Sent(name, 10**6, AFTER_BACKWARD, blocking=True) for name in TURNS]
    rooted = wire(link.hosts)
    assert rooted.least_s(there_and_back, 4) == pytest.approx(3 * 10**6 / payload - link.burst_s), "each its own way"
    assert wire(None).least_s(there_and_back, 4) == 0.0, "the rate of this link is not known"


@pytest.mark.parametrize(
    ("rate", "factor", "expected"),
    [
        (1e8, 1.22, 1.07),
        (4e8, 1.22, 1.22),
        (8e8, 1.22, 1.23435),
        (8e8, 0.9, 0.91435),
        (1e8, 1.01, 1.01),
        (1e8, 0.9, 0.9),
    ],
)
def test_what_cores_do_for_each_byte_is_less_over_a_slower_link(rate: float, factor: float, expected: float) -> None:
    """Over a quarter of the rate a quarter of what is above 1.02; over a faster link 0.3 ns a byte more than before."""
    assert ring(rate).factors_over(ring(4e8), Factors(1.5, factor)) == pytest.approx(Factors(1.5, expected), abs=1e-4)
