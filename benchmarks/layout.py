"""What the memory layout that training chooses (training/memory_format.py) gives over channels-last everywhere."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from common import in_turn, keep, ratio, say, shown
from worldsize.models import build_model
from worldsize.training.memory_format import in_memory_format

SHAPE = (3, 32, 32)
BATCH = 32
BLOCKS = 10
STEPS = 2


def run(data_dir: str | None) -> None:
    """Measure and print; one thread, as of one of many workers."""
    torch.set_num_threads(1)
    results = {}
    say("")
    for name in ("resnet18", "vgg11"):
        samples = in_turn({"everywhere": _steps(name, chosen=False), "chosen": _steps(name, chosen=True)}, BLOCKS)
        gain = ratio(samples, "everywhere", "chosen")
        print(f"layout of {name}, b = {BATCH}, one thread: {shown(gain)} times the speed of channels-last everywhere")
        results[name] = gain.estimate.model_dump()
    keep("layout", results)


def _steps(name: str, *, chosen: bool) -> Callable[[], float]:
    model: Any = build_model(name, classes=10, shape=SHAPE, seed=0)
    model = (
        in_memory_format(model, SHAPE, torch.device("cpu")) if chosen else model.to(memory_format=torch.channels_last)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    inputs = torch.randn(BATCH, *SHAPE).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (BATCH,))

    def block() -> float:
        start = time.perf_counter()
        for _ in range(STEPS):
            F.cross_entropy(model.train()(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        return (time.perf_counter() - start) / STEPS

    return block
