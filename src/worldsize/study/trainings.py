"""Trainings to an accuracy: the same cells again with further seeds, and their steps timed in turn (method.md §10).

Each is a part of its own in RUN/parts/, one after the other: the workers of a cell stay alive while its study lasts,
and those of all seeds at once would not fit into memory.
"""

from collections.abc import Sequence

from worldsize.config import SWEEP_STEPS, StudySettings
from worldsize.results.beside import THROUGHPUT, part_of_seed
from worldsize.study.blocks import MIN_STEPS
from worldsize.study.pace import MIN_BLOCKS


def parts(settings: StudySettings, largest_world: int, samples: int) -> dict[str, StudySettings]:
    """Name and settings of what a study of whole epochs runs after its first seed; `samples` is D.

    Steps are timed in turn where a target was set: time to accuracy needs a throughput that has an interval.
    """
    if settings.epochs is None or settings.sweep:
        return {}
    found = with_further_seeds(settings, settings.all_seeds[1:])
    if settings.target_accuracy is not None and largest_world > 1:
        found[THROUGHPUT] = steps_in_turn(settings)
    return found


def with_further_seeds(settings: StudySettings, seeds: Sequence[int], part: str = "") -> dict[str, StudySettings]:
    """The same trainings with each of these seeds, by the names of their parts."""
    return {
        part_of_seed(part, seed): settings.model_copy(update={"seed": seed, "seeds": 1, "experiment": ""})
        for seed in seeds
    }


def steps_in_turn(settings: StudySettings, steps: int | None = None) -> StudySettings:
    """The same cells, timed by steps, at most so many; at least as many as blocks that an interval needs."""
    least = MIN_BLOCKS * (settings.block_steps or MIN_STEPS + 1)
    return settings.model_copy(
        update={
            **{"epochs": None, "steps": max(steps or SWEEP_STEPS, least), "budget": None, "profile": False},
            **{"lr_schedule": "constant", "lr_warmup_epochs": 0.0, "evaluate": "never"},
            **{"checkpoint": False, "checkpoint_steps": None, "max_restarts": 0, "min_workers": None},
            **{"seeds": 1, "target_accuracy": None, "experiment": ""},
        }
    )
