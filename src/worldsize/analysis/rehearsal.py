"""Whether a rehearsal can be believed: how well its ranks kept their times, and its links theirs (method.md §15)."""

from collections.abc import Iterator
from math import floor

from worldsize.analysis.numbers import number_text, percent_text
from worldsize.config import StudySettings
from worldsize.results.comm_records import CommRecord, HostLink
from worldsize.results.records import CellRecord, ErrorRecord, WarningRecord

MIN_FIDELITY = 0.98
"""Intended ÷ waited time below which a cell gets no numbers."""
MAX_BURST = 1.1
"""The most that may arrive in 100 ms, over what the link is to carry."""
MIN_CARRIED = 0.9
"""Share of its payload rate that a link must carry while all hosts send."""
MAX_QUEUED = 0.05
"""What the threads of a rank may queue for a core, as a share of its time. Of 12 rehearsed cells (benchmarks,
predict_rehearsed) the nine below were at most 1.5 % off a forecast; the three above, from 0.053, 2, 10 and 32 %.
"""
REAL = "Real: the collectives, in the order and sizes of each strategy, over emulated hosts."
REPLAYED = "Replayed: all computing; ranks only wait as long as was measured."


def first_line(settings: StudySettings) -> str:
    """What of a rehearsal is real, and what is replayed."""
    hosts, replay = settings.emulated, settings.replay
    assert hosts is not None, "a rehearsal is over hosts"
    assert replay is not None, "a rehearsal replays"
    unlimited = "" if settings.slow_link else ", whose links have no limit"
    links = f" with links of {settings.link}" if settings.link else unlimited
    latency = f" and {settings.link_latency} of latency" if hosts.latency_s else ""
    return f"Rehearsal of {replay.run} on {hosts.count} emulated hosts{links}{latency}. {REAL} {REPLAYED}"


def refusal(record: CellRecord) -> ErrorRecord | None:
    """Why a cell of a rehearsal has no numbers; None where its ranks kept their times."""
    fidelity = None if record.replayed is None else record.replayed.fidelity
    if fidelity is None or fidelity >= MIN_FIDELITY:
        return None
    rounded = floor(1000 * fidelity) / 1000  # 0.9797 is no 0.980
    n = record.world_size
    ranks, busy = ("rank", "something else") if n == 1 else (f"{n} ranks", "messages, or something else")
    way = "Give fewer --hosts" if n > 2 else "End what else runs here"
    return ErrorRecord(
        kind="ReplayTooLate",
        message=(
            f"replay fidelity is {rounded:.3f}, and at least {MIN_FIDELITY} is needed: its {ranks} waited longer than "
            f"was measured, because the cores were busy with {busy}\n"
            f"{way}, or give a larger --batch-size, whose steps are longer."
        ),
    )


def core_warnings(record: CellRecord) -> Iterator[WarningRecord]:
    """Whether messages waited for the cores of this machine, which those between real hosts do not share."""
    share = None if record.replayed is None else record.replayed.queued_share
    if share is not None and share > MAX_QUEUED:
        yield WarningRecord(
            code="queued-for-cores",
            message=(
                f"the threads of each of its {record.world_size} ranks queued for the cores of this machine for "
                f"{percent_text(share)} of the time, all threads of a rank together. Hosts with cores of their own "
                "have no such queue. Messages are late here, and steps too long: by more than this share where all "
                "ranks wait for the slowest\nGive fewer --hosts, a strategy with fewer messages, or more cores."
            ),
        )


def links_text(record: CommRecord) -> str:
    """The self-test of all links in a line."""
    slowest = min(record.links, key=lambda link: link.steady_bytes_per_s / (link.payload_bytes_per_s or 1.0))
    steady = f"Links, all hosts sending: at least {_rate(slowest.steady_bytes_per_s)}"
    if slowest.payload_bytes_per_s is not None:
        share = percent_text(slowest.steady_bytes_per_s / slowest.payload_bytes_per_s)
        steady += f" ({share} of the {_rate(slowest.payload_bytes_per_s)} that TCP gets of this link)"
    bursts = [link.burst for link in record.links if link.burst is not None]
    if bursts:
        steady += f"; largest burst in 100 ms {max(bursts):.2f} of the rate"
    return f"{steady}; round trip {number_text(1e6 * max(link.round_trip_s for link in record.links))} µs."


def link_warnings(record: CommRecord) -> Iterator[WarningRecord]:
    """What makes the emulated links other ones than were asked for."""
    late = [link for link in record.links if _carried(link) < MIN_CARRIED]
    if late:
        worst = min(late, key=_carried)
        yield WarningRecord(
            code="link-not-carried",
            message=(
                f"while all {record.world_size} hosts send, the link of host {worst.host} carries "
                f"{percent_text(_carried(worst))} of its rate: the cores of this machine limit the messages, not the "
                "links, and the rehearsed steps are too long\nGive fewer --hosts or a slower --link, or more cores."
            ),
        )
    bursting = [link for link in record.links if link.burst is not None and link.burst > MAX_BURST]
    if bursting:
        worst = max(bursting, key=lambda link: link.burst or 0.0)
        yield WarningRecord(
            code="link-bursts",
            message=(
                f"the link of host {worst.host} let {worst.burst:.2f} of its rate through within 100 ms, and at most "
                f"{MAX_BURST} is allowed: short messages are faster than on a real link\nGive another --link."
            ),
        )


def _carried(link: HostLink) -> float:
    return 1.0 if link.payload_bytes_per_s is None else link.steady_bytes_per_s / link.payload_bytes_per_s


def _rate(bytes_per_s: float) -> str:
    return f"{number_text(8e-6 * bytes_per_s)} Mbit/s"
