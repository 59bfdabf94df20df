"""What advice is made of: a finding, the numbers behind it, its likely cause, what to try, and what that may bring."""

from dataclasses import dataclass
from typing import Any, Literal

from worldsize.results.records import Estimate

Unit = Literal["s", "bytes", "bytes/s", "samples/s", "share", "ratio", "count"]
"""Of the number in an Evidence: a share is of 1, a ratio of two numbers has none."""


@dataclass(frozen=True)
class Evidence:
    """One number that a finding stands on."""

    label: str
    """What it is, in the words of method.md."""
    text: str
    """As a person reads it: with its unit, and its interval if it has one."""
    number: Estimate | float | None = None
    """The same for a script; None where the evidence is no number, as a list of names."""
    unit: Unit | None = None
    """Of `number`, which is in no smaller or larger unit, whatever `text` shows."""


@dataclass(frozen=True)
class Gain:
    """What an advice may bring."""

    text: str
    """As a person reads it."""
    basis: str
    """Which numbers it was computed from, and what it assumes."""
    ratio: Estimate | None = None
    """Times the samples/s; None where what is gained is no speed."""
    at_most: bool = False
    """Whether `ratio` is an upper bound; else it was measured."""
    expected: Estimate | None = None
    """What the step that is proposed would bring by itself, where that is less than the bound."""


@dataclass(frozen=True)
class Advice:
    """One thing that limits a configuration, and what to do about it."""

    code: str
    """Stable, for scripts: `input-bound`, `communication-bound`, `root-bound` …"""
    cell_id: str | None
    """The cell it speaks of; None for the study as a whole."""
    finding: str
    """What was found, in one sentence."""
    evidence: tuple[Evidence, ...]
    cause: str
    """The likely cause, in one sentence."""
    next_step: str
    """What to try next, in one sentence."""
    command: str | None
    """The exact command that tries it; None where no command does."""
    gain: Gain | None
    """None where it cannot be told from this run."""

    def as_json(self) -> dict[str, Any]:
        """The advice for a script: numbers as numbers, beside the text that a person reads (docs/json.md)."""
        gain = self.gain
        return {
            "code": self.code,
            "cell_id": self.cell_id,
            "finding": self.finding,
            "evidence": [
                {"label": each.label, "text": each.text, "unit": each.unit, **_number(each.number)}
                for each in self.evidence
            ],
            "cause": self.cause,
            "next_step": self.next_step,
            "command": self.command,
            "gain": gain and _gain(gain),
        }


def _gain(gain: Gain) -> dict[str, Any]:
    bound = gain.at_most if gain.ratio else None
    expected = _number(gain.expected) if gain.expected else None
    return {"text": gain.text, "basis": gain.basis, "at_most": bound, **_number(gain.ratio), "expected": expected}


def _number(number: Estimate | float | None) -> dict[str, Any]:
    if isinstance(number, Estimate):
        return number.model_dump()
    return {"value": number, "low": None, "high": None, "samples": None}
