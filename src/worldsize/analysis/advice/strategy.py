"""What depends on the strategy: a faster one, its own overhead, and whether several workers pay at all."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl

from worldsize.analysis.advice.finding import (
    Advice,
    at_most,
    cell_name,
    measured,
    named,
    ratio_of_two,
    time_of,
)
from worldsize.analysis.advice.gains import (
    STEP,
    more_than,
    notable,
    without,
)
from worldsize.analysis.advice.rule import Candidate, Seen, candidate
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.commands import focused, train_command
from worldsize.analysis.headline import rate, scaling_row
from worldsize.analysis.numbers import estimate_text
from worldsize.analysis.statistics import reciprocal
from worldsize.analysis.steps import BLOCK
from worldsize.config.script import TUNED
from worldsize.results.records import Estimate
from worldsize.traits import BASELINE_STRATEGY, BUCKETED, OVERLAPPING

WORTH_A_CHANGE = 1.02
"""Ratio of two cells from which on the faster one is recommended: less is what two runs differ by anyway."""

IN_THIS_STUDY = "Measured in this study, block by block."
OVERHEAD = pl.col("wrapped_s") - pl.col("alone_s")
"""Of the frame that `_beside` makes."""


AVERAGED_ALIKE = (
    "They average the same gradients; they differ in which messages carry them, and in how much compute hides."
)
OTHER_SCRIPTS = "They are different scripts; the parts of their steps, in the report, say in what they differ."
LOSSY_AND_SLOWER = "Fewer bytes gain nothing where packing them costs the cores more than the link saves."


def strategy_choice(seen: Seen) -> Iterator[Candidate]:
    """An exact strategy of the study that is faster with the same world size and batch.

    A lossy one that is faster has a price: `fewer-bytes` names it (fewer_bytes.py).
    """
    if seen.settings.sweep:
        return  # trials are not timed in turn: blocks with the same number have nothing else in common
    groups: dict[tuple[int, int], list[CellAnalysis]] = {}
    for cell in seen.several:
        groups.setdefault((cell.world_size, cell.batch_size), []).append(cell)
    for (world_size, batch), cells in groups.items():
        best = max((cell for cell in cells if cell.traits.exact), key=rate, default=None)
        if best is None:
            continue
        slower = sorted(_slower(best, cells), key=lambda pair: pair[1].value, reverse=True)
        if not slower:
            continue
        worst, ratio = slower[0]
        alone = _not_faster_than_one(seen, best)
        same = f"{world_size} workers and b = {batch}"
        yield candidate(
            "strategy-choice",
            worst,
            finding=f"With {same}, {named(best)} is {estimate_text(ratio)} times as fast as {named(worst)}.",
            evidence=[ratio_of_two(f"Samples/s, {named(best)} ÷ {named(cell)}", value) for cell, value in slower],
            cause=_why(seen, slower),
            next_step=_in_place(best, [cell for cell, _ in slower]) + f"{alone}.",
            command=train_command(seen.settings, best),
            gain=measured(ratio, IN_THIS_STUDY, of=f" of {named(worst)}"),
        )


def _in_place(best: CellAnalysis, slower: list[CellAnalysis]) -> str:
    if best.program is not None and best.strategy.endswith(TUNED):
        variables = " ".join(f"{name}={value}" for name, value in best.program.environment.items())
        return f"Set these variables where the command is started: {variables}"
    return f"Use {named(best)} in place of {' or '.join(map(named, slower))}"


def _why(seen: Seen, slower: list[tuple[CellAnalysis, Estimate]]) -> str:
    if not seen.trains:
        return OTHER_SCRIPTS
    return AVERAGED_ALIKE if all(cell.traits.exact for cell, _ in slower) else LOSSY_AND_SLOWER


def _not_faster_than_one(seen: Seen, cell: CellAnalysis) -> str:
    """What must be said beside a recommendation of several workers that do not significantly beat one."""
    on_machine = (row for row in seen.analysis.on_machine if row.cell is cell)
    row = next(on_machine, None) or scaling_row(seen.analysis, cell)
    speedup = row.speedup.estimate if row and row.speedup else None
    faster = speedup is None or speedup.low is None or speedup.low > 1
    return "" if faster else "; it is not significantly faster than one worker, though"


def _slower(best: CellAnalysis, cells: list[CellAnalysis]) -> Iterator[tuple[CellAnalysis, Estimate]]:
    """Cells that the best one significantly beats, and by how much."""
    for cell in cells:
        if cell.strategy == best.strategy or not _same_threads(cell, best):
            continue
        ratio = _paired(cell, best)
        if ratio is not None and notable(ratio, 1) and ratio.value >= WORTH_A_CHANGE:
            yield cell, ratio


def _slower_than_one(seen: Seen) -> tuple[CellAnalysis, CellAnalysis, Estimate] | None:
    """The fastest configuration of several workers, the one worker that is significantly faster, and the speed-up."""
    if seen.settings.sweep:
        return None
    pay = seen.headline.pay if seen.headline else None
    if pay is None:
        return None
    gain, high = pay.fastest, pay.fastest.ratio.high
    return None if high is None or high >= 1 else (gain.cell, gain.baseline, gain.ratio)


def beside_one_worker(advice: Advice, seen: Seen) -> Advice:
    """The same advice; where it is about workers that are slower than one, with what it must bring to equal that."""
    found = _slower_than_one(seen)
    if found is None or advice.gain is None or advice.cell_id != found[0].id or not advice.gain.at_most:
        return advice
    _, alone, speedup = found
    needed = f"To equal {alone.id} it takes {estimate_text(reciprocal(speedup))} times."
    return replace(advice, gain=replace(advice.gain, basis=f"{advice.gain.basis} {needed}"))


def scaling_does_not_pay(seen: Seen) -> Iterator[Candidate]:
    """Several workers that are significantly slower than one, even in the fastest configuration."""
    found = _slower_than_one(seen)
    if found is None:
        return
    cell, alone, speedup = found
    yield candidate(
        "scaling-does-not-pay",
        cell,
        finding=f"The fastest of several workers, {cell_name(cell)}, is slower than {cell_name(alone)}.",
        evidence=[ratio_of_two(f"Speed-up over {alone.id}", speedup)],
        cause="What several workers gain in computing they lose in the rest of the step; other advice names where.",
        next_step="Train with one worker until that is mended.",
        command=train_command(seen.settings, alone),
        gain=measured(reciprocal(speedup), IN_THIS_STUDY),
        follows=True,
    )


@dataclass(frozen=True)
class Overhead:
    """What a strategy costs one worker, and the configuration that it weighs on."""

    wrapped: CellAnalysis
    alone: CellAnalysis
    more: Estimate
    """Seconds per step."""
    ratio: Estimate
    cell: CellAnalysis
    """The largest world with this strategy and local batch."""
    gain: Estimate


def wrapper_overhead(seen: Seen) -> Iterator[Candidate]:
    """A strategy that costs time around one worker already, where nothing is synchronised."""
    for found in _overheads(seen):
        wrapped, alone, cell = found.wrapped, found.alone, found.cell
        next_step, command = _lighter(seen, cell)
        yield candidate(
            "wrapper-overhead",
            cell,
            finding=f"{wrapped.strategy} around one worker, where nothing is sent, takes "
            f"{estimate_text(found.ratio)} times the step of {alone.id}.",
            evidence=[time_of(f"{wrapped.id} − {alone.id}, per step", found.more)],
            cause="The strategy itself takes time in each step: hooks, copies into buckets, work per gradient.",
            next_step=next_step,
            command=command,
            gain=at_most(
                found.gain,
                "Step ÷ (step − what the strategy costs one worker); assumes a strategy that costs nothing.",
                of=f" of {cell.id}",
            ),
        )


def _overheads(seen: Seen) -> Iterator[Overhead]:
    if seen.settings.sweep:
        return
    for wrapped in seen.cells:
        alone = seen.find(BASELINE_STRATEGY, 1, wrapped.batch_size)
        if wrapped.world_size > 1 or alone is None or wrapped is alone or not _same_threads(wrapped, alone):
            continue
        found, ratio = more_than(seen.blocks(wrapped), seen.blocks(alone), STEP), _paired(wrapped, alone)
        if found is None or not notable(ratio, 1) or not notable(found[0], 0):
            continue
        cell = _with_it(seen, wrapped)
        gain = without(_beside(seen.blocks(cell), seen.blocks(wrapped), seen.blocks(alone)), OVERHEAD)
        if notable(gain, 1) and gain.value >= WORTH_A_CHANGE:
            yield Overhead(wrapped, alone, found[0], ratio, cell, gain)


def _beside(blocks: pl.DataFrame, wrapped: pl.DataFrame, alone: pl.DataFrame) -> pl.DataFrame:
    """The blocks of a cell, with the steps of two others in the same blocks."""
    return blocks.join(wrapped.select(*BLOCK, STEP.alias("wrapped_s")), on=BLOCK).join(
        alone.select(*BLOCK, STEP.alias("alone_s")), on=BLOCK
    )


def _same_threads(cell: CellAnalysis, other: CellAnalysis) -> bool:
    return cell.threads_per_worker == other.threads_per_worker


def _paired(cell: CellAnalysis, other: CellAnalysis) -> Estimate | None:
    """Step ÷ step of two cells that were timed in turn; None if they were not."""
    ratio = cell.step_ratio(other)
    return ratio.estimate if ratio.paired else None


def _with_it(seen: Seen, wrapped: CellAnalysis) -> CellAnalysis:
    """The largest world with this strategy and local batch: there the overhead costs."""
    same = [c for c in seen.cells if (c.strategy, c.batch_size) == (wrapped.strategy, wrapped.batch_size)]
    return max(same, key=lambda cell: (cell is seen.focus, cell.world_size))


def _lighter(seen: Seen, cell: CellAnalysis) -> tuple[str, str | None]:
    """Another strategy, or larger buckets, to compare with."""
    if cell.traits.buckets:
        other = next(name for name in BUCKETED if name != cell.strategy)
        return (
            f"Compare it with {other}, around one worker too.",
            focused(seen.settings, cell, cell.strategy, other, baseline="both"),
        )
    return (
        f"Compare it with {OVERLAPPING[0]}, which works per bucket, not per gradient.",
        focused(seen.settings, cell, cell.strategy, OVERLAPPING[0], baseline="both"),
    )
