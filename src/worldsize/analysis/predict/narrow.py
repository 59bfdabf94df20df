"""Which measurement would move a forecast most: what is not known of each of its numbers now (method.md §14)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from worldsize.analysis.commands import study_command
from worldsize.analysis.predict.bounds import nodes_of, on_gpus
from worldsize.analysis.predict.forecast import Inputs, Target, inputs_of, simulated
from worldsize.analysis.predict.model import Model
from worldsize.analysis.predict.network import LinkModel
from worldsize.analysis.predict.observed import Compute
from worldsize.results.forecast_records import Narrowing

STEPS = 60
"""Steps that are simulated with each change: of the same draws, so that few tell it."""
WORTH_MEASURING = 0.005
"""Share of the step below which a measurement is not worth its time."""
LATENCY_DOUBT, RATE_DOUBT = 0.3, 0.05
"""How far latency and rate of a link may be from what a short benchmark says (shares): taken, not measured."""
UNSEEN_DOUBT = 0.15
"""The same of a link that was not timed at all."""
ONE_BATCH_DOUBT, LINE_DOUBT = 0.1, 0.03
"""How far off computing is at a batch that was not measured: from one other batch, or from two."""


def narrowing(model: Model, target: Target) -> list[Narrowing]:
    """Each measurement with a notable effect on the largest forecast, the most effective first."""
    inputs = inputs_of(model, target)
    if inputs is None or target.world_size == 1:
        return []
    base_s = simulated(inputs, STEPS).step_s
    found = [
        Narrowing(what=what, effect=abs(simulated(other, STEPS).step_s / base_s - 1), command=command)
        for what, other, command in _tried(model, target, inputs)
    ]
    return sorted(
        (each for each in found if each.effect >= WORTH_MEASURING), key=lambda each: each.effect, reverse=True
    )


def _tried(model: Model, target: Target, inputs: Inputs) -> Iterator[tuple[str, Inputs, str | None]]:
    """What is measured, the forecast's inputs if that is as far off as it may be, and the command."""
    wire = inputs.wire
    assert wire is not None, "several workers are predicted"
    timed_there = model.wire is not None and wire.hosts == model.wire.hosts
    doubt = RATE_DOUBT if timed_there else UNSEEN_DOUBT
    # The same workers over the same link once more would tell no more of it; more of them do.
    workers = 2 * max(cell.world_size for cell in model.analysis.cells) if timed_there else 2
    timed = _study(model, workers, wire) if _has_room(model, workers) else None
    yield "rate of the link", replace(inputs, wire=wire.changed(rate=1 - doubt)), timed
    yield "latency of the link", replace(inputs, wire=wire.changed(latency=1 + LATENCY_DOUBT)), timed
    ranks, batch = inputs.ranks, target.batch_size
    if ranks is not None and (seen := ranks.rest.shape[1]) < target.world_size:
        wider = replace(ranks, rank=2 * ranks.rank, rest=ranks.rest * (1 + 1 / np.sqrt(2 * len(ranks.rest))))
        command = _study(model, 2 * seen, wire) if _has_room(model, 2 * seen) else None
        yield "differences between workers", replace(inputs, ranks=wider), command
    known = model.known(target.strategy).together
    if batch not in known:
        more = 1 + (ONE_BATCH_DOUBT if len(known) == 1 else LINE_DOUBT)
        slower = inputs.compute.times(Compute(more, more, 1.0))
        command = _study(model, 2, wire, batch_sizes=(batch,), global_batch=None)
        yield f"computing at b = {batch}", replace(inputs, compute=slower), command


def _has_room(model: Model, world_size: int) -> bool:
    """Whether the machine of the run has a core or a GPU for each worker; several nodes are taken to have.

    Workers that share cores would be in each other's way, and no forecast uses such a cell.
    """
    record = model.analysis.record
    if nodes_of(model) > 1:
        return True
    if on_gpus(model):
        return world_size <= len(record.provenance.host.gpus)
    return world_size * (record.asked.threads_per_worker or 1) <= _room_cores(model)


def _room_cores(model: Model) -> float:
    """min(physical cores, quota) where the cells ran (method.md §8); of an older run those of the host."""
    known = [placement.room_cores for placement in model.placements if placement.room_cores]
    return min(known, default=model.analysis.record.provenance.host.room_cores)


def _study(model: Model, world_size: int, wire: LinkModel, **changes: Any) -> str | None:
    """The study of this run with so many workers over this link.

    None where worldsize gave it no settings, and for another batch of a script, which chooses its own.
    """
    asked = model.analysis.record.settings
    if asked is None or (asked.script and changes):
        return None
    on_hosts = model.wire is not None and model.wire.hosts is not None
    where = _place(wire, world_size) if on_hosts else {}
    return study_command(asked, world_sizes=(1, world_size), **where, **changes)


def _place(wire: LinkModel, world_size: int) -> dict[str, Any]:
    """So many emulated hosts with this link, whatever links the run had."""
    hosts = wire.hosts
    rate = None if hosts is None else hosts.rate_bits_per_s
    latency_s = None if hosts is None else hosts.latency_s
    unit, name = (1e9, "gbit") if rate and rate >= 1e9 else (1e6, "mbit")
    slow = {} if hosts is None else hosts.own_rates
    return {
        "hosts": world_size,
        "link": None if rate is None else f"{rate / unit:.12g}{name}",
        "link_latency": None if latency_s is None else f"{latency_s * 1e6:.12g}us",
        "slow_link": tuple(f"{host}:{own / 1e6:.12g}mbit" for host, own in slow.items() if host < world_size),
    }
