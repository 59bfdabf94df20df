"""What is known of a cell on both sides, as numbers per run; every ratio is B ÷ A (method.md §11).

Of a run: step times as they are, relative to a cell of one worker, and normalised; of two runs: ratios.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from worldsize.analysis.baseline import any_baselines
from worldsize.analysis.breakdown import COMPUTE_PARTS
from worldsize.analysis.compare.blocks import (
    blocks_of,
    by_steps,
    normalised_blocks,
    reference_blocks,
    relative_blocks,
    speedup,
    step_blocks,
    steps_of,
    unpaired_ratio,
)
from worldsize.analysis.compare.over_runs import Sample, exponential
from worldsize.analysis.compare.sides import CellRuns, Pair, has_other_batch, sample
from worldsize.analysis.statistics import Blocks, log_mean, reciprocal, scaled
from worldsize.results.baseline_records import StoredBlock, StoredCell, StoredRun
from worldsize.results.comparison_records import CellComparison, Quantity, RunError
from worldsize.results.records import Estimate

PART_VALUES: dict[str, Callable[[StoredBlock], float | None]] = {
    "exposed_sync_s": lambda block: block.exposed_sync_s,
    "data_wait_s": lambda block: block.data_wait_s,
    "compute_s": lambda block: block.compute_s,
}
SINGLE_NUMBERS = ("peak_memory_bytes", "test_accuracy", "test_loss")
"""One number per run: with one run a side their ratio has no interval."""
UNTIMED = "no normalised ratio: the short computation was not timed in all blocks of all runs"
PEAK_OF_SIDE = 0.06
"""Standard deviation of the logarithm of a peak of a host's memory, of what all runs of a side have in common. Where
the pieces of a heap come to lie depends on the length of a path: all runs of one side took 88 MiB and all of the other
72, which is two tensors more. 40 equal studies, each in a folder of its own: 8.0, 2.5 and 4.9 % in three cells with few
large tensors; 14 of ResNet-18: 1.3 and 1.8 %."""
SMALL_PART = 0.01
"""Share of a step below which a part that is 0 in some blocks is as good as none."""
OTHERS = (*PART_VALUES, *SINGLE_NUMBERS)
"""What is tested by itself; step time, throughput, speed-up and efficiency are tested with the cell."""


def common_baseline(cell_id: str, runs: Sequence[StoredRun]) -> str | None:
    """The cell of one worker that a cell can be held against in all these runs; None if there is none.

    With the same local batch, else with the same global one; without a wrapper, else in the same strategy. As a
    speed-up, it is withheld where threads differ or there are more of them than cores (method.md §6, §8).
    """
    first, *others = [_baselines(cell_id, run) for run in runs]
    return next((name for name in first if all(name in each for each in others)), None)


def _baselines(cell_id: str, run: StoredRun) -> list[str]:
    """The cells of a run that may be the baseline, best first."""
    cell = next(each for each in run.cells if each.id == cell_id)
    crowded = not run.asked.allow_oversubscribed

    def fits(other: StoredCell) -> bool:
        if not relative_blocks(cell, other) or (crowded and _oversubscribed((cell, other))):
            return False
        return _threads(cell) == _threads(other)

    return [each.id for each in any_baselines(cell, run.cells) if fits(each)]


def _oversubscribed(cells: Iterable[StoredCell]) -> bool:
    return any(cell.placement is not None and cell.placement.oversubscribed for cell in cells)


def _threads(cell: StoredCell) -> int | None:
    return cell.placement.threads_per_worker if cell.placement else None


@dataclass(frozen=True)
class Numbers:
    """One quantity of one cell: logarithms per run, what is printed of either side, and what one run a side knows."""

    logs: Sample
    within: Callable[[], Estimate | None]
    old: float | None = None
    new: float | None = None
    tested_only: bool = False
    """Whether the logarithms are not those of the number itself, so that their ratio is not shown."""

    def ratio(self) -> Estimate | None:
        """Without the spread between runs: of one run a side by its blocks, else without an interval."""
        if self.logs.runs == (1, 1):
            return self.within()
        if min(self.logs.runs) == 0:
            return None
        value = exponential(float(np.nanmean(self.logs.b) - np.nanmean(self.logs.a)))
        return Estimate(value=value, samples=min(self.logs.runs))


@dataclass
class Draft:
    """A cell of both sides while it is compared: its numbers first, ratios when those of all cells are there."""

    cell: CellComparison
    pair: Pair
    name: str
    """The cell's, within its part."""
    a: CellRuns
    b: CellRuns
    baseline: str | None = None
    """The name of its baseline cell within the part."""
    numbers: dict[str, Numbers] = field(default_factory=dict)
    ratios: dict[str, Estimate] = field(default_factory=dict)
    errors: dict[str, RunError] = field(default_factory=dict)

    def gather(self) -> None:
        """Take its numbers from the runs."""
        self.numbers.update(_others(self.a, self.b))
        if not all(self.cell.measured):
            return
        self.numbers["plain"] = _blocks_numbers([self.a, self.b], [step_blocks, step_blocks])
        if all(reference_blocks(cell) for side in (self.a, self.b) for cell in side.measured):
            for name, take in (("normalised", normalised_blocks), ("reference", reference_blocks)):
                self.numbers[name] = _blocks_numbers([self.a, self.b], [take, take])
        elif any(block.reference_s for side in (self.a, self.b) for cell in side.measured for block in cell.blocks):
            self.cell.remark = "; ".join(filter(None, (self.cell.remark, UNTIMED)))
        self.baseline = common_baseline(self.name, [*self.a.measured_runs, *self.b.measured_runs])
        if self.baseline is not None:
            self.cell.baseline = self.pair.named(self.baseline)
            relative = [_over(CellRuns.of(self.baseline, side.runs), side) for side in (self.a, self.b)]
            self.numbers["relative"] = _blocks_numbers([self.a, self.b], relative)

    def fill(self) -> None:
        """Put ratios and quantities into the cell."""
        cell = self.cell
        for name, numbers in self.numbers.items():
            ratio = numbers.ratio() if name not in self.ratios else None
            if ratio is not None:
                self.ratios[name] = ratio
        cell.plain, cell.plain_error = self.ratios.get("plain"), self.errors.get("plain")
        cell.relative, cell.relative_error = self.ratios.get("relative"), self.errors.get("relative")
        cell.normalised, cell.normalised_error = self.ratios.get("normalised"), self.errors.get("normalised")
        cell.reference = self.ratios.get("reference")
        if cell.plain is not None:
            cell.quantities += _rates(self.a, self.b, cell.plain)
        if cell.normalised is not None:
            logs = self.numbers["normalised"].logs
            old, new = (exponential(float(np.nanmean(each))) for each in (logs.a, logs.b))
            cell.quantities.append(Quantity(name="normalised_step", old=old, new=new, ratio=cell.normalised))
        cell.quantities += [
            Quantity(name=name, old=each.old, new=each.new, ratio=None if each.tested_only else self.ratios.get(name))
            for name, each in self.numbers.items()
            if name in OTHERS
        ]
        if cell.relative is not None and self.baseline is not None:
            bases = [CellRuns.of(self.baseline, side.runs) for side in (self.a, self.b)]
            cell.quantities += _scaling((self.a, bases[0]), (self.b, bases[1]), cell.relative)


