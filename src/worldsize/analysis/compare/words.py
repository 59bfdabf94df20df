"""What a comparison says in words: the verdict, and what its ratios do not know."""

import math
from collections import Counter

from worldsize.analysis.compare.over_runs import LEAST_RUNS
from worldsize.analysis.numbers import estimate_text
from worldsize.config import CompareSettings, JudgeBy
from worldsize.results.comparison_records import CellComparison, ComparisonRecord, Verdict

JUDGED: tuple[Verdict, ...] = ("slower", "faster", "indistinguishable", "not known")
ONE_RUN = (
    "One run on a side: how far two runs of the same commit lie apart is not known. Intervals are those of the blocks "
    "within the runs, no difference is called a change, and the gate can fail on no step time. Give at least two runs "
    "a side: worldsize compare A1,A2 B1,B2"
)
RUNS = (
    "The unit is the run: intervals know of what differs from run to run, and of no drift of the machine between all "
    "runs of A and all of B. What is told apart is so over all cells at once: equal sides give an alarm of any kind "
    "once in twenty comparisons (Holm)."
)
RELATIVE = (
    "Relative: step time over that of the baseline cell of the same run, block by block; what a machine does to both "
    "cells cancels. A baseline cell that changed by itself does not cancel: it is judged by its own step time, and "
    "what it lost makes no other cell faster."
)

NO_BASELINE = "no cell of one worker, timed in turn with the same threads, is in all runs"
USES: dict[JudgeBy, str] = {
    "auto": "Of both ratios the verdict uses the one that differs less from run to run (--markdown says which).",
    "relative": "The verdict uses nothing else for all other cells, as asked.",
    "plain": "The verdict uses plain step times, as asked.",
}


def comparison_verdict(record: ComparisonRecord) -> str:
    """How many cells became slower or faster, and the largest change that is told apart."""
    judged = [cell for cell in record.cells if cell.judged is not None]
    if not judged:
        return f"Nothing can be judged: {_why_nothing(record)}."
    counts = Counter(cell.verdict for cell in judged)
    told = ", ".join(f"{counts[word]} {_in_words(word)}" for word in JUDGED if counts[word])
    text = f"B against A, step times of {_cells(len(judged))}: {told}."
    rest = len(record.cells) - len(judged)
    if rest:
        text += f" {_cells(rest)} of both sides {'is' if rest == 1 else 'are'} not judged."
    extremes = [_extreme(judged, "slower"), _extreme(judged, "faster")]
    extremes = extremes if any(extremes) else [_largest_unknown(judged)]
    return " ".join([text, *filter(None, extremes)])


def caveats(record: ComparisonRecord, settings: CompareSettings, within_a: list[str], within_b: list[str]) -> list[str]:
    """What a reader must know before believing the ratios; `within_a`: in what the runs of A differ, likewise B."""
    found = [RUNS if min(len(side.runs) for side in (record.a, record.b)) >= LEAST_RUNS else ONE_RUN]
    for letter, differ in (("A", within_a), ("B", within_b)):
        if differ:
            found.append(f"The runs of {letter} differ among themselves: {', '.join(differ)}.")
    if any(cell.relative is not None for cell in record.cells):
        found.append(f"{RELATIVE} {USES[settings.judge_by]}")
    if not record.same_machine:
        found.append("The machines are of different kinds: plain ratios compare the machines as well.")
    work = sorted({word for cell in record.cells for word in cell.other_work})
    if work:
        found.append(f"Not the same work ({other(work)}): such cells are not judged.")
    code = [change.what for change in record.changes if change.area == "code" and change.what != "commit"]
    if code:
        found.append(f"Your own code differs ({', '.join(dict.fromkeys(code))}): what that changes is in every ratio.")
    return found


def other(work: list[str]) -> str:
    """Why steps are not the same work, in words."""
    return ", ".join(f"other {word}" for word in work)


def basis(cell: CellComparison) -> str:
    """What a cell's verdict is taken from."""
    return f"relative to {cell.baseline}" if cell.judged_by == "relative" else "plain step times"


def _extreme(cells: list[CellComparison], word: Verdict) -> str:
    """The cell that changed most in one direction; empty if none did for certain."""
    found = [(cell.judged.value, cell) for cell in cells if cell.verdict == word and cell.judged is not None]
    if not found:
        return ""
    pick = max if word == "slower" else min
    _, cell = pick(found, key=lambda each: each[0])
    assert cell.judged is not None
    largest = "Largest slowdown" if word == "slower" else "Largest gain"
    return f"{largest}: {cell.id}, step time × {estimate_text(cell.judged)} ({basis(cell)})."


def _largest_unknown(cells: list[CellComparison]) -> str:
    """The cell that differs most where nothing is told apart for want of runs."""
    found = [(abs(math.log(cell.judged.value)), cell) for cell in cells if cell.verdict == "not known" and cell.judged]
    if not found:
        return ""
    _, cell = max(found, key=lambda each: each[0])
    assert cell.judged is not None
    return f"Largest difference: {cell.id}, step time × {estimate_text(cell.judged)} ({basis(cell)})."


def _why_nothing(record: ComparisonRecord) -> str:
    if not record.cells:
        return "the two sides have no cell in common"
    work = sorted({word for cell in record.cells for word in cell.other_work})
    if work and any(all(cell.measured) for cell in record.cells):
        return f"no common cell is the same work ({other(work)})"
    if any(all(cell.measured) for cell in record.cells):
        return f"{NO_BASELINE}, and only relative ratios were asked for"
    return "no common cell has numbers on both sides"


def _in_words(word: Verdict) -> str:
    return "not known, for want of runs" if word == "not known" else word


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
