"""Steps of a turn that are not timed, and whole bursts of a loader whose processes make batches side by side."""

from math import ceil

from worldsize.config import TrainingSettings

LEAD_STEPS = 1
"""Steps at the begin of each block that are not timed: the first one after a pause was seen to be 6 % slower."""


def loader_processes(settings: TrainingSettings) -> int:
    """The processes W of a rank's loader; 0 where the batches are made in the rank's own process."""
    of_user = ":" in settings.data and settings.data.partition(":")[0] != "synthetic"
    return settings.loader_workers if of_user or settings.loader == "per-sample" else 0


def burst(settings: TrainingSettings) -> int:
    """How many batches the W processes of a loader make side by side: they come W at a time, then none for a while."""
    return max(1, loader_processes(settings))


def lead_steps(settings: TrainingSettings) -> int:
    """Steps at the begin of each block that train and are not timed: one, or a burst of the loader.

    Its processes stand still while the cell does, but what they have asked the system for, they get meanwhile: a sample
    each, of the batch that each was about to make.
    """
    return max(LEAD_STEPS, burst(settings))


def warmup_steps(settings: TrainingSettings) -> int:
    """Steps before the first block: those that were asked for, and the burst that a loader begins with."""
    return max(settings.warmup_steps, burst(settings)) if settings.warmup_steps else 0


def whole_bursts(settings: TrainingSettings, steps: int) -> int:
    """So many steps, or as many more as make whole bursts of the loader: else a block may miss the wait between two."""
    return ceil(steps / burst(settings)) * burst(settings)