def _over(base: CellRuns, side: CellRuns) -> Callable[[StoredCell], Blocks]:
    """Step time over that of the baseline cell of the same run."""
    bases = {id(cell): other for cell, other in zip(side.cells, base.cells, strict=True)}

    def blocks(cell: StoredCell) -> Blocks:
        other = bases[id(cell)]
        return {} if other is None else relative_blocks(cell, other)

    return blocks


def _blocks_numbers(sides: Sequence[CellRuns], takes: Sequence[Callable[[StoredCell], Blocks]]) -> Numbers:
    """A quantity that has a value in each block: of a run the logarithm of its mean over the steps (method.md §11)."""

    def value(take: Callable[[StoredCell], Blocks]) -> Callable[[StoredCell], float | None]:
        return lambda cell: exponential(log_mean(found, steps_of(cell))) if (found := take(cell)) else None

    def within() -> Estimate | None:
        (a, b), (take_a, take_b) = (side.measured[0] for side in sides), takes
        blocks = by_steps(take_b(b), b), by_steps(take_a(a), a)
        return unpaired_ratio(*blocks) if all(blocks) else None

    a, b = (side.values(value(take)) for side, take in zip(sides, takes, strict=True))
    variances = [each for side, take in zip(sides, takes, strict=True) for each in _open_variances(side, take)]
    left_open = float(np.sqrt(np.mean(variances))) if variances else None
    return Numbers(replace(sample(a, b), left_open=left_open), within)


def _open_variances(side: CellRuns, take: Callable[[StoredCell], Blocks]) -> Iterator[float]:
    """Of each run with several blocks the variance of its mean logarithm, as if its blocks were independent."""
    for cell in side.measured:
        blocks = list(take(cell).values())  # of one value each
        if len(blocks) > 1:
            yield float(np.var(np.log(np.concatenate(blocks)), ddof=1)) / len(blocks)


