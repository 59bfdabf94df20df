"""Proofs of many cases in one job: an entry that proves a case in each turn, and what the cases are made of.

It is also a file of a user: models, data and strategies that train as they should, or do not.
"""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from worldsize.config import CellSettings
from worldsize.data import load_data
from worldsize.launch.placement import place
from worldsize.measure.clocks import HostClock
from worldsize.measure.machine import allowed_cores
from worldsize.measure.timeline import Timeline
from worldsize.ranks.setup import Rank, choose_device, pin, process_group
from worldsize.ranks.turns import Reply, Turn, Turns, run_turns
from worldsize.results.records import Placement
from worldsize.strategies.all_reduce import AllReduce
from worldsize.strategies.base import gradients
from worldsize.strategies.data_parallel import DataParallel
from worldsize.training.check import check
from worldsize.training.classifier import Classifier
from worldsize.training.rank import world_of
from worldsize.training.trainer import Trainer
from worldsize.training.verify import Task, prove
from worldsize.training.workload import RolledBack

HERE = str(Path(__file__))
SMALL_DATA = "synthetic:3x8x8:10:64"


def net(classes: int) -> nn.Module:
    """BatchNorm, a bias before it (its gradient is 0 but for rounding), dropout, and a layer that is not trained."""
    frozen = nn.Conv2d(3, 4, 1).requires_grad_(False)
    norm = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
    return nn.Sequential(frozen, norm, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, classes))


def steady(classes: int) -> nn.Module:
    """The same without dropout."""
    model = net(classes)
    model[1][3] = nn.Identity()  # type: ignore[index]
    return model


class Single(nn.Sequential):
    """Converts to single precision on the way."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = super().forward(inputs).float()  # type: ignore[no-untyped-call]
        return outputs


def single(classes: int) -> nn.Module:
    return Single(*steady(classes))  # type: ignore[misc]


class Sums(AllReduce):
    """Forgets to divide by N."""

    def synchronise(self) -> None:
        if self.synchronising and self.world.world_size > 1:
            for gradient in gradients(self.unwrap()):
                self.channel.all_reduce(gradient)


class Skips(AllReduce):
    """Leaves one parameter out: the last bias."""

    def synchronise(self) -> None:
        if self.synchronising and self.world.world_size > 1:
            for gradient in list(gradients(self.unwrap()))[:-1]:
                self.channel.all_reduce(gradient)
                gradient.div_(self.world.world_size)


class Disagrees(AllReduce):
    """Lets each rank begin with weights of its own."""

    def wrap(self, model: nn.Module) -> nn.Module:
        with torch.no_grad():
            for parameter in list(model.parameters())[2:]:
                parameter.add_(0.01 * self.channel.rank)
        self.model = model
        return model


class Late(AllReduce):
    """Forgets the exchange in its second step."""

    steps = 0

    def synchronise(self) -> None:
        self.steps += 1
        if self.steps != 2:
            super().synchronise()


class Doubles(DataParallel):
    """One process whose gradients are twice the mean."""

    def synchronise(self) -> None:
        for gradient in gradients(self.unwrap()):
            gradient.mul_(2)


class Rolls(Dataset[tuple[Tensor, int]]):
    """Samples that depend on something that they must not depend on: a variable of the process."""

    def __init__(self, variable: str) -> None:
        self.variable = variable

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        shift = int(os.environ.get(self.variable, "0")) if index % 2 else 0
        return torch.rand(3, 8, 8, generator=generator).roll(shift, 2), index % 10


def by_rank() -> Rolls:
    return Rolls("RANK")


def by_world() -> Rolls:
    return Rolls("WORLD_SIZE")


def case(strategy: str, world_size: int = 2, /, **settings: Any) -> CellSettings:
    """The settings of a case; strategies, models and data of this file are named by `:name`."""
    values = {"model": ":net", "data": SMALL_DATA, "strategy": strategy, "loader_workers": 0, **settings}
    named = {key: HERE + value if str(value).startswith(":") else value for key, value in values.items()}
    return CellSettings(world_size=world_size, batch_size=4, threads_per_worker=1, **named)


def placement_of(settings: CellSettings, processes: int) -> Placement:
    return place(
        world_size=settings.world_size,
        processes=processes,
        threads_per_worker=1,
        cores=allowed_cores(),
        gpus=0,
        backend="gloo",
    )


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """Entry of a job: each turn is a case, `verify` its short proof, else the long one in `count` steps."""
    rank = Rank.from_environment()
    cases = [CellSettings.model_validate(each) for each in payload["cases"]]
    device = choose_device(rank, placement_of(cases[0], rank.processes))

    def do(turn: Turn) -> Reply:
        if turn.op == "finish":
            return Reply()
        settings, placement = cases[turn.block], placement_of(cases[turn.block], rank.processes)
        pin(rank, placement)
        if turn.op == "steps":
            task = Task(settings=settings, placement=placement, arithmetic="fp64", steps=turn.count)
            return Reply(proof=prove(task, rank, device))
        timeline = Timeline(HostClock())
        world = world_of(rank, settings, placement, device, timeline)
        trainer = Trainer(settings, Classifier(settings, load_data(settings)), world, timeline)
        with RolledBack(trainer)():
            return Reply(check=check(trainer, turn.count))

    with process_group(rank, placement_of(cases[0], rank.processes), device):
        run_turns(turns, Reply(), do)
