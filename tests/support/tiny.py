"""A user's model of a few thousand weights on the embedded images: real training within a second."""

from pathlib import Path
from typing import Any

import torch

from worldsize.config import CellSettings
from worldsize.data import DataSet, load_data
from worldsize.measure.clocks import Clock, HostClock
from worldsize.measure.timeline import Timeline
from worldsize.strategies import Channel, World
from worldsize.training.classifier import Classifier
from worldsize.training.trainer import Trainer

MODEL = """
from torch import nn

def net(classes):
    return nn.Sequential(
        nn.AvgPool2d(2),
        nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 4 * 4, classes),
    )
"""


def tiny_settings(folder: Path, **settings: Any) -> CellSettings:
    """Settings of a cell that trains the model, whose file is written to the folder."""
    file = folder / "tiny_model.py"
    file.write_text(MODEL)
    return CellSettings(**{"model": f"{file}:net", "data": "digits", "batch_size": 16, **settings})


def alone(settings: CellSettings, clock: Clock | None = None) -> tuple[Trainer, DataSet]:
    """A trainer in this process, which drives all workers, and its data."""
    timeline = Timeline(clock or HostClock())
    world = World(Channel(0, 1, timeline), settings.world_size, torch.device("cpu"))
    data = load_data(settings)
    return Trainer(settings, Classifier(settings, data), world, timeline), data
