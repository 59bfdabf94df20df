"""What advice is made of: a finding, the numbers behind it, its likely cause, what to try, and what that may bring.

Numbers have the digits of numbers.py, with interval and unit, as words and as evidence and gains.
"""

from dataclasses import dataclass
from typing import Any, Literal

from worldsize.analysis import headline
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import estimate_text, gib_text, number_text
from worldsize.results.records import Estimate

PART_WORDS = {
    "data_wait_s": "data wait",
    "copy_s": "copies",
    "forward_s": "forward",
    "backward_s": "backward",
    "exposed_sync_s": "communication",
    "optimizer_s": "optimizer",
    "other_s": "the rest of the step",
    "evaluation_s": "evaluation",
    "checkpoint_s": "checkpoints",
    "restart_s": "loaders that begin anew",
    "logging_s": "logging",
    "garbage_s": "garbage collection",
}
"""What the parts of a step are called in a finding."""
NO_COMMAND = "No worldsize command can try this here."
"""Where an advice has no command."""
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
    """Of `number`, which is in no smaller or larger unit, even where `text` shows another one."""


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
    forecast: Estimate | None = None
    """The same by a forecast, between the ends of its band; None where it was not predicted."""


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
    takes_s: float | None = None
    """Seconds that its command takes, about; None where that cannot be told."""

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
            "takes_s": self.takes_s,
            "gain": gain and _gain(gain),
        }


def _gain(gain: Gain) -> dict[str, Any]:
    bound = gain.at_most if gain.ratio else None
    expected = _number(gain.expected) if gain.expected else None
    extra = {"expected": expected, "forecast": _number(gain.forecast) if gain.forecast else None}
    return {"text": gain.text, "basis": gain.basis, "at_most": bound, **_number(gain.ratio), **extra}


def _number(number: Estimate | float | None) -> dict[str, Any]:
    if isinstance(number, Estimate):
        return number.model_dump()
    return {"value": number, "low": None, "high": None, "samples": None}


def cell_name(cell: CellAnalysis) -> str:
    """A cell as the verdict names it, with the label that tells its recipe apart."""
    return headline.cell_name(cell) + (f" ({cell.label})" if cell.label else "")


def named(cell: CellAnalysis) -> str:
    """Its strategy, with the label."""
    return f"{cell.strategy} ({cell.label})" if cell.label else cell.strategy


def ms(seconds: Estimate) -> str:
    """Seconds as milliseconds: `212 [205, 218] ms`."""
    return f"{estimate_text(seconds, 1e3)} ms"


def share(estimate: Estimate) -> str:
    """A share (1 is all): `39.4 [38.1, 40.7] %`."""
    return f"{estimate_text(estimate, 100)} %"


def megabytes(size: float) -> str:
    """Bytes in MB (1e6)."""
    return f"{number_text(size / 1e6)} MB"


def several(count: float, word: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def time_of(label: str, seconds: Estimate | float) -> Evidence:
    """Seconds as evidence, read in ms."""
    text = ms(seconds) if isinstance(seconds, Estimate) else f"{number_text(1e3 * seconds)} ms"
    return Evidence(label, text, seconds, "s")


def share_of(label: str, estimate: Estimate) -> Evidence:
    """A share (1 is all) as evidence, read in percent."""
    return Evidence(label, share(estimate), estimate, "share")


def ratio_of_two(label: str, estimate: Estimate) -> Evidence:
    """A ratio of two cells as evidence."""
    return Evidence(label, estimate_text(estimate), estimate, "ratio")


def rate_of_link(label: str, bytes_per_s: Estimate | float) -> Evidence:
    """Bytes per second as evidence, read in GB/s."""
    if isinstance(bytes_per_s, Estimate):
        text = estimate_text(bytes_per_s, 1e-9)
    else:
        text = number_text(bytes_per_s / 1e9)
    return Evidence(label, f"{text} GB/s", bytes_per_s, "bytes/s")


def memory_of(label: str, size_bytes: int) -> Evidence:
    """Bytes of memory as evidence, read in GiB."""
    return Evidence(label, gib_text(size_bytes), size_bytes, "bytes")


def count_of(label: str, count: float) -> Evidence:
    """A number of things as evidence."""
    return Evidence(label, f"{count:g}", count, "count")


def at_most(ratio: Estimate | None, basis: str, of: str = "") -> Gain | None:
    """An upper bound of what may be gained, as times the samples/s; None where that is not known."""
    if ratio is None:
        return None
    if ratio.low is not None and ratio.low < 1:  # nothing is lost by leaving a part out
        ratio = ratio.model_copy(update={"low": min(1.0, ratio.value)})
    return Gain(f"at most {estimate_text(ratio)} times the samples/s{of}", basis, ratio, at_most=True)


def measured(ratio: Estimate | None, basis: str, of: str = "") -> Gain | None:
    """What was gained where it was tried, as times the samples/s; None where that is not known."""
    return None if ratio is None else Gain(f"{estimate_text(ratio)} times the samples/s{of}", basis, ratio)
