"""A look before the start: load the data, build the model, count the devices, and say what is wrong with them.

The commands import no torch. They ask a process that has loaded it (launch/warm.py), which answers with one JSON
object on its last line of stdout, so that a mistake is told once and before any worker is started.
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch

from worldsize.config import (
    CellSettings,
    Question,
    Room,
    StudySettings,
    TrainingSettings,
    chosen_world_sizes,
    validated,
)
from worldsize.data import load_data
from worldsize.errors import UsageError, WorldsizeError
from worldsize.measure.compiler import check_cpp_compiler
from worldsize.measure.limits import matmul_flops_per_s, matmul_precision
from worldsize.measure.user_code import user_code
from worldsize.models import build_model, count_model, describe_model
from worldsize.results.records import Findings, WarningRecord
from worldsize.results.training_records import DataRecord, ModelRecord
from worldsize.strategies import STRATEGIES, Strategy, find_strategy
from worldsize.training.contract import Examined, examine

RATE_S = 0.02
"""How long the matrix-multiply rate is looked at: the rate only tells what no step can be quicker than."""

NO_REPLICAS = "torch.compile does not compile the replicas that DataParallel makes anew on each GPU in each step"

Trained = tuple[DataRecord | None, ModelRecord, list[WarningRecord]]
"""What a look finds of what is trained."""


def look(settings: StudySettings, room: Room) -> Findings:
    """Find out all of it, the world sizes too; raises UsageError for what cannot be run."""
    if settings.compile:
        check_cpp_compiler()
    strategies = {name: find_strategy(name) for name in settings.strategies}
    gpus = tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    device = torch.device("cuda" if gpus else "cpu")
    sizes = chosen_world_sizes(settings, room, len(gpus))
    look_at = look_at_data_set if settings.workload is None else partial(look_at_workload, sizes, device, strategies)
    look_at = look_at_replay if settings.replay else look_at
    data, model, warnings = look_at(settings)
    findings = Findings(
        data=data,
        model=model,
        gpus=gpus,
        matmul_flops_per_s=None
        if settings.replay
        else matmul_flops_per_s(device, RATE_S, matmul_precision(device, settings.precision)),
        world_sizes=sizes,
        warnings=warnings,
        own_traits={name: strategy.traits.record() for name, strategy in strategies.items() if name not in STRATEGIES},
        user_code=user_code((*settings.trained, *settings.strategies)),
    )
    tried = {*findings.world_sizes}
    if settings.min_workers is not None:  # workers may be lost
        tried.update(range(settings.min_workers, max(tried)))
    for name, strategy in strategies.items():
        for world_size in sorted(tried):
            try:
                processes = strategy.processes(world_size)
                if settings.compile and gpus and processes == 1 < world_size:
                    raise UsageError(NO_REPLICAS)
                findings.processes[f"{name}@{world_size}"] = processes
            except UsageError as error:
                findings.refused[f"{name}@{world_size}"] = str(error)
    return findings


def look_at_replay(settings: StudySettings) -> Trained:
    """The model whose computing is replayed; there is nothing to build."""
    replay = settings.replay
    assert replay is not None, "a rehearsal replays"
    counts = replay.model_dump(exclude={"run", "slow_ranks"})
    return None, ModelRecord(name=settings.model, **counts), []


def look_at_data_set(settings: StudySettings) -> Trained:
    """The data set and the model of the settings."""
    data = load_data(settings)
    model = build_model(settings.model, classes=data.classes, shape=data.shape, seed=settings.seed)
    return data.record(), describe_model(settings.model, model, data.shape), list(data.warnings)


def look_at_workload(
    world_sizes: Sequence[int], device: torch.device, strategies: Mapping[str, type[Strategy]], settings: StudySettings
) -> Trained:
    """The user's class, tried with the largest world size and its smallest local batch."""
    world_size = max(world_sizes)
    shared = settings.model_dump(include=set(TrainingSettings.model_fields))
    try:
        batch_size = min(settings.grid(world_size))
    except ValueError as error:
        raise UsageError(f"{error}\nGive a --global-batch that every world size divides.") from None
    cell = validated(CellSettings, {**shared, "world_size": world_size, "batch_size": batch_size})
    waiting = any(strategy.traits.needs_every_gradient for strategy in strategies.values())
    found = examine(cell, device, needs_every_gradient=waiting)
    assert found.model is not None, "what keeps the contract has a model"
    assert settings.workload is not None, "the user's class is looked at"
    return None, count_model(settings.workload, found.model, found.flops_per_sample), list(_warnings(found, settings))


def _warnings(found: Examined, settings: StudySettings) -> Iterator[WarningRecord]:
    if found.same_batches:
        yield WarningRecord(
            code="same-batches",
            message="batches() gives the first and the last rank the same samples, so the workers do the same work. "
            "Choose the samples by the rank that it is given.",
        )
    if found.unused and not settings.find_unused_parameters:
        names = ", ".join(found.unused)
        yield WarningRecord(
            code="unused-parameters",
            message=f"the loss does not depend on {names}. They are synchronised like all others; freeze them with "
            "requires_grad_(False) where they are not to be trained.",
        )


def answer(looks: Callable[[StudySettings, Room], Findings]) -> int:
    """Read the question from stdin, answer on stdout; exit status 0 also for a mistake that was found."""
    warnings.simplefilter("ignore")
    question = Question.model_validate_json(sys.stdin.read())
    try:
        found = looks(question.settings, question.room).model_dump()
    except WorldsizeError as error:
        found = {"error": str(error), "kind": type(error).__name__, "exit_status": error.exit_status}
    sys.stdout.write("\n" + json.dumps(found) + "\n")
    return 0


def main() -> int:
    """Answer for a training of worldsize's own."""
    return answer(look)
