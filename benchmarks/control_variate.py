"""Does a short reference computation beside each block make intervals narrower? Two equal cells tell: their ratio is 1.

What reference and block share, the speed of the machine at that moment, is regressed out of the logarithms of the block
ratios (a control variate: Lavenberg and Welch 1981). It is worth its time if the interval shrinks by a fifth.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from common import keep, say
from worldsize.analysis.racing import mean_and_half
from worldsize.config import CellSettings
from worldsize.launch.placement import place
from worldsize.launch.warm import WARM
from worldsize.measure.machine import allowed_cores
from worldsize.study.executor import JobExecutor
from worldsize.study.plan import PlannedCell

BLOCKS, STEPS = 40, 4
REFERENCE_S = 0.03
SIZE = 512
WORTH = 0.8
"""The interval must be at most this share of the one without."""


def run(data_dir: str | None) -> None:
    """Measure, print and keep."""
    found = {name: _measure(name, workers) for name, workers in (("single", 1), ("ddp", 2))}
    say("")
    print(f"control variate: a matrix multiplication of {1e3 * REFERENCE_S:.0f} ms beside each block, {BLOCKS} blocks")
    for name, (plain, regressed, slope) in found.items():
        share = regressed[1] / plain[1]
        without, having = (f"{np.exp(mean):.3f} ± {half:.1%}" for mean, half in (plain, regressed))
        print(f"  two equal cells, {name}: ratio {without}, regressed {having}, slope {slope:.2f}")
        print(f"    {share:.2f} of the width (worth its time: at most {WORTH})")
    keep(
        "control_variate",
        {
            name: {"log_ratio": plain, "log_ratio_regressed": regressed, "slope": slope}
            for name, (plain, regressed, slope) in found.items()
        },
    )


def _measure(strategy: str, workers: int) -> tuple[tuple[float, float], tuple[float, float], float]:
    say(f"  {strategy}, {workers} worker(s) …")
    logs: dict[str, list[float]] = {"a": [], "b": []}
    references: dict[str, list[float]] = {"a": [], "b": []}
    with tempfile.TemporaryDirectory() as folder, WARM.held():
        executor = JobExecutor(Path(folder), session=0)
        cells = {label: _cell(strategy, workers, label) for label in logs}
        try:
            for cell in cells.values():
                executor.take(cell, {"op": "steps", "count": 8, "timed": False}, lambda: None)
            for block in range(BLOCKS):
                for label, cell in cells.items():
                    references[label].append(_reference(workers))
                    turn = {"op": "steps", "count": STEPS, "lead": 1, "block": block}
                    replies = executor.take(cell, turn, lambda: None)
                    logs[label].append(float(np.log(np.median(np.max([r["step_s"] for r in replies], axis=0)))))
        finally:
            executor.close()
    ratios = np.array(logs["a"]) - np.array(logs["b"])
    shared = np.array(references["a"]) - np.array(references["b"])
    slope = float(np.cov(ratios, shared)[0, 1] / np.var(shared, ddof=1))
    return mean_and_half(ratios, 0.025), mean_and_half(ratios - slope * shared, 0.025), slope


def _cell(strategy: str, workers: int, label: str) -> PlannedCell:
    settings: dict[str, Any] = {
        "model": "resnet18",
        "data": "synthetic:3x32x32:10:2000",
        "batch_size": 4,
        "label": label,
    }
    where = place(
        world_size=workers, processes=workers, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo"
    )
    return PlannedCell(CellSettings(strategy=strategy, world_size=workers, threads_per_worker=1, **settings), where)


def _reference(threads: int) -> float:
    """Logarithm of the time of one product, the quickest of those within REFERENCE_S."""
    import torch

    torch.set_num_threads(threads)
    a, b = torch.randn(2, SIZE, SIZE)
    times, stop = [], time.perf_counter() + REFERENCE_S
    while time.perf_counter() < stop:
        begin = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - begin)
    return float(np.log(np.median(times)))
