"""Samples of many ranks with known truth, as columns: what a study of one, some and a thousand workers would leave.

Of the most workers one, the straggler, computes slower by SLOWER. All numbers of a step are consistent: what the
ranks compute and send decides how long each of them waits and how long its step is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from worldsize.results.samples import SPAN_SCHEMA, STEP_SCHEMA, TAKEN_APART
from worldsize.results.step_records import ENDS

Floats = NDArray[np.float64]
"""Mostly of shape (ranks, steps)."""
Turns = dict[str, NDArray[Any]]

SLOWER = 1.3
"""Compute of the straggler ÷ that of rank 0."""
STRAGGLER = 700
"""Its rank; where there are fewer ranks, the last one."""
SPREAD = 0.01
"""How much slower the slowest of the others computes than rank 0."""
JITTER = 0.005
"""By how much less a rank other than the slowest may compute in one step than in another."""
LAG_S = 10e-6
"""How much sooner than the slowest rank another may be done with a message."""
NOISE = 0.01
"""Standard deviation of the logarithm of a step's time, which all ranks share."""
BATCH = 32
REFERENCE_S = 0.004
DATA_WAIT_S, FORWARD_S, BACKWARD_S, OPTIMIZER_S, OTHER_S = 0.002, 0.03, 0.06, 0.005, 0.003
"""Parts of the step of one worker."""
KINDS = ("broadcast", "all_reduce", "all_reduce", "all_reduce")
SIZES = (22_080, 9_461_800, 27_157_504, 305_152)
ISSUED_AFTER = (0.0, 0.4, 0.7, 1.0)
"""The messages of a step, and after which share of backward each is issued; the first one before forward."""
LINK_BYTES_PER_S = 1.25e9
BLOCK_STEPS, BLOCK_WARMUP, WARMUP_STEPS = 10, 1, 10
"""The steps protocol: timed steps of a block, untimed ones before them, warm-up."""


@dataclass(frozen=True)
class LargeRun:
    """What is true of a run."""

    worlds: tuple[int, ...] = (1, 8, 1024)
    steps: int = 1000
    """Steps with exchange of each rank, warm-up included; each block is followed by as many without."""
    experiment: str = "sync-ladder"
    seed: int = 0

    @property
    def straggler(self) -> int:
        """Rank of the slow worker of the largest world."""
        return min(STRAGGLER, self.worlds[-1] - 1)

    @property
    def blocks(self) -> int:
        """Blocks of each cell."""
        return (self.steps - WARMUP_STEPS) // (BLOCK_WARMUP + BLOCK_STEPS)

    def factors(self, world: int) -> Floats:
        """How long each rank computes, as a multiple of one worker's time."""
        factors = 1 + SPREAD * (np.arange(world) % 16) / 16
        if world == self.worlds[-1]:
            factors[self.straggler] = SLOWER
        return factors

    def step_s(self, world: int) -> float:
        """Median step of a world, as its slowest rank ends it."""
        factors = self.factors(world)[:, None]
        return float(_Step(factors, np.ones_like(factors)).step_s.max())

    def speedup(self, world: int) -> float:
        """Scaled speed-up N·t₁(b)/t_N(b) (method.md §6)."""
        return world * self.step_s(1) / self.step_s(world)


class _Step:
    """Steps of all ranks without noise, in seconds.

    `factors` says how long each rank computes, `jitter` (at most 1) how much sooner it is done in one step than in
    another. Messages go one after the other, each from the moment at which the last rank has issued it.
    """

    def __init__(self, factors: Floats, jitter: Floats) -> None:
        world, factors = len(factors), factors * jitter
        lag = LAG_S * (1 - jitter) / JITTER
        self.forward_s, self.backward_s = factors * FORWARD_S, factors * BACKWARD_S
        computed = DATA_WAIT_S + self.forward_s + self.backward_s
        before = [0.0, *np.ones(len(SIZES) - 1)]
        self.issued_s = [
            DATA_WAIT_S + forward * self.forward_s + share * self.backward_s
            for forward, share in zip(before, ISSUED_AFTER, strict=True)
        ]
        self.done_s: list[Floats] = []
        free: Floats = np.zeros(factors.shape[1])
        for issued, size in zip(self.issued_s, SIZES, strict=True):
            free = np.maximum(issued.max(axis=0), free) + 2 * (world - 1) / world * size / LINK_BYTES_PER_S
            self.done_s.append(free - lag)
        self.comm_s = self._union() if world > 1 else 0 * factors
        self.exposed_s = np.maximum(0.0, self.done_s[-1] - computed) if world > 1 else 0 * factors
        self.optimizer_s, self.other_s = OPTIMIZER_S * jitter, OTHER_S * jitter
        self.alone_s = computed + self.optimizer_s + self.other_s
        """A step without synchronisation."""
        self.step_s = self.alone_s + self.exposed_s

    def _union(self) -> Floats:
        length: Floats = np.zeros_like(self.forward_s)
        reached: Floats = np.zeros_like(self.forward_s)
        for issued, done in zip(self.issued_s, self.done_s, strict=True):
            length += done - np.maximum(issued, np.minimum(reached, done))
            reached = np.maximum(reached, done)
        return length


