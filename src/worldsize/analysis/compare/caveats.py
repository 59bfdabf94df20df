"""What a reader must know before believing the ratios of a comparison (method.md §11)."""

import math
from collections.abc import Sequence

from worldsize.analysis.compare.over_runs import MIN_RUNS
from worldsize.analysis.compare.verdicts import other
from worldsize.analysis.numbers import estimate_text
from worldsize.config import CompareSettings, JudgeBy
from worldsize.results.comparison_records import Change, ComparisonRecord

ONE_RUN = (
    "One run on a side: how far two runs of the same commit lie apart is not known. Intervals are those of the blocks "
    "within the runs, no difference is called a change, and a gate (--fail-above) does not fail for a step time. Give "
    "at least two runs a side: worldsize compare A1,A2 B1,B2"
)
RUNS = (
    "The unit is the run: intervals know of what differs from run to run. Differences are tested over all cells at "
    "once: equal sides give an alarm of any kind once in twenty comparisons (Holm)."
)
DRIFT = "No interval knows of a drift of the machine between all runs of A and all of B."
RELATIVE = (
    "Relative: step time over that of the baseline cell of the same run, block by block; what a machine does to both "
    "cells cancels. A baseline cell that changed by itself does not cancel: it is judged by its own step time, and "
    "what it lost makes no other cell faster."
)
NORMALISED = (
    "Normalised: step time over a short computation that is timed beside the steps and is none of your code; what the "
    "machine gives less in a run cancels."
)
USES: dict[JudgeBy, str] = {
    "auto": "The verdict uses the ratio that is steadiest from run to run (docs/compare.md; --markdown says which).",
    "relative": "The verdict uses relative ones for all cells but the baseline, as asked.",
    "plain": "The verdict uses plain step times, as asked.",
    "normalised": "The verdict uses normalised ones, as asked.",
}


def caveats(
    record: ComparisonRecord, settings: CompareSettings, within_a: Sequence[Change], within_b: Sequence[Change]
) -> list[str]:
    """What a reader must know before believing the ratios; `within_a`: in what the runs of A differ, likewise B."""
    found = [ONE_RUN]
    if min(len(side.runs) for side in (record.a, record.b)) >= MIN_RUNS:
        steady = all(cell.judged_by in ("normalised", None) for cell in record.cells)
        found = [RUNS if steady else f"{RUNS} {DRIFT}"]
    for letter, within in (("A", within_a), ("B", within_b)):
        # They should be alike in these; a machine has another load at each start.
        differ = [change.what for change in within if change.area in ("code", "software", "settings", "placement")]
        if differ:
            found.append(f"The runs of {letter} differ among themselves: {', '.join(dict.fromkeys(differ))}.")
    kinds = [
        text
        for name, text in (("relative", RELATIVE), ("normalised", NORMALISED))
        if any(getattr(cell, name) is not None for cell in record.cells)
    ]
    if kinds:
        found.append(" ".join([*kinds, USES[settings.judge_by]]))
    if moved := [cell.reference for cell in record.cells if cell.reference_moved and cell.reference is not None]:
        most = max(moved, key=lambda each: abs(math.log(each.value)))
        found.append(
            f"The short computation beside the steps took × {estimate_text(most)} as long: the machine, or what runs "
            "beside the steps, was not the same. A cell that is judged by plain or normalised step times is called "
            "slower or faster only where both say so."
        )
    if not record.same_machine:
        found.append("The machines are of different kinds: plain and normalised ratios compare them as well.")
    work = sorted({word for cell in record.cells for word in cell.other_work})
    if work:
        found.append(f"Not the same work ({other(work)}): such cells are not judged.")
    code = [change.what for change in record.changes if change.area == "code" and change.what != "commit"]
    if code:
        found.append(f"Your own code differs ({', '.join(dict.fromkeys(code))}): what that changes is in every ratio.")
    return found
