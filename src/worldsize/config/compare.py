"""Settings of `worldsize compare`."""

from typing import Literal, Self

from pydantic import model_validator

from worldsize.config.base import Settings, absent

JudgeBy = Literal["auto", "relative", "plain"]


class CompareSettings(Settings):
    """How two sides of runs are judged."""

    fail_above: float | None = absent("no gate", ge=0, allow_inf_nan=False)
    """Fail if a cell is significantly slower and its step takes longer by more than this share, such as 5%."""
    strict: bool = False
    """The gate also fails unless each cell is proved not to take longer by more."""
    judge_by: JudgeBy = "auto"
    """`relative`: step times over that of the baseline cell of the same run, and nothing else but for the baseline cell
    itself; `plain`: as they are, also between different machines; `auto`: relative where all runs have the baseline
    cell, unless plain ones differ less from run to run on one kind of machine."""

    @model_validator(mode="after")
    def _a_share_and_its_gate(self) -> Self:
        if self.fail_above is not None and self.fail_above >= 1:  # steps that take twice as long would pass
            raise ValueError(f"fail_above is {self.fail_above:.0%}: a share below 1 is allowed, such as 5% or 0.05")
        if self.strict and self.fail_above is None:
            raise ValueError("strict says what else fails: give fail_above as well, such as 5%")
        return self
