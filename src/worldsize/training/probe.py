"""A look before the start: load the data, build the model, count the devices, and say what is wrong with them.

The commands import no torch. They ask a process that has loaded it (launch/warm.py), which answers with one JSON
object on its last line of stdout, so that a mistake is told once and before any worker is started.
"""

import json
import sys
import warnings

import torch

from worldsize.config import Question, Room, StudySettings, chosen_world_sizes
from worldsize.data import load_data
from worldsize.errors import UsageError, WorldsizeError
from worldsize.measure.limits import matmul_flops_per_s, matmul_precision
from worldsize.measure.user_code import user_code
from worldsize.models import build_model, describe_model
from worldsize.results.records import Findings
from worldsize.strategies import STRATEGIES, find_strategy

RATE_S = 0.02
"""How long the matrix-multiply rate is looked at: the rate only tells what no step can be quicker than."""


def look(settings: StudySettings, room: Room) -> Findings:
    """Find out all of it, the world sizes too; raises UsageError for what cannot be run."""
    strategies = {name: find_strategy(name) for name in settings.strategies}
    data = load_data(settings)
    model = build_model(settings.model, classes=data.classes, shape=data.shape, seed=settings.seed)
    gpus = tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    device = torch.device("cuda" if gpus else "cpu")
    findings = Findings(
        data=data.record(),
        model=describe_model(settings.model, model, data.shape),
        gpus=gpus,
        matmul_flops_per_s=matmul_flops_per_s(device, RATE_S, matmul_precision(device, settings.precision)),
        world_sizes=chosen_world_sizes(settings, room, len(gpus)),
        warnings=list(data.warnings),
        own_traits={name: strategy.traits.record() for name, strategy in strategies.items() if name not in STRATEGIES},
        user_code=user_code((settings.model, settings.data, *settings.strategies)),
    )
    sizes = {*findings.world_sizes}
    if settings.min_workers is not None:  # workers may be lost
        sizes.update(range(settings.min_workers, max(sizes)))
    for name, strategy in strategies.items():
        for world_size in sorted(sizes):
            try:
                findings.processes[f"{name}@{world_size}"] = strategy.processes(world_size)
            except UsageError as error:
                findings.refused[f"{name}@{world_size}"] = str(error)
    return findings


def main() -> int:
    """Read the question from stdin, answer on stdout; exit status 0 also for a mistake that was found."""
    warnings.simplefilter("ignore")
    question = Question.model_validate_json(sys.stdin.read())
    try:
        answer = look(question.settings, question.room).model_dump()
    except WorldsizeError as error:
        answer = {"error": str(error), "kind": type(error).__name__, "exit_status": error.exit_status}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    return 0
