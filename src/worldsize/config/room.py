"""The world sizes of a study where nobody gave any: as many workers as there is room for, and fewer."""

from pydantic import Field

from worldsize.config.base import Settings
from worldsize.config.study import StudySettings

MOST_ON_CORES = 4
"""The largest default world on the cores of a machine; larger ones are measured when they are asked for."""


class Room(Settings):
    """How many workers fit where a study runs, as far as it is known before anybody has looked for GPUs."""

    cores: int = Field(default=1, ge=1)
    """min(physical cores, CPU quota) of this machine, as far as the study may use them, in whole threads."""
    on_nodes: int | None = Field(default=None, ge=1)
    """Workers that all nodes of a cluster take together; None is this machine alone."""


class Question(Settings):
    """What the look before the start is asked (training/probe.py)."""

    settings: StudySettings
    room: Room


def chosen_world_sizes(settings: StudySettings, room: Room, gpus: int) -> tuple[int, ...]:
    """The world sizes that were asked for, or 1, 2, 4 … up to all workers for which there is room.

    There is room for as many as the nodes of the cluster take; on one machine for one on each of its emulated hosts
    and each of its `gpus`, and where no GPU is used for one on each physical core, as far
    as a quota permits (method.md §8), up to 4.
    """
    if settings.world_sizes:
        return settings.world_sizes
    if room.on_nodes is not None:
        return powers_up_to(room.on_nodes)
    on_gpus = 0 if settings.backend == "gloo" else gpus
    if settings.emulated:
        return powers_up_to(min(settings.emulated.count, on_gpus or settings.emulated.count))
    return powers_up_to(on_gpus or min(room.cores, MOST_ON_CORES))


def powers_up_to(most: int) -> tuple[int, ...]:
    """The powers of two from 1 up to `most`, and `most` itself."""
    return (*(2**k for k in range((most - 1).bit_length())), most)