def samples(run: LargeRun, world: int) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """Steps and spans of each rank of a cell, in the order in which it would have written them."""
    turns, generator = _turns(run, world), np.random.default_rng((run.seed, world))
    number, factors = turns["step"], run.factors(world)
    jitter = 1 - JITTER * generator.random((world, number.size))
    jitter[factors.argmax()] = 1.0
    step = _Step(factors[:, None], jitter)
    # The drift of a block is the same for all cells, the noise of a step for all ranks.
    drift = 1 + 0.03 * np.sin(turns["block"] / 7)
    noise = np.where(turns["warm"], 1.5, drift * np.exp(NOISE * generator.standard_normal(number.size)))
    slowest = np.where(turns["synchronised"], step.step_s.max(axis=0), step.alone_s.max(axis=0)) * noise
    taken = slowest + REFERENCE_S
    begins = 10**12 + np.round(1e9 * (np.cumsum(taken) - taken)).astype(np.int64)
    offsets = generator.integers(-(10**9), 10**9, world) * (np.arange(world) > 0)
    for rank in range(world):
        yield _steps(rank, step, turns, noise, (begins, int(offsets[rank]))), _spans(rank, step, turns, noise)


def _turns(run: LargeRun, world: int) -> Turns:
    """Block, number and kind of each step in order: warm-up, then blocks with exchange and, after each, without."""
    block_steps, number = BLOCK_WARMUP + BLOCK_STEPS, np.arange(run.steps)
    warm, place = number < WARMUP_STEPS, number - WARMUP_STEPS
    having = {
        "block": np.where(warm, 0, place // block_steps),
        "step": number,
        "timed": ~warm & (place % block_steps >= BLOCK_WARMUP),
        "warm": warm,
        "synchronised": np.ones(run.steps, dtype=bool),
    }
    if world == 1:
        return having
    without = {name: values[~warm] for name, values in having.items()}
    never = np.zeros(without["step"].size, dtype=bool)
    without |= {"step": without["step"] + block_steps, "timed": never, "synchronised": never}
    both = {name: np.concatenate([having[name], without[name]]) for name in having}
    order = np.lexsort((~both["synchronised"], both["block"], ~both["warm"]))
    return {name: values[order] for name, values in both.items()}


def _steps(rank: int, step: _Step, turns: Turns, noise: Floats, clock: tuple[NDArray[np.int64], int]) -> pl.DataFrame:
    number, exchanged = turns["step"], turns["synchronised"]
    begins, offset = clock
    exposed = step.exposed_s[rank] * exchanged
    lengths = (DATA_WAIT_S, 0.0, step.forward_s[rank], step.backward_s[rank] + exposed, 0.0, step.optimizer_s[rank])
    ends = np.cumsum(np.broadcast_arrays(*(length * noise for length in lengths)), axis=0)
    columns = {
        "block": turns["block"],
        "step": number,
        "timed": turns["timed"],
        "loss": 2.3 / (1 + 0.01 * number) * (1 + 0.01 * np.sin(rank + number)),
        "accuracy": np.round(BATCH * (1 - 0.9 / (1 + 0.01 * number))) / BATCH,
        "start_ns": begins - offset,
        "step_s": (step.alone_s[rank] + exposed) * noise,
        **dict(zip(ENDS, ends, strict=True)),
        "last_gradient_s": ends[2] + step.backward_s[rank] * noise,
        "synchronised": exchanged,
        "reference_s": np.full(number.size, REFERENCE_S),
    }
    same: dict[str, int | None] = {"samples": BATCH, "clock_offset_ns": offset, "clock_error_ns": 20_000 if rank else 0}
    same |= dict.fromkeys(TAKEN_APART)
    absent = {name: None for name in ("phases", "phase_ends_s")}
    same = {**same, **absent}
    whole = {name: columns.get(name, pl.repeat(same.get(name, 0), number.size, eager=True)) for name in STEP_SCHEMA}
    return pl.DataFrame(whole).cast(dict(STEP_SCHEMA))  # type: ignore[arg-type] # the names of a Mapping


def _spans(rank: int, step: _Step, turns: Turns, noise: Floats) -> pl.DataFrame:
    exchanged = turns["synchronised"]
    number = turns["step"][exchanged]

    def times(of_messages: list[Floats]) -> Floats:
        return np.stack([each[rank] * noise for each in of_messages], axis=1)[exchanged]

    columns = {
        "session": np.zeros(number.size, dtype=np.int64),
        "step": number,
        "kind": [KINDS] * number.size,
        "payload_bytes": [SIZES] * number.size,
        "blocking": np.zeros((number.size, len(KINDS)), dtype=bool),
        "ready_s": [[None] * len(KINDS)] * number.size,
        "awaited_s": [None] * number.size,
        "issued_s": times(step.issued_s),
        "done_s": times(step.done_s),
    }
    return pl.DataFrame(columns, schema=dict(SPAN_SCHEMA))
