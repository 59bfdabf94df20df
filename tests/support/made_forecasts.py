"""Runs whose truth at other world sizes and links is known: ranks compute with a known spread, one message follows.

The truth is drawn here, by a few lines that know nothing of how a forecast is made: a step lasts as long as its slowest
rank computes, and the message that all of them then send.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from made_messages import add_link
from made_runs import MadeCell, make_run
from worldsize.analysis.collective_cost import cost_s
from worldsize.config import Hosts
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run, write_cell
from worldsize.results.records import CellSummary, Estimate
from worldsize.results.step_records import SpanRecord, StepRecord
from worldsize.results.training_records import GradientTimes

STEPS, BLOCK_STEPS = 240, 12
SIZES = tuple(4**k for k in range(5, 13))


GIGABIT = Hosts(count=2, rate_bits_per_s=1_000_000_000)


@dataclass(frozen=True)
class Truth:
    """What is true of a training, at any world size."""

    compute_s: float = 0.05
    """Of a rank in a step with 32 samples, in its mean; it grows with the samples."""
    spread: float = 0.05
    """Standard deviation of what a rank has of its own in a step, as a share of computing."""
    shared: float = 0.02
    """The same of what all ranks have in common."""
    alpha_s: float = 2e-4
    bytes_per_s: float = 100e6
    hosts: Hosts | None = GIGABIT
    gradient_bytes: int = 4 * 10**6
    rank: tuple[float, ...] = ()
    """What each rank always has, as a share of computing; in turn, where there are more."""
    contention: float = 0.0
    """How much longer each further worker lets all of them compute."""
    blocks: int = STEPS // BLOCK_STEPS
    """Of each cell."""
    unlike: float = 0.0
    """By how much blocks of a cell differ, as others take the machine: the standard deviation of the logarithm."""
    seed: int = 0

    def message_s(self, world_size: int) -> float:
        """The one all-reduce of a step."""
        if world_size == 1:
            return 0.0
        return cost_s("all-reduce", world_size, self.alpha_s, self.bytes_per_s, self.gradient_bytes)

    def computing_s(self, world_size: int, batch: int, steps: int, seed: int) -> NDArray[np.float64]:
        """Of each rank in each step: (steps, ranks)."""
        generator = np.random.default_rng(seed)
        common = self.shared * generator.standard_normal((steps, 1))
        own = self.spread * generator.standard_normal((steps, world_size))
        always = np.resize(self.rank, world_size) if self.rank else 0.0
        alike_s = self.compute_s * batch / 32 * (1 + self.contention * (world_size - 1))
        return np.asarray(alike_s * (1 + common + own + always))

    def step_s(self, world_size: int, batch: int = 32, steps: int = 20_000) -> float:
        """The mean step."""
        slowest = self.computing_s(world_size, batch, steps, seed=99).max(axis=1)
        return float(slowest.mean() + self.message_s(world_size))


def made_forecast_run(folder: Path, truth: Truth, cells: tuple[tuple[str, int, int], ...]) -> Path:
    """A run folder with these cells (strategy, N, b), timed in turn, and the benchmark of its link."""
    made = [MadeCell(strategy, size, batch, step_s=0.05) for strategy, size, batch in cells]
    make_run(folder, made)
    for number, cell in enumerate(made):
        _write(folder, cell, truth, seed=number)
    if any(cell.world_size > 1 for cell in made):
        largest, gb_per_s = max(cell.world_size for cell in made), truth.bytes_per_s / 1e9
        add_link(folder, largest, gb_per_s=gb_per_s, alpha_s=truth.alpha_s, sizes=SIZES, hosts=truth.hosts)
    return folder


def _write(folder: Path, cell: MadeCell, truth: Truth, seed: int) -> None:
    count = truth.blocks * BLOCK_STEPS
    longer = np.exp(truth.unlike * np.random.default_rng([truth.seed, seed]).standard_normal(truth.blocks))
    each = np.repeat(longer, BLOCK_STEPS)
    computing = each[:, None] * truth.computing_s(cell.world_size, cell.batch_size, count, truth.seed + seed)
    message_s = truth.message_s(cell.world_size)
    lengths = computing.max(axis=1) + each * message_s
    begins = np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
    place = cell_folder(folder, cell.id)
    for rank in range(cell.world_size):
        steps, spans = [], []
        for step in range(count):
            own, length = float(computing[step, rank]), float(lengths[step])
            steps.append(_step(cell, step, own, length, float(begins[step])))
            if message_s:
                spans.append(_span(step, own, length, truth.gradient_bytes))
        (place / f"rank{rank}.jsonl").write_text("".join(f"{each.model_dump_json()}\n" for each in steps))
        (place / f"rank{rank}.spans.jsonl").write_text("".join(f"{each.model_dump_json()}\n" for each in spans))
    record = load_run(folder).cells[cell.id].record
    mean_s = float(lengths.mean())
    record.gradients = GradientTimes(sizes_bytes=(truth.gradient_bytes,), ready_share=(1.0,), steps=5)
    record.summary = CellSummary(
        step_s=Estimate(value=mean_s, samples=truth.blocks),
        samples_per_s=Estimate(value=cell.settings.global_batch / mean_s, samples=truth.blocks),
        parts_s={},
        timed_steps=count,
        blocks=truth.blocks,
    )
    write_cell(folder, record)


def _step(cell: MadeCell, step: int, own_s: float, length_s: float, begin_s: float) -> StepRecord:
    """A third of its computing is forward, the rest backward; nothing else takes time."""
    computed = own_s
    return StepRecord(
        session=0,
        block=step // BLOCK_STEPS,
        step=step,
        epoch=0,
        timed=True,
        samples=cell.batch_size,
        loss=1.0,
        start_ns=round(1e9 * begin_s),
        step_s=length_s,
        data_wait_end_s=0.0,
        copy_end_s=0.0,
        forward_end_s=computed / 3,
        backward_end_s=computed,
        synchronise_end_s=length_s,
        optimizer_end_s=length_s,
        last_gradient_s=computed,
    )


def _span(step: int, own_s: float, length_s: float, size_bytes: int) -> SpanRecord:
    return SpanRecord(
        session=0,
        step=step,
        kind=["all_reduce"],
        payload_bytes=[size_bytes],
        blocking=[True],
        ready_s=[None],
        issued_s=[own_s],
        done_s=[length_s],
    )
