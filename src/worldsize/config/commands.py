"""Settings of single commands: what `train` and `sweep` run where nothing else is said, of `verify` and of `compare`.

Those of `train` and `sweep` take the settings of a study, and are one (`study`); the functions of the package take the
same defaults.
"""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from worldsize.config.base import Settings, Share, absent
from worldsize.config.study import EACH, StudySettings
from worldsize.config.training import DEFAULT_BATCH_SIZE, SWEEP_STEPS, Evaluate
from worldsize.traits import BASELINE_STRATEGY, MULTI_WORKER_STRATEGIES, OVERLAPPING

ONE = (1,)
OF_WORKERS = f"{OVERLAPPING[0]} for several workers, else {BASELINE_STRATEGY}"
Arithmetic = Literal["fp64", "fp32", "bf16"]
JudgeBy = Literal["auto", "relative", "plain", "normalised"]


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
        """Without a protocol, one epoch; whole epochs leave checkpoints."""
        if not isinstance(values, dict):
            return values
        chosen = any(values.get(name) is not None for name in ("steps", "budget", "workload"))
        epochs = values.get("epochs", None if chosen else 1)
        return {"checkpoint": epochs is not None, **values, "epochs": epochs}


class SweepSettings(OneStrategySettings):
    """What `worldsize sweep` runs: the local batch grows from the given one."""

    steps: int | None = absent(f"{SWEEP_STEPS}, unless epochs are given", ge=1)
    sweep: bool = True
    experiment: str = "batch-sweep"
    evaluate: Evaluate = "never"


class VerifySettings(StudySettings):
    """What is proved: for the cells of a study, in some steps."""

    arithmetic: Arithmetic = "fp64"
    """fp64; with fp32 or bf16 (autocast) only the first step is compared. Only `fp64` is sharp in more than one."""
    steps: int | None = Field(default=3, ge=1)
    """Compare K steps."""
    batch_sizes: tuple[int, ...] | None = absent("4", default=(4,), allowed=EACH, min_length=1)

    @model_validator(mode="after")
    def _of_settings(self) -> Self:
        if self.workload is not None:
            raise ValueError("verify proves models and data of the settings; a study proves each cell of a workload")
        return self

    @model_validator(mode="before")
    @classmethod
    def _fitting_strategies(cls, values: Any) -> Any:
        """Where no strategies are given, those of one worker belong to a world of one."""
        if not isinstance(values, dict) or "strategies" in values or 1 in (values.get("world_sizes") or (1,)):
            return values
        return {**values, "strategies": MULTI_WORKER_STRATEGIES}

    @property
    def study(self) -> StudySettings:
        """The study whose cells are proved."""
        shared = self.model_dump(include=set(StudySettings.model_fields))
        return StudySettings(**{**shared, "precision": "bf16" if self.arithmetic == "bf16" else "fp32"})


class CompareSettings(Settings):
    """How two sides of runs are judged."""

    fail_above: Share | None = absent("no gate", ge=0, allow_inf_nan=False)
    """Fail (exit status 3) if a cell is slower by more than this, such as 5%. It must be significantly slower."""
    strict: bool = False
    """Also fail if a slowdown beyond --fail-above cannot be ruled out for some cell."""
    judge_by: JudgeBy = "auto"
    """Compare step times as they are (plain), ÷ one worker's (relative), ÷ a short computation's (normalised), or auto.
    `relative`: over that of the baseline cell of the same run, and nothing else but for the baseline cell itself;
    `plain`: as they are, also between different machines; `normalised`: over the short computation that is timed beside
    the steps; `auto`: on one kind of machine whichever differs least from run to run, else relative ones."""

    @model_validator(mode="after")
    def _a_share_and_its_gate(self) -> Self:
        if self.fail_above is not None and self.fail_above >= 1:  # steps that take twice as long would pass
            raise ValueError(
                f"fail_above is {100 * self.fail_above:g}%: a share below 1 is allowed, such as 5% or 0.05"
            )
        if self.strict and self.fail_above is None:
            raise ValueError("strict says what else fails: give fail_above as well, such as 5%")
        return self