def _others(a: CellRuns, b: CellRuns) -> Iterator[tuple[str, Numbers]]:
    """Parts of a step, as means per step, and single numbers, as far as a side has them."""
    for name, take in PART_VALUES.items():
        old, new = (_mean([_part(cell, name) for cell in side.measured]) for side in (a, b))
        if old is not None and new is not None:
            beside_s = _beside_s(a, b, take)
            found = _blocks_numbers([a, b], [_blocks_by(take, beside_s)] * 2)
            yield name, Numbers(found.logs, found.within, old, new, tested_only=beside_s > 0)
    for name in SINGLE_NUMBERS:
        values = [[_number(cell, name) for cell in side.cells] for side in (a, b)]
        old, new = (_mean(each) for each in values)
        if old is None and new is None:
            continue
        ratio = Estimate(value=new / old, samples=1) if old and new else None
        logs = sample(*values)
        if name == "peak_memory_bytes" and any(_on_host(cell) for cell in a.measured):
            logs = replace(logs, of_side=PEAK_OF_SIDE)
        yield name, Numbers(logs, _constant(ratio), old, new)


def _on_host(cell: StoredCell) -> bool:
    return cell.placement is None or cell.placement.device == "cpu"


def _blocks_by(take: Callable[[StoredBlock], float | None], beside_s: float) -> Callable[[StoredCell], Blocks]:
    def value(block: StoredBlock) -> float | None:
        part = take(block)
        return None if part is None else part + beside_s

    return lambda cell: blocks_of(cell, value)


def _beside_s(a: CellRuns, b: CellRuns, take: Callable[[StoredBlock], float | None]) -> float:
    """What is added to a part before its logarithm is taken (s): a share of the step where a block has none of it.

    A GPU that never waits for data has no data wait at all: from 0 to 20 ms there is no ratio, and a change.
    """
    parts = [take(block) for side in (a, b) for cell in side.measured for block in cell.blocks]
    if all(part is None or part > 0 for part in parts) or any(part is not None and part < 0 for part in parts):
        return 0.0  # a damaged baseline may hold what is below 0: that has no logarithm either
    step_s = _mean([cell.summary.step_s.value for cell in a.measured if cell.summary is not None])
    return SMALL_PART * (step_s or 0.0)


def _constant(ratio: Estimate | None) -> Callable[[], Estimate | None]:
    return lambda: ratio


def _number(cell: StoredCell | None, name: str) -> float | None:
    return None if cell is None else getattr(cell, name)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) / len(known) if known else None


def _part(cell: StoredCell, name: str) -> float | None:
    if cell.summary is None or (name == "exposed_sync_s" and cell.summary.comm_s is None):
        return None
    parts = cell.summary.parts_s
    if name != "compute_s":
        return parts.get(name)
    return sum(parts[part] for part in COMPUTE_PARTS) if parts.keys() >= set(COMPUTE_PARTS) else None


def _rates(a: CellRuns, b: CellRuns, step: Estimate) -> list[Quantity]:
    """Where a step holds as many samples in all runs, throughput is as much smaller as it is longer."""
    sums = [[cell.summary for cell in side.measured if cell.summary is not None] for side in (a, b)]
    if not all(sums):
        return []
    step_s = [_mean([each.step_s.value for each in side]) for side in sums]
    rate = [_mean([each.samples_per_s.value for each in side]) for side in sums]
    ratio: Estimate | None = reciprocal(step)
    if has_other_batch(a, b):
        ratio = Estimate(value=rate[1] / rate[0], samples=step.samples) if rate[0] and rate[1] else None
    return [
        Quantity(name="step_s", old=step_s[0], new=step_s[1], ratio=step),
        Quantity(name="samples_per_s", old=rate[0], new=rate[1], ratio=ratio),
    ]


def _scaling(a: tuple[CellRuns, CellRuns], b: tuple[CellRuns, CellRuns], relative: Estimate) -> list[Quantity]:
    """Speed-up and efficiency over the baseline cell; the ratio of either is that of the relative step times."""
    old, new = (
        _mean([speedup(cell, base) for cell, base in zip(side.cells, bases.cells, strict=True) if cell and base])
        for side, bases in (a, b)
    )
    cell, base = a[0].measured[0], a[1].measured[0]
    n, ratio = cell.world_size, reciprocal(relative)
    if old and new and len(a[0].measured) == len(b[0].measured) == 1:  # of several runs logarithms are compared
        ratio = scaled(ratio, new / old / ratio.value)
    weak = cell.batch_size == base.batch_size
    found = [Quantity(name="scaled_speedup" if weak else "strong_speedup", old=old, new=new, ratio=ratio)]
    if n > 1 and old is not None and new is not None:
        found.append(Quantity(name="efficiency", old=old / n, new=new / n, ratio=ratio))
    return found
