"""How long a step really takes in a generated study, and the types of a study."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from audit_numbers import Style
from audit_words import NOUNS, Data, Model, drawn_data, drawn_model, parameters

LADDERS: tuple[tuple[int, ...], ...] = (
    *((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4), (1, 2, 3, 4), (1, 2, 4, 8, 16), (1, 4, 16)),
    *((2, 4, 8, 16), (4, 8, 16, 32), (8, 16, 32, 64)),
)


@dataclass
class Column:
    """One quantity of a table: its values as they are, and how they are printed."""

    key: str
    head: str
    values: list[Any]
    style: Style | None = None
    """None: values are printed as they are."""
    group: str = ""
    """What stands above it and its neighbours."""

    def text(self, row: int) -> str:
        """A cell as it is printed."""
        value = self.values[row]
        if value is None:
            return "-"
        return self.style.text(value) if self.style and not isinstance(value, str) else str(value)

    def seen(self) -> list[float]:
        """The values a reader finds in the cells."""
        return [self.style.number(value) if self.style else value for value in self.values]

    def width(self) -> float:
        """The coarsest cell: its last digit as a share of its value."""
        return max((self.style.width(value) for value in self.values if value), default=0.0) if self.style else 0.0


@dataclass
class Grid:
    """A table of a study."""

    columns: list[Column]
    caption: str = ""
    turned: bool = False
    """Printed with one row for each column."""
    bold: set[tuple[int, str]] = field(default_factory=set)

    def column(self, key: str) -> Column:
        """The first column of that meaning."""
        return next(column for column in self.columns if column.key == key)

    def has(self, *keys: str) -> bool:
        """Whether it has them all."""
        return set(keys) <= {column.key for column in self.columns}

    def drop(self, *keys: str) -> None:
        """Leave columns out."""
        self.columns = [column for column in self.columns if column.key not in keys]


@dataclass
class Study:
    """Tables with the words around them, and the truth behind them."""

    family: str
    before: list[str]
    tables: list[Grid]
    after: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def table(self) -> Grid:
        """The first table."""
        return self.tables[0]


@dataclass(frozen=True)
class Setting:
    """What is trained, on what, and how it scales."""

    data: Data
    model: Model
    mode: str
    """"batch": the global batch stays; "data": b stays, an epoch's data are shared out; "weak": step by step."""
    ladder: tuple[int, ...]
    b: int
    """Of each worker at the base."""
    nouns: tuple[str, str]

    @property
    def parameters(self) -> int:
        return parameters(self.model, self.data)


def drawn_setting(rng: random.Random, mode: str | None = None) -> Setting:
    """A setting in which an epoch has many steps at every N."""
    data = drawn_data(rng)
    model, ladder = drawn_model(rng, data), rng.choice(LADDERS)
    mode = mode or rng.choice(("batch", "data", "weak"))
    sizes = [b for b in (8, 16, 32, 64, 128, 256) if data.train / (b * ladder[-1]) >= 60] or [8]
    b = rng.choice(sizes[-3:])
    if mode == "batch":
        b = max(b, 2 * math.lcm(*ladder) // ladder[0])
        while any(b * ladder[0] % n for n in ladder):
            b += 1
    return Setting(data, model, mode, ladder, b, rng.choice(NOUNS))


@dataclass
class Truth:
    """What was measured, at each N."""

    N: list[int]
    b: list[int]
    steps: list[int]
    compute: list[float]
    comm: list[float]

    @property
    def step(self) -> list[float]:
        return [a + c for a, c in zip(self.compute, self.comm, strict=True)]

    @property
    def B(self) -> list[int]:
        return [n * b for n, b in zip(self.N, self.b, strict=True)]


def measured(rng: random.Random, setting: Setting, floor: bool = False) -> Truth:
    """Compute and exposed communication at each N, with the noise of measuring; never more than linear."""
    while True:
        truth = _measured(rng, setting, floor)
        best = [0.998 * n / truth.N[0] for n in truth.N]
        rate, epoch = over(truth.B, truth.step), each(truth.steps, truth.step)
        pairs = list(zip(rate, epoch, best, strict=True))[1:]
        if all(r / rate[0] < most and (setting.mode == "weak" or epoch[0] / e < most) for r, e, most in pairs):
            return truth


def _measured(rng: random.Random, setting: Setting, floor: bool) -> Truth:
    N = list(setting.ladder)
    total = setting.b * N[0]
    b = [total // n if setting.mode == "batch" else setting.b for n in N]
    fixed = setting.model.seconds * rng.uniform(1.0, 3.0)
    noise = [rng.gauss(1, 0.003) for _ in N]
    compute = [(fixed + each * setting.model.seconds) * wobble for each, wobble in zip(b, noise, strict=True)]
    share = rng.uniform(0.06, 0.35)  # of the compute at the base, at N = ∞
    comm = [_exposed(n, share * compute[0]) * rng.gauss(1, 0.02) for n in N]
    count = math.floor if floor else math.ceil
    return Truth(N, b, [count(setting.data.train / (n * each)) for n, each in zip(N, b, strict=True)], compute, comm)


def _exposed(n: int, seconds: float) -> float:
    """A ring sends 2 (N−1)/N of the gradients, and each member costs a little time."""
    return 0.0 if n == 1 else seconds * (2 * (n - 1) / n / 2 + 0.04 * math.log2(n))


def each(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Products, row by row."""
    return [a * b for a, b in zip(first, second, strict=True)]


def over(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Quotients, row by row."""
    return [a / b for a, b in zip(first, second, strict=True)]
