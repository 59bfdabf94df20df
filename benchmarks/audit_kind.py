"""What a kind of planted error is."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from audit_truth import Column, Grid, Study

FORMATS_ALL = ("markdown", "html", "csv", "latex", "text")


@dataclass(frozen=True)
class Kind:
    """A kind of error, and the rule that should name it."""

    name: str
    make: Callable[[random.Random], Study]
    plant: Callable[[Study, random.Random], bool]
    """Makes a study wrong; False where it cannot be done in this one."""
    rule: str
    also: tuple[str, ...] = ()
    """Other rules that are right as well when they come first."""
    formats: tuple[str, ...] = FORMATS_ALL
    claims: bool = False
    """The error is in the words below the table: they stay."""


def redrawn(kind: Kind, rng: random.Random) -> Study:
    """A wrong study of that kind. True sentences below the table go: of two contradictions, one would be planted."""
    for _ in range(300):
        study = kind.make(rng)
        if not kind.claims:
            study.after = []
        if kind.plant(study, rng):
            if kind.claims:
                study.after = study.after[-1:]
            return study
    raise RuntimeError(f"no study for {kind.name}")


def factor(rng: random.Random, *columns: Column) -> float:
    """By how much a value is off: 12 % to 60 %, up or down, and well beyond the digits printed."""
    least = max(0.12, 6 * max(column.width() for column in columns))
    more = 1 + rng.uniform(least, max(0.6, 1.5 * least))
    return more if rng.random() < 0.6 else 1 / more


def cell(grid: Grid, key: str, rng: random.Random, *others: Column) -> None:
    """Make one value wrong that is not the base's."""
    column = grid.column(key)
    row = rng.randrange(1, len(column.values))
    column.values[row] *= factor(rng, column, *others)
