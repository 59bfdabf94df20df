"""What a comparison says in words: the verdict, and what its ratios do not know."""

from collections import Counter

from worldsize.analysis.numbers import estimate_text
from worldsize.config import CompareSettings, JudgeBy
from worldsize.results.comparison_records import CellComparison, ComparisonRecord, Verdict

JUDGED: tuple[Verdict, ...] = ("slower", "faster", "not told apart", "no interval")
NOT_IN_TURN = (
    "The two runs were not timed in turn: the drift of the machine between them is in each plain ratio, and no "
    "interval knows of it."
)
RELATIVE = (
    "Relative: step time over that of the baseline cell of the same run, block by block; what a machine does to both "
    "cells cancels. A baseline cell that changed by itself does not: its own row says so."
)

NO_BASELINE = "no cell of one worker, timed in turn with the same threads, is in both runs"
USES: dict[JudgeBy, str] = {
    "auto": "The verdict uses it where it stands, else the plain ratio.",
    "relative": "The verdict uses nothing else, as asked.",
    "plain": "The verdict uses plain step times, as asked.",
}


def comparison_verdict(record: ComparisonRecord) -> str:
    """How many cells became slower or faster, and the largest change that is certain."""
    judged = [cell for cell in record.cells if cell.judged is not None]
    if not judged:
        return f"Nothing can be judged: {_why_nothing(record)}."
    counts = Counter(cell.verdict for cell in judged)
    told = ", ".join(f"{counts[word]} {_in_words(word)}" for word in JUDGED if counts[word])
    text = f"B against A, step times of {_cells(len(judged))}: {told}."
    rest = len(record.cells) - len(judged)
    if rest:
        text += f" {_cells(rest)} of both runs {'is' if rest == 1 else 'are'} not judged."
    extremes = [_extreme(judged, "slower"), _extreme(judged, "faster")]
    return " ".join([text, *filter(None, extremes)])


def caveats(record: ComparisonRecord, settings: CompareSettings) -> list[str]:
    """What a reader must know before believing the ratios."""
    found = [NOT_IN_TURN]
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


def _why_nothing(record: ComparisonRecord) -> str:
    if not record.cells:
        return "the runs have no cell in common"
    work = sorted({word for cell in record.cells for word in cell.other_work})
    if work and any(all(cell.measured) for cell in record.cells):
        return f"no common cell is the same work ({other(work)})"
    if any(all(cell.measured) for cell in record.cells):
        return f"{NO_BASELINE}, and only relative ratios were asked for"
    return "no common cell has numbers in both runs"


def _in_words(word: Verdict) -> str:
    return "without an interval" if word == "no interval" else word


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
