"""Does a short reference computation make intervals narrower? Two equal cells tell: their ratio is 1.

What reference and block share, the speed of the machine at that moment, is regressed out of the logarithms of the block
ratios (a control variate: Lavenberg and Welch 1981), with the mean of the references in the block. That is worth its
time if the interval shrinks by a fifth, and the ratio stays 1.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common import keep, say
from worldsize.analysis.racing import mean_and_half
from worldsize.config import CellSettings
from worldsize.launch.placement import place
from worldsize.launch.warm import WARM
from worldsize.measure.machine import allowed_cores
from worldsize.ranks.turns import Turn
from worldsize.study.job_executor import JobExecutor
from worldsize.study.plan import PlannedCell

Times = NDArray[np.float64]

BLOCKS, STEPS = 40, 6
WORTH = 0.8
"""The interval must be at most this share of the one without."""
WAYS = ("all steps", "regressed out")


def run(data_dir: str | None) -> None:
    """Measure, print and keep."""
    found = {name: _measure(name, workers) for name, workers in (("single", 1), ("ddp", 2))}
    say("")
    print(f"control variate: a short computation beside each step, {BLOCKS} blocks of {STEPS} steps")
    for name, ways in found.items():
        print(f"  two equal cells, {name}")
        for way in WAYS:
            mean, half = ways[way]
            share = half / ways[WAYS[0]][1]
            print(
                f"    {way}: ratio {np.exp(mean):.3f} ± {half:.1%}, {share:.2f} of the width (asked: at most {WORTH})"
            )
    keep("control_variate", {"blocks": BLOCKS, "steps": STEPS, "found": found})


def _measure(strategy: str, workers: int) -> dict[str, Any]:
    say(f"  {strategy}, {workers} worker(s) …")
    blocks: dict[str, list[tuple[Times, Times]]] = {"a": [], "b": []}
    with tempfile.TemporaryDirectory() as folder, WARM.held():
        executor = JobExecutor(Path(folder), session=0)
        cells = {label: _cell(strategy, workers, label) for label in blocks}
        try:
            for cell in cells.values():
                executor.take(cell, Turn(op="steps", count=8, timed=False), lambda: None)
            for block in range(BLOCKS):
                for label, cell in cells.items():
                    turn = Turn(op="steps", count=STEPS, warmup=1, block=block, reference_every=1)
                    replies = executor.take(cell, turn, lambda: None)
                    steps_s = np.max([reply.step_s for reply in replies], axis=0)
                    blocks[label].append((steps_s, np.array([r.reference_s for r in replies], dtype=np.float64)))
        finally:
            executor.close()
    return _ways(blocks["a"], blocks["b"])


def _ways(a: list[tuple[Times, Times]], b: list[tuple[Times, Times]]) -> dict[str, Any]:
    """Mean logarithm of the ratio of the two, and half of its interval, by WAYS."""
    ratios = np.array([np.log(np.mean(one[0]) / np.mean(other[0])) for one, other in zip(a, b, strict=True)])
    shared = np.array([np.log(np.mean(one[1]) / np.mean(other[1])) for one, other in zip(a, b, strict=True)])
    slope = float(np.cov(ratios, shared)[0, 1] / np.var(shared, ddof=1))
    return {
        WAYS[0]: mean_and_half(ratios, 0.025),
        WAYS[1]: mean_and_half(ratios - slope * shared, 0.025),
        "slope": slope,
    }


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
