"""Sides of many runs with a known spread, made in memory: what the truth tests of comparing are repeated on.

Nothing is written: two hundred comparisons of ten cells take seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from made_runs import make_run, usual_cells
from worldsize.analysis.compare.comparison import compare_runs
from worldsize.analysis.compare.sides import read_snapshot
from worldsize.config import CompareSettings
from worldsize.results.baseline_records import StoredBlock, StoredCell, StoredRun
from worldsize.results.comparison_records import ComparisonRecord
from worldsize.results.records import STEP_PARTS, CellSummary, Estimate

BATCHES = (8, 16, 32, 64, 128)
CELLS = tuple(f"{strategy}-b{size}" for size in BATCHES for strategy in ("single-w1", "ddp-w2"))
"""Ten cells: one worker and two, of five batches."""
BLOCKS = 8
COMPUTE_S, WAIT_S, EXPOSED_S = 0.45, 0.01, 0.04


@dataclass(frozen=True)
class Truth:
    """What is true of all runs of a side."""

    between: float = 0.02
    """Standard deviation of the logarithm of a cell's step time from run to run."""
    within: float = 0.01
    """And from block to block within a run."""
    shared: float = 0.0
    """Share of the variance between runs that all cells of a run have in common."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Cells that take so many times as long."""
    machine: float = 1.0
    """Factor on all step times."""
    more_wait_s: float = 0.0
    """Seconds of data wait that are added to each step of each cell."""
    reference_s: float | None = None
    """How long the short computation beside the steps takes; None where it is not timed."""
    gives: float = 0.0
    """Standard deviation of the logarithm of what the machine gives to steps and computation alike, from run to run."""
    computation: float = 1.0
    """Factor on the computation."""


class Maker:
    """Makes sides of runs out of truths, with noise of its own."""

    def __init__(self, folder: Path, seed: int, cells: Sequence[str] = CELLS) -> None:
        self.cells = cells
        self.model = read_snapshot(make_run(folder, usual_cells(blocks=1), name="made"))
        self.draw = np.random.default_rng(seed)

    def side(self, truth: Truth, runs: int) -> list[StoredRun]:
        """So many runs."""
        return [self._run(truth) for _ in range(runs)]

    def compared(self, a: Truth, b: Truth, runs: int, **settings: Any) -> ComparisonRecord:
        """A comparison of so many runs a side."""
        return self.judged(self.side(a, runs), self.side(b, runs), **settings)

    def judged(self, a: list[StoredRun], b: list[StoredRun], **settings: Any) -> ComparisonRecord:
        """A comparison of sides that were made."""
        return compare_runs(a, b, CompareSettings(**settings), ("a", "b"))

    def _run(self, truth: Truth) -> StoredRun:
        shared, own = np.sqrt([truth.shared, 1 - truth.shared]) * truth.between
        together = truth.machine * np.exp(shared * self.draw.standard_normal())
        gives = np.exp(truth.gives * self.draw.standard_normal()) if truth.gives else 1.0
        truth = replace(truth, computation=truth.computation * gives)
        together *= gives
        cells = [self._cell(name, truth, together * np.exp(own * self.draw.standard_normal())) for name in self.cells]
        provenance = self.model.provenance.model_copy(update={"created": str(self.draw.integers(10**12))})
        return self.model.model_copy(update={"cells": cells, "provenance": provenance})

    def _cell(self, name: str, truth: Truth, factor: float) -> StoredCell:
        strategy, workers, batch = name.rsplit("-", 2)
        n = int(workers[1:])
        factor *= truth.factors.get(name, 1.0)
        # Waiting and exchange vary more from run to run than computing does.
        wait, exposed = np.exp(0.1 * self.draw.standard_normal(2))
        blocks = []
        for block in range(BLOCKS):
            noise = np.exp(truth.within * self.draw.standard_normal(3))
            parts = np.array([COMPUTE_S, WAIT_S * wait, EXPOSED_S * exposed * (n > 1)]) * factor * noise
            parts[1] += truth.more_wait_s
            reference_s = None
            if truth.reference_s is not None:
                reference_s = truth.reference_s * truth.computation * np.exp(truth.within * self.draw.standard_normal())
            blocks.append(
                StoredBlock(
                    session=0,
                    block=block,
                    steps=4,
                    step_s=parts.sum(),
                    compute_s=parts[0],
                    data_wait_s=parts[1],
                    exposed_sync_s=parts[2] if n > 1 else None,
                    reference_s=reference_s,
                )
            )
        memory = int(2**30 * np.exp(0.01 * self.draw.standard_normal()))
        return StoredCell(
            id=name,
            strategy=strategy,
            world_size=n,
            batch_size=int(batch[1:]),
            state="complete",
            summary=_summary(blocks, n * int(batch[1:])),
            peak_memory_bytes=memory,
            blocks=blocks,
        )


def _summary(blocks: list[StoredBlock], batch: int) -> CellSummary:
    step_s = float(np.median([block.step_s for block in blocks]))
    means = {
        name: float(np.mean([getattr(block, name) or 0 for block in blocks]))
        for name in ("data_wait_s", "exposed_sync_s")
    }
    parts = (
        dict.fromkeys(STEP_PARTS, 0.0) | means | {"forward_s": float(np.mean([block.compute_s for block in blocks]))}
    )
    return CellSummary(
        step_s=Estimate(value=step_s, samples=len(blocks)),
        samples_per_s=Estimate(value=batch / step_s, samples=len(blocks)),
        parts_s=parts,
        comm_s=parts["exposed_sync_s"] or None,
        timed_steps=4 * len(blocks),
        blocks=len(blocks),
    )
