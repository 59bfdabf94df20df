"""A rehearsal: a study whose ranks replay the computing of another run, over emulated hosts (method.md §15)."""

from pathlib import Path
from typing import NamedTuple

from worldsize.analysis.replay import Wanted, replay_of, wanted
from worldsize.config import RehearseSettings, ReplaySettings, StudySettings, validated
from worldsize.errors import UsageError
from worldsize.results.folder import Run, load_run
from worldsize.results.replay import Replay
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
    what = wanted(run, asked.strategies, asked.batch_size, asked.hosts)
    replay = replay_of(run, what)
    check_hosts(asked, asked.hosts)
    return Rehearsal(_settings(run, asked, what), replay)


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


COUNTS = ("parameters", "parameter_bytes", "buffer_bytes", "gradient_tensors")
"""What the settings say of the model."""
