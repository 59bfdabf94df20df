"""Settings of the commands that are a study of one kind, `train` and `sweep`: what they run where nothing else is said.

Each takes the settings of a study, and is one (`study`); the functions of the package take the same defaults.
"""

from typing import Any

from pydantic import model_validator

from worldsize.config.base import absent
from worldsize.config.study import EACH, StudySettings
from worldsize.config.training import DEFAULT_BATCH_SIZE, SWEEP_STEPS, Evaluate
from worldsize.traits import BASELINE_STRATEGY, OVERLAPPING

ONE = (1,)
OF_WORKERS = f"{OVERLAPPING[0]} for several workers, else {BASELINE_STRATEGY}"


def _strategies(values: dict[str, Any]) -> tuple[str, ...]:
    sizes = values.get("world_sizes", ONE)
    alone = [str(size) for size in sizes] == ["1"] if isinstance(sizes, list | tuple) else str(sizes) == "1"
    return (BASELINE_STRATEGY,) if alone else OVERLAPPING[:1]


class OneStrategySettings(StudySettings):
    """A study of one strategy at one world size: DDP where there are several workers."""

    strategies: tuple[str, ...] = absent(OF_WORKERS, default=(BASELINE_STRATEGY,), min_length=1)
    world_sizes: tuple[int, ...] | None = absent("1", default=ONE, allowed=EACH, min_length=1)
    batch_sizes: tuple[int, ...] | None = absent(
        f"{DEFAULT_BATCH_SIZE}", default=(DEFAULT_BATCH_SIZE,), allowed=EACH, min_length=1
    )

    @model_validator(mode="before")
    @classmethod
    def _fitting_strategy(cls, values: Any) -> Any:
        return {"strategies": _strategies(values), **values} if isinstance(values, dict) else values

    @property
    def study(self) -> StudySettings:
        """The study that is run, and kept in the run folder."""
        return StudySettings(**self.model_dump(include=set(StudySettings.model_fields)))


class TrainSettings(OneStrategySettings):
    """What `worldsize train` runs: one configuration, for one epoch, with its checkpoint."""

    epochs: int | None = absent("1, unless steps are given", ge=1)
    steps: int | None = absent("off, whole epochs are timed", ge=1)
    checkpoint: bool = absent("after each epoch", default=False)

    @model_validator(mode="before")
    @classmethod
    def _one_epoch(cls, values: Any) -> Any:
        """Where nobody chose a protocol, one epoch; whole epochs leave checkpoints."""
        if not isinstance(values, dict):
            return values
        chosen = values.get("steps") is not None or values.get("budget") is not None
        epochs = values.get("epochs", None if chosen else 1)
        return {"checkpoint": epochs is not None, **values, "epochs": epochs}


class SweepSettings(OneStrategySettings):
    """What `worldsize sweep` runs: the local batch grows from the given one."""

    steps: int | None = absent(f"{SWEEP_STEPS}, unless epochs are given", ge=1)
    sweep: bool = True
    experiment: str = "batch-sweep"
    evaluate: Evaluate = "never"
