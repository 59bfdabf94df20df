"""The instrumentation overhead, in microseconds and as a share of a step.

Steps with instruments against steps without, in turn, in the same workers. The instruments' work depends on the
number of messages, not on the model's: it is measured on steps that are all overhead, where its interval is short,
and divided by a step of ResNet-18 of the same run. The direct comparison on ResNet-18 is printed beside it.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Samples, in_turn, keep, ratio, say, shown
from worldsize.config import CellSettings
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores
from worldsize.ranks.turns import Turn
from worldsize.study.job_executor import JobExecutor
from worldsize.study.plan import PlannedCell

BATCH = 16
SMALL_BLOCKS = {"ddp": 300, "all-reduce": 100}
"""Pairs of blocks of 20 steps: with 30 pairs of 100 steps the price was known to ± 360 µs, for how fast a machine is
wanders from second to second."""
SMALL_MODEL = f"{Path(__file__).parent / 'many_small_layers.py'}:model"


def run(data_dir: str | None) -> None:
    """Measure and print, for the strategies with the fewest and the most messages per step."""
    for strategy, blocks in SMALL_BLOCKS.items():
        small = _measure(strategy, SMALL_MODEL, batch=1, steps=20, blocks=blocks)
        real = _measure(strategy, "resnet18", batch=BATCH, steps=3, blocks=20)
        _print(strategy, small, real)


def _print(strategy: str, small: Samples, real: Samples) -> None:
    overhead, direct = ratio(small, "with", "without").estimate, ratio(real, "with", "without")
    assert overhead.high is not None, "many blocks have an interval"
    price_s = (overhead.value - 1) * _median(small["without"])
    at_most_s = (overhead.high - 1) * _median(small["without"])
    step_s = _median(real["without"])
    say("")
    print(f"instruments, {strategy} with 2 workers")
    print(f"  price: {price_s * 1e6:.0f} µs a step, at most {at_most_s * 1e6:.0f} (95 %)")
    print(f"  of a step of resnet18, b = {BATCH}: {price_s / step_s:.2%}, at most {at_most_s / step_s:.2%} (limit 1 %)")
    print(f"  resnet18, step with ÷ step without: {shown(direct)}")
    keep(
        f"instruments-{strategy}",
        {
            "price_s": price_s,
            "price_at_most_s": at_most_s,
            "resnet18_step_s": step_s,
            "share": price_s / step_s,
            "share_at_most": at_most_s / step_s,
            "resnet18_ratio": direct.estimate.model_dump(),
        },
    )


def _median(blocks: dict[tuple[int, int], Any]) -> float:
    values = sorted(float(block[0]) for block in blocks.values())
    return values[len(values) // 2]


def _measure(strategy: str, model: str, *, batch: int, steps: int, blocks: int) -> Samples:
    settings = CellSettings(
        data="synthetic", model=model, strategy=strategy, world_size=2, batch_size=batch, threads_per_worker=1
    )
    placement = place(world_size=2, processes=2, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo")
    cell = PlannedCell(settings, placement)
    with tempfile.TemporaryDirectory() as folder:
        executor = JobExecutor(Path(folder), session=0)
        try:
            variants = {name: _turn(executor, cell, steps, observe=name == "with") for name in ("with", "without")}
            return in_turn(variants, blocks)
        finally:
            executor.close()


def _turn(executor: JobExecutor, cell: PlannedCell, steps: int, *, observe: bool) -> Callable[[], float]:
    turn = Turn(op="steps", count=steps, observe=observe, warmup=2)  # a new DDP settles in two

    def block() -> float:
        replies = executor.take(cell, turn, lambda: None)
        times = zip(*(reply.step_s for reply in replies), strict=True)
        return float(sum(max(ranks) for ranks in times)) / steps

    return block
