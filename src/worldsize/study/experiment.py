"""Run a study and, where its experiment or its seeds make further parts, those after it."""

from collections.abc import Sequence
from pathlib import Path

from worldsize.config import StudySettings
from worldsize.errors import Interrupted
from worldsize.launch.cluster import Cluster
from worldsize.results.folder import Run, load_run
from worldsize.study import large_batch, trainings
from worldsize.study.listener import Listener
from worldsize.study.resuming import Resume
from worldsize.study.run import run_study

PARTS = {"ddp-large-batch": large_batch.parts}
"""Experiment → its further parts, each a study in RUN/parts/; of all others those of trainings with several seeds."""


def run_experiment(
    settings: StudySettings,
    out: Path,
    *,
    resume: Resume = False,
    command: Sequence[str] | None = None,
    listener: Listener | None = None,
    cluster: Cluster | None = None,
    began_s: float | None = None,
) -> Run:
    """Run all that is missing in `out`; returns what is in the folder afterwards. Raises what `run_study` raises.

    A budget counts from `began_s` on time.monotonic(), or from now.
    """
    if settings.train_samples and settings.world_sizes:
        # What can be known to be wrong with the further parts is said before the first one is measured.
        further_parts(settings, max(settings.world_sizes), settings.train_samples)
    run = run_study(settings, out, resume=resume, command=command, listener=listener, cluster=cluster, began_s=began_s)
    largest = max((cell.record.world_size for cell in run.cells.values()), default=1)
    for name, part in further_parts(settings, largest, run.study.train_samples).items():
        place = out / "parts" / name
        begun = (place / "study.json").exists()
        try:
            run_study(part, place, resume=begun and resume, command=command, listener=listener, cluster=cluster)
        except Interrupted:
            message = f"stopped in part {name}; what was measured is in {out}\nGo on with --resume --out {out}."
            raise Interrupted(message) from None
    return load_run(out)


def further_parts(settings: StudySettings, largest_world: int, samples: int | None) -> dict[str, StudySettings]:
    """Name and settings of what a study runs after its first part; `samples` is D, where known. Raises UsageError."""
    if samples is None:  # a workload of the user's own, which is no experiment and has no epochs
        return {}
    return PARTS.get(settings.experiment, trainings.parts)(settings, largest_world, samples)
