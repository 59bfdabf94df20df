"""Settings of `worldsize compare`."""

from typing import Literal, Self

from pydantic import model_validator

from worldsize.config.base import Settings, Share, absent

JudgeBy = Literal["auto", "relative", "plain"]


class CompareSettings(Settings):
    """How two sides of runs are judged."""

    fail_above: Share | None = absent("no gate", ge=0, allow_inf_nan=False)
    """Fail (exit status 3) if a cell is slower by more than this, such as 5%. It must be significantly slower."""
    strict: bool = False
    """Also fail if a slowdown beyond --fail-above cannot be ruled out for some cell."""
    judge_by: JudgeBy = "auto"
    """Compare step times (plain), those over one worker's (relative), or the less noisy (auto). `relative`: over that
    of the baseline cell of the same run, and nothing else but for the baseline cell itself; `plain`: as they are, also
    between different machines; `auto`: relative where all runs have the baseline cell, unless plain ones differ less
    from run to run on one kind of machine."""

    @model_validator(mode="after")
    def _a_share_and_its_gate(self) -> Self:
        if self.fail_above is not None and self.fail_above >= 1:  # steps that take twice as long would pass
            raise ValueError(f"fail_above is {self.fail_above:.0%}: a share below 1 is allowed, such as 5% or 0.05")
        if self.strict and self.fail_above is None:
            raise ValueError("strict says what else fails: give fail_above as well, such as 5%")
        return self
