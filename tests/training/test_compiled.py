"""`--compile` changes how fast a model trains, and nothing else: neither its gradients nor what travels when."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from case_jobs import CaseJobs
from compiling import BUCKET_MB
from tiny import alone, tiny_settings
from worldsize.config import CellSettings
from worldsize.strategies import STRATEGIES

TOLERANCE = 1e-5
"""In single precision: compiled code adds in another order."""
LOSSY = 2**-6
"""Where gradients are rounded on their way: one that is rounded to the other side differs by a step of bfloat16."""


@dataclass(frozen=True)
class Case:
    """A strategy, and what makes the code."""

    strategy: str
    backend: str = "aot_eager"

    @property
    def world_size(self) -> int:
        return 1 if self.strategy == "single" else 2

    @property
    def settings(self) -> CellSettings:
        return CellSettings(
            model="compiling:net",
            data="digits",
            strategy=self.strategy,
            world_size=self.world_size,
            batch_size=8,
            bucket_mb=BUCKET_MB,
        )

    def __str__(self) -> str:
        return f"{self.strategy}-{self.backend}"


NAMES = [name for name, strategy in STRATEGIES.items() if strategy.traits.travels == "gradients"]
CASES = [Case(name) for name in NAMES] + [Case(name, "inductor") for name in NAMES]
Found = dict[str, Any]


class Workers:
    """Jobs for each compiler that do the cases."""

    def __init__(self, folder: Path) -> None:
        cases: list[tuple[CellSettings, dict[str, Any]]] = [(case.settings, {}) for case in CASES]
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
        self.jobs = {
            backend: CaseJobs("compiling:enter", folder / backend, cases, variables=variables, backend=backend)
            for backend in {case.backend for case in CASES}
        }

    def run(self, case: Case) -> list[Found]:
        """What each rank found."""
        return self.jobs[case.backend].run(CASES.index(case))

    def close(self) -> None:
        for jobs in self.jobs.values():
            jobs.close()


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with contextlib.closing(Workers(tmp_path_factory.mktemp("compiled"))) as running:
        yield running


@pytest.fixture(scope="module")
def ranks(workers: Workers, request: pytest.FixtureRequest) -> list[Found]:
    """What each rank found in a case."""
    return workers.run(request.param)


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.node.callspec.params["ranks"]
    return found


def distance(found: list[Tensor], wanted: list[Tensor]) -> float:
    """Norm of the difference ÷ norm, of all gradients together: that of a bias before a BatchNorm is 0."""
    a, b = (torch.cat([each.reshape(-1) for each in gradients]) for gradients in (found, wanted))
    assert b.norm() > 0, "a gradient that is 0 shows nothing"
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("ranks", CASES, ids=str, indirect=True)
def test_compiled_training_is_the_same_training(ranks: list[Found], case: Case) -> None:
    exact = STRATEGIES[case.strategy].traits.exact
    for found in ranks:
        assert distance(found["found"], found["wanted"]) < (TOLERANCE if exact else LOSSY)
        assert found["compile_s"] > 0
        assert found["kept"], "compiling leaves weights, buffers and random state as they were"
        # Neither steps nor what stands beside them compile: nothing of it is in a time.
        assert not any(found["interrupted"])
        assert found["children"] == []
    assert len({found["weights"] for found in ranks}) == 1
    if STRATEGIES[case.strategy].traits.overlaps:
        for found in ranks:
            assert found["early"] >= 2, f"buckets travel during backward: {found['messages']}"


@pytest.mark.parametrize(("pieces", "several"), [(None, False), ((10_000, 10_000), True)])
def test_backward_is_cut_where_pieces_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: tuple[int, int] | None, several: bool
) -> None:
    """Of one graph all gradients come at its end: one node of autograd stands for the whole backward."""
    from worldsize.training.compiled import Compiled  # loads torch's compiler

    monkeypatch.setattr("worldsize.training.compiled.BACKEND", "aot_eager")
    trainer, _ = alone(tiny_settings(tmp_path))
    model = trainer.strategy.unwrap()
    Compiled([model], pieces)
    loss, _ = trainer.loss(next(trainer.stream)[1])
    nodes, left = set(), [loss.grad_fn]
    while left:
        node = left.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            left += [before for before, _ in node.next_functions]
    assert (sum("Compiled" in node.name() for node in nodes) > 1) is several


def test_a_batch_of_another_shape_compiles_again_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldsize.training.compiled.BACKEND", "aot_eager")
    trainer, _ = alone(tiny_settings(tmp_path, compile=True, batch_size=8))
    assert trainer.compile() is not None
    assert trainer.compiled is not None
    assert not trainer.step().interrupted
    assert trainer.compiled.warnings() == []
    whole = trainer.stream

    def smaller() -> Iterator[Any]:
        epoch, (inputs, labels) = next(whole)
        yield epoch, (inputs[:5], labels[:5])
        yield from whole

    trainer.stream = smaller()  # type: ignore[assignment]
    assert trainer.step().interrupted
    assert not trainer.step().interrupted
    assert [warning.code for warning in trainer.compiled.warnings()] == ["compiled-again"]


def test_a_copy_is_not_compiled_and_hooks_stay_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import copy

    monkeypatch.setattr("worldsize.training.compiled.BACKEND", "aot_eager")
    trainer, _ = alone(tiny_settings(tmp_path, compile=True))
    model = trainer.strategy.unwrap()
    trainer.compile()
    twin = copy.deepcopy(model)
    assert twin._compiled_call_impl is None
    assert "forward" not in vars(model)
    tracing: list[bool] = []
    model.register_forward_pre_hook(lambda *_: tracing.append(torch.compiler.is_compiling()))
    assert not trainer.step().interrupted
    assert tracing == [False]
