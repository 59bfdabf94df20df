"""Run the collective benchmark: workers are started, take the samples that they are asked for, and end."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from worldsize.analysis.collective_cost import IN_TURN
from worldsize.analysis.numbers import size_text
from worldsize.config import CommSettings, NetworkSettings
from worldsize.errors import RunError, UsageError
from worldsize.launch.cluster import Cluster, Running, ThisMachine
from worldsize.launch.environment import worker_environment
from worldsize.launch.hosts import can_delay
from worldsize.launch.job import Job, Node
from worldsize.launch.local import JobFailed
from worldsize.launch.placement import default_threads, place
from worldsize.launch.warm import WARM
from worldsize.measure.abilities import network_namespaces
from worldsize.measure.facts import system_facts
from worldsize.measure.machine import provenance, snapshot_host
from worldsize.ranks.turns import Reply, Turn, read_replies
from worldsize.results.comm_records import CommRecord, HostLink, PeerRate
from worldsize.results.provenance import Provenance
from worldsize.results.records import Placement, WarningRecord
from worldsize.study.comm_budget import cases, countdown
from worldsize.study.sampling import MIN_SAMPLES, Case, Sampling, Together

N = TypeVar("N", bound=NetworkSettings)
NO_LINKS: dict[str, Any] = {"link": None, "link_latency": None, "slow_link": ()}
ENTRY = "worldsize.collectives.bench:enter"


class CommListener(Protocol):
    """Hears how a benchmark gets on, in order."""

    def starting(self, workers: int) -> None:
        """The workers are being started."""

    def sampled(self, sampling: Sampling) -> None:
        """A sample was taken, or a round is over."""


class Silence:
    """The listener that does nothing."""

    def starting(self, workers: int) -> None:
        """Do nothing."""

    def sampled(self, sampling: Sampling) -> None:
        """Do nothing."""


class Found(NamedTuple):
    """What a benchmark has measured."""

    ready: list[Reply]
    """What each rank said when it was there."""
    samples: list[Together]
    left_out: list[Case]
    links: Sequence[HostLink] = ()
    """The self-test of each host's link, where it was asked for."""


def check_hosts(settings: NetworkSettings, largest_world: int) -> None:
    """Raise UsageError, in one line, if the emulated hosts that were asked for cannot be had here."""
    hosts = settings.emulated
    if hosts is None:
        return
    if largest_world > hosts.count:
        raise UsageError(
            f"world size {largest_world} was given with {hosts.count} emulated hosts; each takes one worker\n"
            f"Give --hosts {largest_world}, or fewer workers."
        )
    ability = network_namespaces(system_facts())
    if not ability.available:
        raise UsageError(f"hosts cannot be emulated here: {ability.detail}\nTo mend it: {ability.remedy}.")
    if hosts.latency_s is not None and not can_delay():
        raise UsageError(
            "link_latency was given, and this kernel has no netem, which delays packets\nGive --link-latency 0us."
        )


def with_hosts(settings: N, largest_world: int, gpus: int) -> tuple[N, WarningRecord | None]:
    """The same settings with `hosts = "auto"` decided: emulated where the rights are there, and no GPU is used.

    The warning says why hosts are not emulated, if they could be.
    """
    if settings.hosts != "auto":
        return settings, None
    why = None
    ability = network_namespaces(system_facts())
    if largest_world < 2 or gpus:
        hosts = None
    elif ability.available:
        hosts = largest_world
    else:
        hosts, why = None, f"hosts are not emulated here ({ability.detail}): the workers talk over loopback"
    links = {} if hosts else NO_LINKS
    warning = WarningRecord(code="no-hosts", message=why) if why else None
    return settings.model_copy(update={"hosts": hosts, **links}), warning


def run_comm(
    settings: CommSettings,
    folder: Path,
    command: Sequence[str],
    *,
    gpus: int = 0,
    listener: CommListener | None = None,
    hang_timeout_s: float | None = None,
    cluster: Cluster | None = None,
) -> CommRecord:
    """Time the collectives of `settings` on workers of their own; `folder` takes job file and logs.

    Raises UsageError for a world of one, RunError if the workers fail.
    """
    begun_s = time.monotonic()
    if settings.world_size < 2:
        raise UsageError(f"world size {settings.world_size} was given; collectives need at least 2 workers")
    cluster, listener = cluster or ThisMachine(), listener or Silence()
    settings, _ = with_hosts(settings, settings.world_size, gpus)
    check_hosts(settings, settings.world_size)
    nodes = cluster.share_out(settings.world_size)
    placement = _placed(settings, cluster, nodes, gpus)
    job = _job(settings, folder, placement, nodes, hang_timeout_s)
    origin = provenance(command, host=snapshot_host(with_gpus=False), worker_environment=job.environment)
    listener.starting(settings.world_size)
    try:
        with WARM.held(), contextlib.closing(cluster.start(job)) as running:
            ready = read_replies(running.receive())
            links = _tested(running) if settings.test_links else []
            found = _found(running, settings, ready, begun_s, listener)._replace(links=links)
    except JobFailed as failed:
        raise RunError(failed.error.message) from None
    return comm_record(settings, found, placement, origin)


