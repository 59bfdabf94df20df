"""Run a study and, where its experiment has further parts, those after it."""

from collections.abc import Sequence
from pathlib import Path

from worldsize.config import StudySettings
from worldsize.results.folder import Run, load_run
from worldsize.study.large_batch import parts
from worldsize.study.listener import Listener
from worldsize.study.run import run_study

PARTS = {"ddp-large-batch": parts}
"""Experiment → its further parts, each a study in RUN/parts/."""


def run_experiment(
    settings: StudySettings,
    out: Path,
    *,
    resume: bool = False,
    command: Sequence[str] | None = None,
    listener: Listener | None = None,
) -> Run:
    """Run all that is missing in `out`; returns what is in the folder afterwards. Raises what `run_study` raises."""
    run = run_study(settings, out, resume=resume, command=command, listener=listener)
    if settings.experiment in PARTS:
        stored = run.study.settings
        largest = max(cell.settings.world_size for cell in (c.record for c in run.cells.values()))
        for name, part in PARTS[settings.experiment](stored, largest).items():
            place = out / "parts" / name
            begun = (place / "study.json").exists()
            run_study(part, place, resume=begun, command=command, listener=listener)
    return load_run(out)
