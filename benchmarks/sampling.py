"""How many timed steps a study needs for its asked precision, against two full epochs a cell (the classic protocol)."""

import tempfile
from pathlib import Path

import worldsize
from common import cifar10_or_synthetic, keep, say
from worldsize.results.folder import Cell

CAP = 600
"""Steps a cell: far above what is needed, so that the cap hides nothing."""
LIMIT = 10


def run(data_dir: str | None) -> None:
    """Run a study of VGG-11 on two emulated hosts to its precision, and print what it took."""
    with tempfile.TemporaryDirectory() as folder:
        done = worldsize.study(
            out=Path(folder) / "run",
            **cifar10_or_synthetic(data_dir),
            model="vgg11",
            strategies=("single", "gather-scatter", "all-reduce", "ddp"),
            world_sizes=(1, 2),
            baseline="single",
            batch_sizes=(32,),
            threads_per_worker=1,
            hosts=2,
            link="1gbit",
            steps=CAP,
        )
        cells = {name: _count(cell) for name, cell in done.cells.items()}
        target = done.study.asked.target_interval
    say("")
    print(f"timed steps for ±{target:.0%} on each ratio, against two epochs a cell")
    for name, (steps, epochs, ended_by) in cells.items():
        print(f"  {name:<22} {steps:>5} of {epochs:>5}: {epochs / steps:.0f} times fewer (ended by {ended_by})")
    steps, epochs = (sum(count[i] for count in cells.values()) for i in (0, 1))  # type: ignore[misc]
    print(f"  together {epochs / steps:.1f} times fewer (at least {LIMIT})")
    keep("sampling", {"target": target, "cells": cells, "times_fewer": epochs / steps})


def _count(cell: Cell) -> tuple[int, int, str]:
    record = cell.record
    assert record.summary is not None
    assert record.steps_per_epoch is not None
    return record.summary.timed_steps, 2 * record.steps_per_epoch, record.ended_by or "failure"
