"""The price of observing: steps with instruments against steps without, in turn, in the same workers."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import in_turn, keep, ratio, say, shown
from worldsize.config import CellSettings
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores
from worldsize.study.executor import LocalExecutor
from worldsize.study.plan import PlannedCell

STEPS = 3
BLOCKS = 8


def run(data_dir: str | None) -> None:
    """Measure and print, for the strategies with the fewest and the most messages per step."""
    for strategy in ("ddp", "all-reduce"):
        _measure(strategy)


def _measure(strategy: str) -> None:
    cores = allowed_cores()
    settings = CellSettings(data="synthetic", strategy=strategy, world_size=2, batch_size=16, threads_per_worker=1)
    placement = place(world_size=2, processes=2, threads_per_worker=1, cores=cores, gpus=0, backend="gloo")
    cell = PlannedCell(settings, placement)
    with tempfile.TemporaryDirectory() as folder:
        executor = LocalExecutor(Path(folder), session=0)
        try:
            variants = {name: _turn(executor, cell, observe=name == "with") for name in ("with", "without")}
            samples = in_turn(variants, BLOCKS)
        finally:
            executor.close()
    cost = ratio(samples, "with", "without")
    say("")
    print(f"instruments, resnet18, {strategy} with 2 workers, b = 16")
    print(f"  step with ÷ step without: {shown(cost)} (at most 1.01)")
    keep(f"instruments-{strategy}", {"ratio": cost.estimate.model_dump()})


def _turn(executor: LocalExecutor, cell: PlannedCell, *, observe: bool) -> Callable[[], float]:
    turn: dict[str, Any] = {"op": "steps", "count": STEPS, "observe": observe}

    def block() -> float:
        replies = executor.take(cell, turn, lambda: None)
        steps = zip(*(reply["step_s"] for reply in replies), strict=True)
        return float(sum(max(ranks) for ranks in steps)) / STEPS

    return block
