"""Settings of `worldsize verify`."""

from typing import Any, Literal

from pydantic import Field, model_validator

from worldsize.config.base import absent
from worldsize.config.study import EACH, StudySettings
from worldsize.traits import MULTI_WORKER_STRATEGIES

Arithmetic = Literal["fp64", "fp32", "bf16"]


class VerifySettings(StudySettings):
    """What is proved: for the cells of a study, in some steps."""

    arithmetic: Arithmetic = "fp64"
    """fp64; with fp32 or bf16 (autocast) only the first step is compared. Only `fp64` is sharp in more than one."""
    steps: int | None = Field(default=3, ge=1)
    """Compare K steps."""
    batch_sizes: tuple[int, ...] | None = absent("4", default=(4,), allowed=EACH, min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _fitting_strategies(cls, values: Any) -> Any:
        """Where nobody chose strategies, those of one worker belong to a world of one."""
        if not isinstance(values, dict) or "strategies" in values or 1 in (values.get("world_sizes") or (1,)):
            return values
        return {**values, "strategies": MULTI_WORKER_STRATEGIES}

    @property
    def study(self) -> StudySettings:
        """The study whose cells are proved."""
        shared = self.model_dump(include=set(StudySettings.model_fields))
        return StudySettings(**{**shared, "precision": "bf16" if self.arithmetic == "bf16" else "fp32"})
