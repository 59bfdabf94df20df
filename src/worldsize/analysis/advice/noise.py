"""Intervals that are too wide to say anything, and how many steps would make them narrow enough."""

import shlex
from collections.abc import Iterator
from math import ceil, log, sqrt

import polars as pl
from scipy.special import stdtrit

from worldsize.analysis.advice.batch import rate_ratio
from worldsize.analysis.advice.finding import Evidence, Gain, cell_name, ratio_of_two
from worldsize.analysis.advice.gains import EXPOSED, MOSTLY, notable, part
from worldsize.analysis.advice.rule import Candidate, Seen, candidate
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.commands import by_steps, study_command, sweep_command
from worldsize.analysis.drift import why_apart
from worldsize.analysis.numbers import percent_text
from worldsize.analysis.statistics import LEVEL, half_width, includes
from worldsize.analysis.study import StudyAnalysis
from worldsize.results.records import Estimate

TOO_NOISY = 0.10
"""Half width of a ratio's interval, as a share of it, above which no cause is named: the machine's noise is then as
large as the losses that the causes explain."""
HIDES_THE_LIMIT = "too little to say what limits it"
AIM = TOO_NOISY / 2
"""What to aim at: a width is itself known to a half only."""
NEARER = 0.8
"""Half width that tells a ratio from 1 ÷ its distance from 1: somewhat less, for a width is itself not known well."""
FEWEST_BLOCKS = 5
MAX_BLOCKS = 100_000
MOST_ADVISED_S = 1800.0
"""Who would need more time than this, half an hour, needs another machine, or a quiet one."""
ALIKE = "Give all timed steps batches of one size: more time would only average over other batches."
UNTIMED = 1.5
"""Length of a study ÷ that of its timed steps, about."""


def too_noisy(seen: Seen) -> Iterator[Candidate]:
    """A speed-up, or a comparison of batches, whose interval is wider than what it should tell."""
    if seen.settings.sweep:
        yield from _noisy_sweeps(seen)
        return
    found = seen.headline
    if found is None or found.scaling.speedup is None or found.scaling.baseline is None:
        return
    ratio, cell = found.scaling.speedup.estimate, found.fastest
    if _is_noisy(ratio):
        steps = steps_needed(ratio, _block_steps(cell))
        hopeless = is_hopeless(seen.analysis, ratio)
        command = study_command(seen.settings) if hopeless else _longer(seen, ratio, steps)
        why = "too little to compare it" if _limited_anyway(seen, cell, ratio) else HIDES_THE_LIMIT
        words = f"The speed-up of {cell_name(cell)}", why, f"Speed-up over {found.scaling.baseline.id}"
        yield _candidate(seen, cell, ratio, words, (steps, command))


def _longer(seen: Seen, ratio: Estimate, steps: int) -> str | None:
    """The same study with more time, or more steps where these were what was asked for.

    One that its budget has ended goes on, so that nothing is measured twice.
    """
    if seen.settings.budget is None:
        return study_command(by_steps(seen.settings), steps=steps)
    budget = budget_text(seconds_needed(seen.analysis, ratio))
    if not _goes_on(seen.analysis):
        return study_command(seen.settings, budget=budget, steps=None)
    return shlex.join(["worldsize", "study", *_resumed(seen.analysis), "--budget", budget])


def _goes_on(analysis: StudyAnalysis) -> bool:
    """Whether a larger budget would be used for more of the same run (study/resuming.py), by a command as it stands."""
    asked = analysis.run.study.asked
    if asked.script or asked.evaluate == "end":  # a script may have words that its run folder does not keep
        return False
    return any(cell.record is not None and cell.record.ended_by == "budget" for cell in analysis.cells)


def _resumed(analysis: StudyAnalysis) -> tuple[str, ...]:
    """The flags with which its run goes on."""
    return "--resume", "--out", str(analysis.run.folder)