def _placed(settings: CommSettings, cluster: Cluster, nodes: tuple[Node, ...], gpus: int) -> Placement:
    busiest = max((node.processes for node in nodes), default=settings.world_size)
    return place(
        world_size=settings.world_size,
        processes=settings.world_size,
        threads_per_worker=settings.threads_per_worker or default_threads(cluster.cores.threads, busiest),
        cores=cluster.cores,
        gpus=gpus,
        backend=settings.backend,
        nodes=nodes,
    )


def _job(
    settings: CommSettings, folder: Path, placement: Placement, nodes: tuple[Node, ...], hang_timeout_s: float | None
) -> Job:
    hosts = settings.emulated
    return Job(
        entry=ENTRY,
        payload={
            "placement": placement.model_dump(mode="json"),
            "hosts": None if hosts is None else hosts.model_dump(mode="json"),
        },
        processes=settings.world_size,
        folder=folder,
        environment=worker_environment(hosts, spread=bool(nodes)),
        hosts=hosts,
        nodes=nodes,
        hang_timeout_s=hang_timeout_s,
    )


def _tested(running: Running) -> list[HostLink]:
    """Let the ranks of a job test the links of their hosts. Raises JobFailed."""
    running.send(Turn(op="link").message())
    return [link for reply in read_replies(running.receive()) for link in reply.links]


def _found(
    running: Running, settings: CommSettings, ready: list[Reply], begun_s: float, listener: CommListener
) -> Found:
    """Let the workers of a job take all samples. Raises JobFailed."""

    def take(turn: Turn) -> list[Reply]:
        running.send(turn.message())
        return read_replies(running.receive())

    return take_samples(settings, ready, take, begun_s, listener)


def take_samples(
    settings: CommSettings,
    ready: list[Reply],
    take: Callable[[Turn], list[Reply]],
    begun_s: float,
    listener: CommListener,
) -> Found:
    """Choose and take all samples; `take` gives all ranks a turn and returns their replies.

    `begun_s` is when the budget began, on the clock of `time.monotonic`.
    """
    sampling = Sampling(
        cases(settings),
        _Asking(take),
        samples=settings.samples,
        left_s=countdown(settings.budget_s, begun_s),
        heard=listener.sampled,
    )
    return Found(ready, sampling.run(), sampling.left_out)


class _Asking:
    """Takes samples by turns."""

    def __init__(self, take: Callable[[Turn], list[Reply]]) -> None:
        self._take = take

    def __call__(self, case: Case, *, calls: int, block: int) -> Together:
        """Give the ranks the turn, and read their replies."""
        turn = Turn(op="collective", **case._asdict(), count=calls, block=block)
        return [reply.comm[0] for reply in self._take(turn)]


def comm_record(settings: CommSettings, found: Found, placement: Placement, origin: Provenance) -> CommRecord:
    """The record of what was found."""
    places = [reply.place for reply in found.ready if reply.place]
    hosts = settings.emulated
    return CommRecord(
        provenance=origin,
        world_size=len(found.ready),
        placement=placement,
        hosts=hosts,
        ranks=[[together[rank] for together in found.samples] for rank in range(len(found.ready))],
        peers=[
            PeerRate(
                rank=rank,
                place=places[rank],
                bytes_per_s=reply.to_first_bytes_per_s,
                beside_first=hosts is None and places[rank].host == places[0].host,
            )
            for rank, reply in enumerate(found.ready)
            if reply.to_first_bytes_per_s
        ],
        links=list(found.links),
        warnings=list(_warnings(settings, found)),
    )


def _warnings(settings: CommSettings, found: Found) -> Iterator[WarningRecord]:
    timed = {Case(each[0].collective, each[0].size_bytes) for each in found.samples}
    # A study asks for a short form, and gets fewer sizes: only that a curve ends early is worth a word.
    absent = [
        case
        for case in found.left_out
        if case.collective != IN_TURN and (settings.samples is None or _is_above(case, timed))
    ]
    if absent:
        yield _left_out(settings, absent, timed)
    counts = Counter(
        (each[0].collective, each[0].size_bytes) for each in found.samples if each[0].collective != IN_TURN
    )
    few = [count for count in counts.values() if count < MIN_SAMPLES]
    if few and settings.samples is None:
        yield WarningRecord(
            code="few-samples",
            message=(
                f"{len(few)} of {len(counts)} sizes have fewer than {MIN_SAMPLES} samples: their intervals are wide\n"
                "Give a larger --budget, a smaller --top or fewer --collectives."
            ),
        )


def _is_above(case: Case, timed: Collection[Case]) -> bool:
    """Whether nothing as large was timed of its collective."""
    return not any(other.collective == case.collective and other.size_bytes > case.size_bytes for other in timed)


def _left_out(settings: CommSettings, absent: Sequence[Case], timed: Collection[Case]) -> WarningRecord:
    """Which sizes there was no time for: some between those that were timed, and all from a size on."""
    named = []
    for name in dict.fromkeys(case.collective for case in sorted(absent)):
        sizes = sorted(case for case in absent if case.collective == name)
        between = [size_text(case.size_bytes) for case in sizes if not _is_above(case, timed)]
        above = [f"from {size_text(case.size_bytes)} on" for case in sizes if _is_above(case, timed)][:1]
        named.append(f"{name} {' and '.join([*between, *above])}")
    return WarningRecord(
        code="sizes-left-out",
        message=(
            f"not timed with {settings.world_size} workers, for want of time: {', '.join(named)}\n"
            "Give `worldsize comm` a larger --budget to time them."
        ),
    )
