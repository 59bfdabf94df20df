"""The cases of the parity tests, and real processes that run one after the other.

A test file lists its own in CASES, and imports the fixtures `workers`, `outcomes` and `case`.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from case_jobs import CaseJobs
from parity import DATA, Gradients, Outcome
from worldsize.config import CellSettings
from worldsize.errors import UsageError
from worldsize.strategies import STRATEGIES
from worldsize.traits import Traits

TOLERANCE = 1e-5
LOCAL_BATCH = 2
DOUBLE_BYTES = 8
DOUBLE, SINGLE = "parity:small_double", "parity:resnet18_single"
STEPS = {DOUBLE: 5, SINGLE: 1}
FIRST_STEPS = 2


@dataclass(frozen=True)
class Case:
    """A strategy at a world size."""

    strategy: str
    world_size: int
    model: str

    @property
    def settings(self) -> CellSettings:
        settings = CellSettings(
            model=self.model,
            data=DATA,
            strategy=self.strategy,
            world_size=self.world_size,
            batch_size=LOCAL_BATCH,
            bucket_mb=0.5 if self.model == DOUBLE else None,  # so that the small model has several
        )
        first = self.traits.first_steps
        return settings.model_copy(update={first: FIRST_STEPS} if first else {})

    @property
    def traits(self) -> Traits:
        return STRATEGIES[self.strategy].traits

    @property
    def exact_steps(self) -> int:
        """Steps at the start in which a lossy one loses nothing."""
        return FIRST_STEPS if self.traits.first_steps else 0

    @property
    def steps(self) -> int:
        return STEPS[self.model] + self.exact_steps

    @property
    def processes(self) -> int:
        return STRATEGIES[self.strategy].processes(self.world_size)

    def __str__(self) -> str:
        return f"{self.strategy}-{self.world_size}-{'double' if self.model == DOUBLE else 'single'}"


def world_sizes(strategy: str) -> list[int]:
    """2 and 4, or 1 for a strategy that allows no more."""
    sizes = []
    for world_size in (2, 4):
        with contextlib.suppress(UsageError):
            STRATEGIES[strategy].processes(world_size)
            sizes.append(world_size)
    return sizes or [1]


# Ranks that exchange weights, or keep shards, hold no gradient that all have in common: they have tests of their own.
NAMES = [name for name, strategy in STRATEGIES.items() if strategy.traits.travels == "gradients"]
IN_DOUBLE = [Case(name, n, DOUBLE) for name in NAMES for n in world_sizes(name)]
IN_SINGLE = [Case(name, max(world_sizes(name)), SINGLE) for name in NAMES]


class Workers:
    """Jobs that do the cases of a module."""

    def __init__(self, folder: Path, cases: list[Case]) -> None:
        self.cases = cases
        described = [(case.settings, {"beyond": case.model == DOUBLE}) for case in cases]
        self.jobs = CaseJobs("parity:enter", folder, described)

    def run(self, case: Case) -> list[Outcome]:
        """What each rank came to."""
        return [Outcome(**found) for found in self.jobs.run(self.cases.index(case), count=case.steps)]

    def close(self) -> None:
        self.jobs.close()


@pytest.fixture(scope="module")
def workers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """For the module's own CASES."""
    with contextlib.closing(Workers(tmp_path_factory.mktemp("parity"), request.module.CASES)) as running:
        yield running


@pytest.fixture(scope="module")
def outcomes(workers: Workers, request: pytest.FixtureRequest) -> list[Outcome]:
    """What each rank came to in a case."""
    return workers.run(request.param)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.node.callspec.params["outcomes"]
    return found


def of(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("outcomes", cases, ids=str, indirect=True)


def distance(found: Gradients, wanted: Gradients) -> float:
    """The largest, over all parameters, of the norm of the difference ÷ the norm."""
    norms = torch.stack([gradient.norm() for gradient in wanted])
    assert norms.min() > 0, "a gradient that is 0 shows nothing"
    differences = torch.stack([(a - b).norm() for a, b in zip(found, wanted, strict=True)])
    return float((differences / norms).max())


def sizes(outcome: Outcome) -> list[int]:
    """Bytes of each gradient; together they are S (method.md §1)."""
    return [gradient.numel() * DOUBLE_BYTES for gradient in outcome.local]


def by_kind(outcome: Outcome) -> dict[tuple[str, bool], list[int]]:
    """Kind of message and whether it holds the rank → the bytes of each, in order."""
    found: dict[tuple[str, bool], list[int]] = {}
    for kind, size, blocking in outcome.messages:
        found.setdefault((kind, blocking), []).append(size)
    return found