def _noisy_sweeps(seen: Seen) -> Iterator[Candidate]:
    for sweep in seen.analysis.sweeps:
        timed = [row.cell for row in sweep.rows if row.cell.summary]
        if len(timed) < 2:
            continue
        first, last = timed[0], timed[-1]
        ratio = rate_ratio(last, first, in_turn=False)
        if _is_noisy(ratio):
            steps = steps_needed(ratio, _block_steps(last))
            longer = {} if is_hopeless(seen.analysis, ratio) else {"epochs": None, "steps": steps}
            command = sweep_command(seen.settings, first, **longer)
            label = f"Samples/s, b = {last.batch_size:,} ÷ b = {first.batch_size:,}"
            what = f"What {sweep.strategy} gains from larger batches", "too little to choose one"
            yield _candidate(seen, last, ratio, (*what, label), (steps, command))


def _candidate(
    seen: Seen, cell: CellAnalysis, ratio: Estimate, words: tuple[str, str, str], remedy: tuple[int, str | None]
) -> Candidate:
    what, why, label = words
    steps, command = remedy
    width, changing = half_width(ratio), [each for each in seen.analysis.cells if each.batches_change]
    if changing:
        next_step, gain, command = ALIKE, None, None
    elif is_hopeless(seen.analysis, ratio):
        next_step, gain = "Time it again on a quiet machine: with this noise more steps would hardly help.", None
    else:
        next_step, gain = f"Time {steps:,} steps per cell, on a quiet machine.", _gain(ratio)
    known = "is not known: it was timed in one block" if width is None else f"is known to ±{percent_text(width)} only"
    return candidate(
        "too-noisy",
        cell,
        finding=f"{what} {known}, {why}.",
        evidence=_evidence(seen, cell, (label, ratio), steps),
        cause=why_apart(changing) if changing else _cause(seen, ratio),
        next_step=next_step,
        command=command,
        gain=gain,
        everywhere=seen.settings.sweep,  # what is not known of a sweep concerns all its batches
        first=not _limited_anyway(seen, cell, ratio),
        doubt=True,
    )


def _gain(ratio: Estimate) -> Gain:
    if half_width(ratio) is None:
        return Gain(
            "a 95 % interval, where there is none", "How wide it is depends on noise that one block cannot show."
        )
    return Gain(
        f"a 95 % interval of about ±{percent_text(aim_of(ratio))}",
        "Its width falls with the square root of the number of blocks, if the noise stays as it was.",
    )


def _limited_anyway(seen: Seen, cell: CellAnalysis, ratio: Estimate) -> bool:
    """Whether a part of the step is significantly larger than what the noise may hide: then the limit is known."""
    width = half_width(ratio)
    return _named(seen, cell) or (width is not None and _largest_above(seen, cell, width))


def _named(seen: Seen, cell: CellAnalysis) -> bool:
    """Whether what most is lost to is known with 95 % confidence: it is to be mended first, however noisy the ratio is.

    A rank, long steps (which are much of the noise themselves), or a part that is more than half of the step.
    """
    slow = seen.slow_ranks(cell)
    found = (slow is not None and slow.explains) or seen.stall(cell) is not None
    return found or _largest_above(seen, cell, MOSTLY)


def _largest_above(seen: Seen, cell: CellAnalysis, least: float) -> bool:
    """Whether a part that only holds the step up is significantly more than this share of it."""
    held_up = ("data_wait_s", "copy_s", *(() if seen.trains else ("other_s",)))
    values = (EXPOSED, *map(pl.col, held_up))
    parts = (part(seen.blocks(cell), value) for value in values)
    return any(notable(found.share, least) for found in parts if found is not None)


def steps_needed(ratio: Estimate, block_steps: int) -> int:
    """Timed steps after which a ratio's interval is about as narrow as `aim_of`."""
    return blocks_needed(ratio) * block_steps


def aim_of(ratio: Estimate) -> float:
    """The half width to aim at: one that tells the ratio from 1 where that is open, else AIM."""
    return max(AIM, NEARER * abs(log(ratio.value))) if includes(ratio, 1) else AIM


