"""Run the collective benchmark: workers are started, time everything, and end."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from worldsize.config import CommSettings, Hosts, NetworkSettings
from worldsize.errors import RunError, UsageError
from worldsize.launch.cluster import Cluster, ThisMachine
from worldsize.launch.environment import worker_environment
from worldsize.launch.job import Job
from worldsize.launch.local import JobFailed
from worldsize.launch.placement import default_threads, place
from worldsize.launch.warm import WARM
from worldsize.measure.abilities import network_namespaces
from worldsize.measure.facts import system_facts
from worldsize.measure.machine import provenance, snapshot_host
from worldsize.results.comm_records import CommRecord, CommSample, PeerRate
from worldsize.results.records import Placement, Provenance, RankPlace, WarningRecord

N = TypeVar("N", bound=NetworkSettings)
LINKS = ("link", "link_latency")
ENTRY = "worldsize.collectives.bench:enter"


def sizes_up_to(top_bytes: int) -> list[int]:
    """Sizes from 1 KiB by fours, and the top itself."""
    sizes = [1024 * 4**k for k in range(20) if 1024 * 4**k < top_bytes]
    return [*sizes, top_bytes]


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
    links = {"link": settings.link, "link_latency": settings.link_latency} if hosts else dict.fromkeys(LINKS)
    warning = WarningRecord(code="no-hosts", message=why) if why else None
    return settings.model_copy(update={"hosts": hosts, **links}), warning


def run_comm(
    settings: CommSettings,
    folder: Path,
    command: Sequence[str],
    *,
    gpus: int = 0,
    idle: Callable[[], None] | None = None,
    hang_timeout_s: float | None = None,
    cluster: Cluster | None = None,
) -> CommRecord:
    """Time the collectives of `settings` on workers of their own; `folder` takes job file and logs.

    Raises UsageError for a world of one, RunError if the workers fail.
    """
    if settings.world_size < 2:
        raise UsageError(f"world size {settings.world_size} was given; collectives need at least 2 workers")
    cluster = cluster or ThisMachine()
    settings, _ = with_hosts(settings, settings.world_size, gpus)
    check_hosts(settings, settings.world_size)
    nodes = cluster.share_out(settings.world_size)
    busiest = max((node.processes for node in nodes), default=settings.world_size)
    placement = place(
        world_size=settings.world_size,
        processes=settings.world_size,
        threads_per_worker=settings.threads_per_worker or default_threads(len(cluster.cores), busiest),
        cores=cluster.cores,
        gpus=gpus,
        backend=settings.backend,
        nodes=nodes,
    )
    hosts = settings.emulated
    job = Job(
        entry=ENTRY,
        payload=_task(settings, placement),
        processes=settings.world_size,
        folder=folder,
        environment=worker_environment(hosts, spread=bool(nodes)),
        hosts=hosts,
        nodes=nodes,
        hang_timeout_s=hang_timeout_s,
    )
    origin = provenance(command, host=snapshot_host(with_gpus=False), worker_environment=job.environment)
    return comm_record(_replies(job, cluster, idle), placement, hosts, origin)


def comm_record(
    replies: Sequence[dict[str, Any]], placement: Placement, hosts: Hosts | None, origin: Provenance
) -> CommRecord:
    """The record of what the ranks have replied."""
    places = [RankPlace.model_validate(reply["place"]) for reply in replies]
    return CommRecord(
        provenance=origin,
        world_size=len(replies),
        placement=placement,
        hosts=hosts,
        ranks=[[CommSample.model_validate(sample) for sample in reply["comm"]] for reply in replies],
        peers=[
            PeerRate(
                rank=rank,
                place=places[rank],
                bytes_per_s=reply["to_first_bytes_per_s"],
                beside_first=hosts is None and places[rank].host == places[0].host,
            )
            for rank, reply in enumerate(replies)
            if reply.get("to_first_bytes_per_s")
        ],
    )


def _task(settings: CommSettings, placement: Placement) -> dict[str, Any]:
    return {
        "collectives": list(settings.collectives),
        "sizes_bytes": sizes_up_to(settings.top_bytes),
        "samples": settings.samples,
        "placement": placement.model_dump(mode="json"),
    }


def _replies(job: Job, cluster: Cluster, idle: Callable[[], None] | None) -> list[Any]:
    """What the ranks of the benchmark measured; no worker is left when this returns. Raises RunError."""
    try:
        with WARM.held(), contextlib.closing(cluster.start(job)) as running:
            return running.receive(idle)
    except JobFailed as failed:
        raise RunError(failed.error.message) from None
