"""Simulated studies whose true ratios are known: correlated blocks, launches that differ, and both ways to end."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from worldsize.analysis.cells import CellAnalysis, side_by_side
from worldsize.analysis.dependence import Launches
from worldsize.analysis.levels import levels, widening
from worldsize.analysis.racing import log_ratios, relative_half
from worldsize.analysis.scaling import scaling_rows
from worldsize.analysis.statistics import Blocks, half_width, includes, mean_estimate
from worldsize.results.records import CellSummary, Estimate
from worldsize.study.pace import LAUNCH_BLOCKS, LAUNCHES, MIN_BLOCKS
from worldsize.study.precision import IN_A_ROW, Precision

BASELINE_S, STEP_S = 0.1, 0.11
BLOCK_STEPS = 10


@dataclass(frozen=True)
class World:
    """What is simulated; shares are standard deviations of logarithms."""

    cells: int
    """One worker, and others of two workers that are all alike, so that which one seems fastest is luck."""
    blocks: int
    """Of each cell; at most, where precision ends the study."""
    correlation: float = 0.0
    """Between neighbouring blocks of a cell: ρ of an autoregression."""
    spread: float = 0.0
    """Of launches."""
    noise: float = 0.015
    """Of a block."""
    drift: float = 0.03
    """What the speed of the machine, the same for all cells, changes by from block to block."""
    before: tuple[int, ...] = (2, 2)
    """Blocks of the launches before the last one: these, where a budget has no room for more, or `doubling` ones."""
    aim: float | None = None
    """The half width of all ratios that ends a study; None is a fixed number of blocks."""
    tails: float = 0.0
    """Share of steps that take 1 + 2·Pareto(2.5) times as much longer; a block has BLOCK_STEPS."""


def doubling(blocks: int) -> tuple[int, ...]:
    """Blocks of the launches before the last one of so many, where launching takes little of a budget (pace.py)."""
    starts = [LAUNCH_BLOCKS * number for number in range(LAUNCHES)]
    starts += [2**power for power in range(blocks.bit_length()) if LAUNCH_BLOCKS * LAUNCHES <= 2**power < blocks]
    return tuple(np.diff(starts).tolist())


@dataclass
class Held:
    """How often intervals of simulated studies held the truth."""

    ratios: list[bool] = field(default_factory=list)
    headlines: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    """Half widths of the ratios."""
    of_student: list[float] = field(default_factory=list)
    """Half widths ÷ those of Student's interval of the blocks' paired log ratios."""
    blocks: list[int] = field(default_factory=list)


class Simulated(NamedTuple):
    """The samples of a study and in which launch they were taken."""

    samples: dict[str, Blocks]
    launches: dict[str, Launches]


def simulate(world: World, generator: np.random.Generator) -> Simulated:
    """One study; all that is random is drawn from `generator`."""
    k, n, rho = world.cells, world.blocks, world.correlation
    noise = generator.standard_normal((k, n))
    for block in range(1, n):
        noise[:, block] = rho * noise[:, block - 1] + np.sqrt(1 - rho**2) * noise[:, block]
    launch = np.repeat(np.arange(len(world.before) + 1), [*world.before, max(0, n - sum(world.before))])[:n]
    kept = generator.standard_normal((k, len(world.before) + 1))[:, launch]
    speed = np.cumsum(generator.standard_normal(n))
    true_s = np.array([BASELINE_S] + [STEP_S] * (k - 1))
    times = true_s[:, np.newaxis] * np.exp(world.noise * noise + world.spread * kept + world.drift * speed)
    if world.tails:
        longer = generator.binomial(BLOCK_STEPS, world.tails, (k, n)) * (1 + 2 * generator.pareto(2.5, (k, n)))
        times *= 1 + longer / BLOCK_STEPS
    names = [f"cell{number}" for number in range(k)]
    return Simulated(
        {name: {(0, block): times[row, block : block + 1] for block in range(n)} for row, name in enumerate(names)},
        {name: {(0, block): int(launch[block]) for block in range(n)} for name in names},
    )


def hold(world: World, generator: np.random.Generator, studies: int) -> Held:
    """What the analysis makes of so many studies, as a report does it."""
    held = Held()
    for _ in range(studies):
        samples, launches = _ended(world, simulate(world, generator))
        baseline, *others = _analysed(samples, launches)
        for other in others:
            ratio = baseline.step_ratio(other).estimate
            held.ratios.append(includes(ratio, BASELINE_S / STEP_S))
            held.widths.append(half_width(ratio) or 0.0)
            student = mean_estimate(log_ratios(baseline.blocks, other.blocks))
            held.of_student.append(held.widths[-1] / (student.high - student.value))  # type: ignore[operator]
        rows = scaling_rows([baseline, *others], allow_oversubscribed=True)
        shown = {row.cell.id: row.speedup.estimate for row in rows if row.speedup is not None}
        fastest = max(shown.values(), key=lambda each: each.value)
        held.headlines.append(includes(fastest, 2 * BASELINE_S / STEP_S))
        held.blocks.append(len(baseline.blocks))
    return held


def share(found: Iterable[bool]) -> float:
    """How many of them are true."""
    return float(np.mean(list(found)))


def _ended(world: World, study: Simulated) -> Simulated:
    """The study up to where its ratios are known as narrowly as is asked; what a budget looks at decides."""
    if world.aim is None:
        return study
    precision, last = Precision(world.aim), world.blocks - 1

    def narrow(blocks: int) -> bool:
        return precision.narrow(_widest(_until(study, blocks)), blocks)

    # Of two narrow looks in a row one has an even number, so the others are needed beside those alone.
    assert IN_A_ROW == 2
    for blocks in range(MIN_BLOCKS + MIN_BLOCKS % 2, last + 1, 2):
        if narrow(blocks):
            if blocks > MIN_BLOCKS and narrow(blocks - 1):
                return _until(study, blocks)
            if blocks < last and narrow(blocks + 1):
                return _until(study, blocks + 1)
    return study


def _widest(study: Simulated) -> float:
    """The largest half width of the ratios, as a budget looks at them."""
    fitted = levels(study.samples, study.launches, most_resamples=0)
    baseline, *others = fitted
    return max(
        relative_half(study.samples[baseline], study.samples[name]) * widening(fitted[baseline], fitted[name])
        for name in others
    )


def _until(study: Simulated, blocks: int) -> Simulated:
    samples: dict[str, Blocks] = {
        name: {key: times[key] for key in times if key[1] < blocks} for name, times in study.samples.items()
    }
    return Simulated(samples, {name: {key: own[key] for key in samples[name]} for name, own in study.launches.items()})


def _analysed(samples: dict[str, Blocks], launches: dict[str, Launches]) -> list[CellAnalysis]:
    """The cells as a report has them, the first of one worker."""
    cells = []
    for number, (name, blocks) in enumerate(samples.items()):
        strategy, size = (name, 2) if number else ("single", 1)
        found = CellAnalysis(name, strategy, size, 32, "complete", blocks=blocks, launches=launches[name])
        # Steps of a second, until their levels are known.
        second, rate = (Estimate(value=value, samples=1) for value in (1.0, float(found.global_batch)))
        summary = CellSummary(step_s=second, samples_per_s=rate, parts_s={}, timed_steps=1, blocks=1)
        cells.append(replace(found, summary=summary))
    return side_by_side(cells)