def blocks_needed(ratio: Estimate) -> int:
    """Blocks after which a ratio's interval is about as narrow as `aim_of`, if the noise stays as it is.

    The width goes with Student's quantile over the root of the number of blocks. Without an interval: the fewest
    blocks that give one to be believed.
    """
    width = half_width(ratio)
    if width is None:
        return FEWEST_BLOCKS

    def relative(blocks: int) -> float:
        return float(stdtrit(blocks - 1, (1 + LEVEL) / 2)) / sqrt(blocks)

    wanted = aim_of(ratio) / width * relative(max(2, ratio.samples))
    low, high = FEWEST_BLOCKS, MAX_BLOCKS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if relative(middle) <= wanted else (middle + 1, high)
    return low


def is_hopeless(analysis: StudyAnalysis, ratio: Estimate) -> bool:
    """Whether no time that a person would spend makes it known: half an hour, or what was spent twice."""
    return seconds_needed(analysis, ratio) > max(MOST_ADVISED_S, 2 * _spent_s(analysis))


def seconds_needed(analysis: StudyAnalysis, ratio: Estimate) -> float:
    """How long a study would take that knows a ratio as narrowly as `aim_of`: more blocks of all its cells."""
    more = blocks_needed(ratio) / max(1, ratio.samples)
    least = 2.0 if _goes_on(analysis) else 1.0  # with hardly more time it could not launch its cells again
    return max(least, more) * _spent_s(analysis)


def _spent_s(analysis: StudyAnalysis) -> float:
    """How long a study took, about."""
    budget_s = analysis.run.study.asked.budget_s
    timed_s = sum(c.summary.timed_steps * c.summary.step_s.value for c in analysis.cells if c.summary)
    return budget_s if budget_s is not None else UNTIMED * timed_s


def longer_text(analysis: StudyAnalysis, cell: CellAnalysis, ratio: Estimate) -> str:
    """What makes a study know a ratio of this cell: flags that give more time or steps, or the command that goes on."""
    asked = analysis.run.study.asked
    if asked.budget is None:
        steps = steps_needed(ratio, _block_steps(cell))
        if analysis.record.settings is None:
            return f"{steps:,} timed steps in each run of your script"
        return f"--steps {steps}" + (" in place of --epochs, in another --out" if asked.epochs is not None else "")
    command = ("worldsize", "study", *_resumed(analysis)) if _goes_on(analysis) else ()
    return shlex.join([*command, "--budget", budget_text(seconds_needed(analysis, ratio))])


def budget_text(seconds: float) -> str:
    """A time as --budget takes it."""
    return f"{ceil(seconds)}s" if seconds < 100 else f"{ceil(seconds / 60)}min"


def _block_steps(cell: CellAnalysis) -> int:
    """Timed steps in a block of a cell."""
    summary = cell.summary
    return max(1, round(summary.timed_steps / summary.blocks)) if summary else 1


def _is_noisy(ratio: Estimate) -> bool:
    width = half_width(ratio)
    return width is None or width > TOO_NOISY


def _evidence(seen: Seen, cell: CellAnalysis, ratio: tuple[str, Estimate], steps: int) -> Iterator[Evidence]:
    yield ratio_of_two(*ratio)
    if cell.summary is not None:
        timed, blocks = cell.summary.timed_steps, cell.summary.blocks
        yield Evidence("Timed steps of the cell, in blocks", f"{timed:,} in {blocks:,}", timed, "count")
    seconds = seconds_needed(seen.analysis, ratio[1])
    minutes = f"{ceil(seconds / 60):,} min"
    yield Evidence(f"Time for {steps:,} steps of all its cells, about", minutes, seconds, "s")


def _cause(seen: Seen, ratio: Estimate) -> str:
    codes = {warning.code for _, warning in seen.analysis.warnings}
    if ratio.low is None:
        return "Steps of one block are not independent of each other, and the machine may drift between cells."
    if "drift" in codes:
        return 'The machine drifted while it was measured (the warning "drift" says what went with it).'
    if "busy-machine" in codes:
        return 'Other work was on the machine when the study began (the warning "busy-machine").'
    return f"{ratio.samples:,} blocks are few for steps that vary as much as these."
