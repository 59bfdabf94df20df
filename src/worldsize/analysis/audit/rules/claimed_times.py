"""Two times of a sentence against the table: "an epoch drops from 240 s to 96 s"."""

import re
from collections.abc import Iterator

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Verdict, one_finding
from worldsize.analysis.audit.numbers import Printed, Span, printed
from worldsize.analysis.audit.quantities import PARTS, TIMES
from worldsize.analysis.audit.rules.sentences import sentences_of, short

_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_UNIT = r"ms|s|sec|secs|seconds?|min|mins|minutes?|h|hours?"
_FROM_TO = re.compile(rf"\bfrom\s+({_NUMBER})\s*({_UNIT})?\s+(?:down )?to\s+({_NUMBER})\s*({_UNIT})\b", re.IGNORECASE)


def time_claims(reading: Reading) -> Iterator[Checked]:
    """Where one of the two times stands in the table, so does the other one."""
    facts = [fact for fact in reading.of(*TIMES, *PARTS) if fact.unit is not None and fact.unit.kind == "time"]
    for sentence in sentences_of(reading):
        for match in _FROM_TO.finditer(sentence):
            pair = printed(f"{match[1]} {match[2] or match[4]}"), printed(f"{match[3]} {match[4]}")
            if facts and pair[0] is not None and pair[1] is not None:
                yield _judged(sentence, (pair[0], pair[1]), facts)


def _judged(sentence: str, pair: tuple[Printed, Printed], facts: list[Fact]) -> Checked:
    stands = [[fact for fact in facts if fact.span.meets(_wide(number))] for number in pair]
    if all(stands):
        return Checked(1)
    if not any(stands):
        return Checked()  # of something else
    one, other = (0, 1) if stands[0] else (1, 0)
    best = min(facts, key=lambda fact: abs(fact.span.mid - _wide(pair[other]).mid))
    said = f"the table has {pair[one].text}, but no {pair[other].text}; the nearest is {best.text}."
    return one_finding(
        "claim",
        Verdict.SUSPECT,
        f"“{short(sentence.strip())}”: {said}",
        [best, stands[one][0]],
        best.text,
        None,
        "The sentence is what readers take with them.",
    )


def _wide(number: Printed) -> Span:
    """In seconds; people round in sentences: half a last digit more to either side."""
    room = (number.span.high - number.span.low) / 2
    return Span(number.span.low - room, number.span.high + room) * (number.unit.factor if number.unit else 1.0)
