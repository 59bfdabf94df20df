"""A rehearsal: a study whose ranks replay the computing of another run, over emulated hosts (method.md §15)."""

from math import ceil
from pathlib import Path
from typing import NamedTuple

from worldsize.analysis.numbers import number_text
from worldsize.analysis.replay import Wanted, replay_of, wanted
from worldsize.config import RehearseSettings, ReplaySettings, StudySettings, validated
from worldsize.errors import UsageError
from worldsize.launch.hosts import can_delay
from worldsize.results.folder import Run, load_run
from worldsize.results.replay import Replay
from worldsize.study.budget import least_sending_s, with_default_protocol
from worldsize.study.comm import check_hosts
from worldsize.traits import BASELINE_STRATEGY

ALIKE = ("model", "data", "precision", "bucket_mb")
"""Settings of the run that the rehearsal has as well: names to show, and how gradients travel."""


WARMUP_STEPS = 2
"""DDP arranges its buckets anew in its second step; nothing else becomes warm."""


class Rehearsal(NamedTuple):
    """What is run, and what it replays."""

    settings: StudySettings
    replay: Replay


def rehearsal_of(path: Path, asked: RehearseSettings) -> Rehearsal:
    """A rehearsal of the run in a folder. Raises UsageError for what cannot be rehearsed, or not here."""
    run = load_run(path)
    if run.study.rehearses:
        raise UsageError(f"{path} is a rehearsal itself\nGive the run that it replays.")
    asked = _with_its_links(asked, run)
    what = wanted(run, asked.strategies, asked.batch_size, asked.hosts)
    replay = replay_of(run, what)
    check_hosts(asked, asked.hosts)
    settings = _settings(run, asked, what)
    _check_link(run, settings, what)
    return Rehearsal(settings, replay)


def _with_its_links(asked: RehearseSettings, run: Run) -> RehearseSettings:
    """What was asked for, over the links of the run where none were: a forecast of the same run takes them as well.

    A slow one among them stays only where nothing is said of links, and where it has a host.
    """
    then = run.study.asked
    if then.emulated is None:
        return asked
    if then.emulated.latency_s and asked.link_latency is None and not can_delay():
        raise UsageError(
            f"the links of {run.study.name} had a latency of {then.link_latency}, and this kernel has no netem, which "
            "delays packets\nGive --link-latency 0us to rehearse without it."
        )
    known = {name: getattr(asked, name) or getattr(then, name) for name in ("link", "link_latency")}
    slow = asked.slow_link
    if asked.link is None and not slow:
        slow = tuple(each for each in then.slow_link if int(each.partition(":")[0]) < asked.hosts)
    return asked.model_copy(update={**known, "slow_link": slow})


def _check_link(run: Run, settings: StudySettings, what: Wanted) -> None:
    """Raise UsageError for a link over which not even one timed step of each cell fits into the budget."""
    budget_s = with_default_protocol(settings).budget_s
    rate = settings.emulated.payload_bytes_per_s if settings.emulated else None
    wires = [cell.record.wire for cell in run.cells.values() if cell.record.wire and cell.record.world_size > 1]
    if rate is None or not wires or budget_s is None:
        return
    steps = WARMUP_STEPS + 1
    step_s = least_sending_s(what.world_size, min(wire.payload_bytes for wire in wires), rate)
    needed_s = steps * step_s * len(what.strategies)
    if needed_s > budget_s:
        raise UsageError(
            f"a step over links of {settings.link} takes {number_text(step_s)} s or more, and {steps} "
            f"steps of each strategy take longer than the budget of {number_text(budget_s)} s\n"
            f"Give --budget {ceil(2 * needed_s)}s or more, a faster --link, or fewer --strategies."
        )


def _settings(run: Run, asked: RehearseSettings, what: Wanted) -> StudySettings:
    then, model = run.study.asked, run.study.model
    assert model is not None, "replay_of has asked for it"
    strategies = ((BASELINE_STRATEGY,) if what.alone else ()) + what.strategies
    return validated(
        StudySettings,
        {
            **{name: getattr(then, name) for name in ALIKE},
            "model": then.workload or then.model,
            "strategies": tuple(dict.fromkeys(strategies)),
            "world_sizes": (1, what.world_size) if what.alone else (what.world_size,),
            "batch_sizes": (what.batch_size,),
            "baseline": "single",
            "backend": "gloo",
            "threads_per_worker": 1,
            "evaluate": "never",
            "warmup_steps": WARMUP_STEPS,
            "budget": asked.budget,
            "steps": asked.steps,
            **{name: getattr(asked, name) for name in ("hosts", "link", "link_latency", "slow_link")},
            "replay": ReplaySettings(
                run=run.study.name, slow_ranks=asked.slow_ranks, **model.model_dump(include=set(COUNTS))
            ),
        },
    )


COUNTS = ("parameters", "parameter_bytes", "buffer_bytes", "gradient_tensors", "gradient_bytes")
"""What the settings say of the model."""
