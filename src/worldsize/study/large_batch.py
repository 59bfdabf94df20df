"""The further parts of experiment C, `ddp-large-batch`: accuracy by learning-rate rule, and what breaks.

Each is a study of its own in RUN/parts/, with the settings of the first part but for what is compared. The accuracy
runs are one part for each seed, one after the other: all at once would not fit into memory.
"""

from typing import Any

from worldsize.config import Agreement, CellChoice, LrScaling, StudySettings, validated
from worldsize.errors import UsageError
from worldsize.results.beside import ACCURACY, DEMONSTRATIONS, THROUGHPUT
from worldsize.study.trainings import steps_in_turn, with_further_seeds

DEMONSTRATION_STEPS = 16
"""Steps per epoch of the demonstrations: what is left out shows at once."""
DEMONSTRATION_EPOCHS = 2
LEFT_OUT: tuple[Agreement, ...] = ("sampler-epoch", "initial-weights", "learning-rate", "buffers")


def parts(settings: StudySettings, largest_world: int, samples: int) -> dict[str, StudySettings]:
    """Name and settings of each further part; none where the accuracy runs were not asked for.

    `samples` is D. Raises UsageError for an accuracy batch that is larger than the data of a worker.
    """
    if settings.accuracy_epochs is None or largest_world < 2:
        return {}
    for batch, workers in ((settings.accuracy_batch, largest_world), (settings.accuracy_base_batch, 1)):
        if batch * workers > samples:
            raise UsageError(
                f"accuracy batch {batch} was given; each of {workers} worker(s) has {samples // workers} samples\n"
                "Give a smaller --accuracy-batch or --accuracy-base-batch."
            )
    trained = _derived(settings, {**_accuracy(settings, largest_world), "target_accuracy": settings.target_accuracy})
    found = {ACCURACY: trained, **with_further_seeds(trained, settings.all_seeds[1:], ACCURACY)}
    if not _timed_in_turn(settings, largest_world):
        found[THROUGHPUT] = steps_in_turn(_derived(settings, _both(settings, largest_world)), settings.steps)
    return {**found, DEMONSTRATIONS: _derived(settings, _demonstrations(settings, largest_world, samples))}


def _derived(settings: StudySettings, changes: dict[str, Any]) -> StudySettings:
    kept = settings.model_dump(exclude={"strategies", "world_sizes", "batch_sizes", "global_batch", "experiment"})
    once = {"seeds": 1, "target_accuracy": None}
    values = {**kept, "steps": None, "budget": None, "accuracy_epochs": None, **once, **changes}
    return validated(StudySettings, values, "a further part of ddp-large-batch")


def _timed_in_turn(settings: StudySettings, n: int) -> bool:
    """Whether the first part times the steps of both configurations of the accuracy runs in turn."""
    if settings.epochs is not None or settings.cells or settings.global_batch is not None:
        return False
    wanted = {settings.accuracy_base_batch, settings.accuracy_batch}
    strategies = {"single", "ddp"} <= {*settings.strategies} and settings.one_worker != "wrapped"
    return strategies and wanted <= {*settings.grid(n)} and {1, n} <= {*(settings.world_sizes or (1, n))}


def _both(settings: StudySettings, n: int) -> dict[str, Any]:
    """The two configurations of the accuracy runs; the rule of the learning rate changes no step time."""
    alone = CellChoice(strategy="single", world_size=1, batch_size=settings.accuracy_base_batch)
    several = CellChoice(strategy="ddp", world_size=n, batch_size=settings.accuracy_batch)
    return {"cells": (alone, several), "epochs": 1}


def _accuracy(settings: StudySettings, n: int) -> dict[str, Any]:
    """One worker at the base batch, and N workers at the large one with each rule."""
    epochs = settings.accuracy_epochs or 1
    base, large = settings.accuracy_base_batch, settings.accuracy_batch
    warmup = min(1.0, epochs / 2)

    def ddp(label: str, scaling: LrScaling = "none", warmup_epochs: float = 0) -> CellChoice:
        return CellChoice(
            strategy="ddp",
            world_size=n,
            batch_size=large,
            label=label,
            lr_scaling=scaling,
            lr_warmup_epochs=warmup_epochs,
        )

    return {
        "epochs": epochs,
        "base_batch": base,
        "evaluate": "auto",
        "cells": (
            CellChoice(strategy="single", world_size=1, batch_size=base, label="baseline"),
            ddp("no-rule"),
            ddp("linear", "linear"),
            ddp("linear-warmup", "linear", warmup),
        ),
    }


def _demonstrations(settings: StudySettings, n: int, samples: int) -> dict[str, Any]:
    """DDP as it should be, and with one agreement left out at a time; the rate is scaled, so that it can differ."""
    batch = min(settings.grid(n), default=settings.accuracy_base_batch)
    cells = [CellChoice(strategy="ddp", world_size=n, batch_size=batch, label="agreed")]
    cells += [
        CellChoice(strategy="ddp", world_size=n, batch_size=batch, label=f"without-{name}", leave_out=(name,))
        for name in LEFT_OUT
    ]
    return {
        "epochs": DEMONSTRATION_EPOCHS,
        "base_batch": batch,
        "lr_scaling": "linear",
        "lr_warmup_epochs": 0,
        "evaluate": "auto",
        "train_samples": min(DEMONSTRATION_STEPS * n * batch, samples),
        "cells": tuple(cells),
    }
