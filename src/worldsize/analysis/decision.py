"""Whether a study has answered what it was asked: how many workers, and which strategy (method.md §8)."""

from dataclasses import dataclass

from worldsize.analysis.advice.noise import is_hopeless, longer_text
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.drift import spread, why_apart
from worldsize.analysis.headline import Headline, headline
from worldsize.analysis.numbers import percent_text
from worldsize.analysis.pays import Workers
from worldsize.analysis.study import StudyAnalysis, once
from worldsize.results.records import Estimate

INDIFFERENT = 0.10
"""Another strategy that is at most this much faster than the named one, with 97.5 % confidence, changes no choice; how
much it may be is said. (An indifference zone: Bechhofer, A Single-Sample Multiple Decision Procedure for Ranking Means,
1954.)"""


@dataclass(frozen=True)
class Decision:
    """The answer, as far as there is one."""

    workers: Workers
    """`several` are faster, or `one` is, or they are `even`; `open` where the intervals allow more than that."""
    close: tuple[tuple[CellAnalysis, float], ...]
    """Cells not significantly slower than the fastest, and the share by which they may be faster: a small one."""
    doubtful: tuple[tuple[CellAnalysis, float], ...]
    """The same, by a share that would matter; infinite without an interval."""

    @property
    def decided(self) -> bool:
        """Whether both questions have an answer."""
        return self.workers != "open" and not self.doubtful


def decide(found: Headline) -> Decision | None:
    """What the intervals say; None where the fastest configuration was compared with nothing."""
    if found.pay is None:
        return None
    high, enough = found.pay.fastest.ratio.high, INDIFFERENT
    if high is not None and high < 1:  # which of several is fastest does not matter
        enough = max(enough, 1 / high - 1)
    rivals = [(cell, _faster(ratio.estimate)) for cell, ratio in found.rivals]
    return Decision(
        workers=found.pay.workers,
        close=tuple((cell, share) for cell, share in rivals if share <= enough),
        doubtful=tuple((cell, share) for cell, share in rivals if share > enough),
    )


@once
def decision(analysis: StudyAnalysis) -> Decision | None:
    """The answer of a study; None where its fastest configuration was compared with nothing, or none has numbers."""
    found = headline(analysis)
    return None if found is None else decide(found)


def is_decided(analysis: StudyAnalysis) -> bool | None:
    """Whether a study has its answer; None where it asks nothing: one cell, a sweep, no baseline."""
    found = None if analysis.sweeps else decision(analysis)
    return None if found is None else found.decided


def noise_text(analysis: StudyAnalysis, found: Headline) -> str:
    """In a sentence: how noisy the machine was, what did it, and how long an answer would take."""
    assert found.pay is not None, "only with a baseline there is something to decide"
    speedup = found.pay.fastest.ratio
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


def _faster(ratio: Estimate) -> float:
    """How much faster another cell may be, by samples/s of the fastest ÷ its own; infinite without an interval."""
    return float("inf") if ratio.low is None else 1 / ratio.low - 1
