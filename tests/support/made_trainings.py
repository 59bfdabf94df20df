"""Trainings with a known course: the test accuracy after each epoch is planted, and so is the time of a step."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from made_runs import SHARES, MadeCell, make_run, synchronised
from worldsize.results.folder import load_run, write_cell, write_study
from worldsize.results.training_records import Evaluation

D = 256
"""Training samples of an epoch."""


@dataclass(frozen=True)
class Course:
    """A cell, and how it learns: the test accuracy after each epoch, seed by seed."""

    world_size: int
    batch_size: int
    accuracies: Sequence[Sequence[float]]
    label: str = ""
    strategy: str = "ddp"
    """Of several workers."""
    step_s: float = 0.1
    exposed: float = 0.0
    """Share of the step that is exposed communication."""
    loss_above: Sequence[float] = ()
    """By how much its training loss is above the usual one in all steps, seed by seed."""

    def cell(self, seed: int) -> MadeCell:
        """The training with one seed: a block is an epoch, and all are timed."""
        above = self.loss_above[seed] if self.loss_above else 0.0
        return MadeCell(
            "single" if self.world_size == 1 else self.strategy,
            self.world_size,
            self.batch_size,
            step_s=self.step_s,
            shares=synchronised(SHARES, self.exposed),
            comm_s=self.exposed * self.step_s,
            losses=lambda step: above + 2.3 / (1 + 0.05 * step),
            blocks=len(self.accuracies[seed]),
            block_steps=D // (self.world_size * self.batch_size),
            warmup_steps=0,
            label=self.label,
        )


def make_training(folder: Path, courses: Sequence[Course], seed: int, settings: Mapping[str, Any]) -> Path:
    """Write the run folder of one seed."""
    make_run(folder, [course.cell(seed) for course in courses], train_samples=D)
    run = load_run(folder)
    changes = {"epochs": len(courses[0].accuracies[seed]), "steps": None, "seed": seed, **settings}
    run.study.settings = run.study.asked.model_copy(update=changes)
    write_study(folder, run.study)
    for course in courses:
        cell = run.cells[course.cell(seed).id]
        assert cell.record.settings is not None
        cell.record.settings = cell.record.settings.model_copy(
            update={"epochs": changes["epochs"], "steps": None, "seed": seed}
        )
        cell.record.evaluations = [
            Evaluation(
                epoch=epoch,
                step=(epoch + 1) * D // (course.world_size * course.batch_size),
                test_loss=0.5,
                test_accuracy=accuracy,
                test_samples=10_000,
            )
            for epoch, accuracy in enumerate(course.accuracies[seed])
        ]
        write_cell(folder, cell.record)
        for file in cell.folder.glob("rank*.jsonl"):
            rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            file.write_text("".join(json.dumps(row | {"epoch": row["block"]}) + "\n" for row in rows), encoding="utf-8")
    return folder


def make_trainings(folder: Path, courses: Sequence[Course], *, seeds: int, **settings: Any) -> Path:
    """Write a study of whole epochs with so many seeds, as `worldsize study --epochs E --seeds K` leaves it."""
    make_training(folder, courses, 0, {"seeds": seeds, **settings})
    for seed in range(1, seeds):
        make_training(folder / "parts" / f"seed{seed}", courses, seed, settings)
    return folder


def make_large_batch(
    folder: Path, courses: Sequence[Course], timed: Sequence[MadeCell], *, seeds: int, **settings: Any
) -> Path:
    """Write experiment C: cells that were timed in turn, and the accuracy runs of each seed in a part of its own."""
    make_run(folder, timed, train_samples=D)
    run = load_run(folder)
    changes = {"experiment": "ddp-large-batch", "accuracy_epochs": 4, "seeds": seeds, **settings}
    run.study.settings = run.study.asked.model_copy(update=changes)
    write_study(folder, run.study)
    for seed in range(seeds):
        name = "accuracy" if seed == 0 else f"accuracy-seed{seed}"
        make_training(folder / "parts" / name, courses, seed, settings)
    return folder
