"""Whether a study has answered what it was asked: how many workers, and which strategy (method.md §8)."""

from dataclasses import dataclass
from typing import Literal

from worldsize.analysis.advice.noise import is_hopeless, longer_text
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.drift import spread, why_apart
from worldsize.analysis.headline import Headline, headline
from worldsize.analysis.numbers import percent_text
from worldsize.analysis.statistics import includes
from worldsize.analysis.study import StudyAnalysis, once
from worldsize.results.records import Estimate

EVEN = 0.05
"""Several workers whose speed-up lies within this of 1, with 95 % confidence, gain too little to act on."""
INDIFFERENT = 0.10
"""Another strategy that is at most this much faster than the named one, with 97.5 % confidence, changes no choice; how
much it may be is said. (An indifference zone: Bechhofer, A Single-Sample Multiple Decision Procedure for Ranking Means,
1954.)"""

Workers = Literal["several", "one", "even", "open"]


@dataclass(frozen=True)
class Decision:
    """The answer, as far as there is one."""

    workers: Workers
    """`several` are faster, or `one` is, or they are `even`; `open` where the interval allows more than that."""
    close: tuple[tuple[CellAnalysis, float], ...]
    """Cells not significantly slower than the fastest, and the share by which they may be faster: a small one."""
    doubtful: tuple[tuple[CellAnalysis, float], ...]
    """The same, by a share that would matter; infinite without an interval."""

    @property
    def decided(self) -> bool:
        """Whether both questions have an answer."""
        return self.workers != "open" and not self.doubtful


def decide(found: Headline) -> Decision | None:
    """What the intervals say; None where the fastest configuration has no speed-up."""
    if found.scaling.speedup is None:
        return None
    speedup = found.scaling.speedup.estimate
    enough = INDIFFERENT
    if speedup.high is not None and speedup.high < 1:  # which of several is fastest does not matter
        enough = max(enough, 1 / speedup.high - 1)
    rivals = [(cell, _faster(ratio.estimate)) for cell, ratio in found.rivals]
    return Decision(
        workers=_workers(speedup),
        close=tuple((cell, share) for cell, share in rivals if share <= enough),
        doubtful=tuple((cell, share) for cell, share in rivals if share > enough),
    )


@once
def decision(analysis: StudyAnalysis) -> Decision | None:
    """The answer of a study; None where its fastest configuration has no speed-up, or none has numbers."""
    found = headline(analysis)
    return None if found is None else decide(found)


def is_decided(analysis: StudyAnalysis) -> bool | None:
    """Whether a study has its answer; None where it asks nothing: one cell, a sweep, no speed-up."""
    found = None if analysis.sweeps else decision(analysis)
    return None if found is None else found.decided


def noise_text(analysis: StudyAnalysis, found: Headline) -> str:
    """In a sentence: how noisy the machine was, what did it, and how long an answer would take."""
    assert found.scaling.speedup is not None, "only with a speed-up there is something to decide"
    speedup = found.scaling.speedup.estimate
    widths = [(cell.id, width) for cell in analysis.cells if (width := spread(list(cell.blocks.values()))) is not None]
    noisy = ""
    if widths:
        name, width = max(widths, key=lambda each: each[1])
        why = why_apart(analysis.cells)
        noisy = f"Blocks of {name} are {percent_text(width)} apart. {why}"
    if any(cell.batches_change for cell in analysis.cells):
        return f"{noisy} To decide it, give all timed steps batches of one size.".strip()
    if is_hopeless(analysis, speedup):
        return f"{noisy} To decide it, measure on a quiet machine: with this noise more time would hardly help.".strip()
    more = longer_text(analysis, found.fastest, speedup)
    return f"{noisy} To decide it, measure longer: {more}, if the noise stays as it is.".strip()


def _workers(speedup: Estimate) -> Workers:
    if _apart(speedup) <= EVEN:
        return "even"
    if includes(speedup, 1):
        return "open"
    return "several" if speedup.value > 1 else "one"


def _apart(ratio: Estimate) -> float:
    """How far from 1 a ratio may be, as a share; infinite without an interval."""
    if ratio.low is None or ratio.high is None:
        return float("inf")
    return max(ratio.high, 1 / ratio.low) - 1


def _faster(ratio: Estimate) -> float:
    """How much faster another cell may be, by samples/s of the fastest ÷ its own; infinite without an interval."""
    return float("inf") if ratio.low is None else 1 / ratio.low - 1
