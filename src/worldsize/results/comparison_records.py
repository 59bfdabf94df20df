"""What a comparison of two runs, A and B, finds; all ratios are B ÷ A."""

from typing import Literal

from pydantic import Field

from worldsize.errors import DAMAGED
from worldsize.results.base import Record
from worldsize.results.records import SCHEMA_VERSION, Estimate, Provenance, SeenState

FAILED_GATE = 3
"""Exit status of a gate that fails; 1 and 2 are those of errors.py."""

Verdict = Literal["faster", "slower", "not told apart", "no interval", "not judged", "no numbers"]
"""Of a cell: by whether the interval of its step time's ratio includes 1."""

Direction = Literal["larger", "smaller", "same", "not told apart", "no interval"]
"""Of any other quantity, likewise."""

Area = Literal["work", "code", "software", "machine", "environment", "settings", "placement", "run"]


class Side(Record):
    """One of the two runs."""

    path: str
    name: str
    provenance: Provenance


class Change(Record):
    """One thing in which the runs differ (method.md §11)."""

    area: Area
    what: str
    old: str
    new: str
    where: str = ""
    """The part of an experiment, or the cells; empty for the whole run."""


class Quantity(Record):
    """A number of a cell in A and in B, in the unit of its name, and their ratio."""

    name: str
    old: float | None
    new: float | None
    ratio: Estimate | None = None
    """None where one of them is absent or 0; without an interval where either is one number."""
    direction: Direction | None = None


class CellComparison(Record):
    """A cell that both runs planned."""

    id: str
    """With the part of the experiment in front, if it is in one."""
    verdict: Verdict
    judged_by: Literal["relative", "plain"] | None = None
    """What the verdict is taken from; None for a cell that is not judged."""
    plain: Estimate | None = None
    """Ratio of the step times; the drift of the machine between the runs is in it, and not in its interval."""
    relative: Estimate | None = None
    """Ratio of the step times, each over that of the baseline cell of its own run, block by block; what the machine
    does to both cancels. 1 ÷ it is the ratio of the speed-ups."""
    baseline: str | None = None
    """That baseline cell."""
    other_work: list[str] = Field(default_factory=list)
    """Why its steps are not the same work: `model`, `data`, `precision`."""
    measured: tuple[bool, bool]
    """Whether it has numbers in A and in B."""
    cut_short: bool = False
    """Whether it was complete in A and is not in B."""
    remark: str = ""
    """Why it has none, or not all."""
    quantities: list[Quantity] = Field(default_factory=list)

    @property
    def judged(self) -> Estimate | None:
        """The ratio that the verdict is taken from."""
        return {"relative": self.relative, "plain": self.plain, None: None}[self.judged_by]


class LoneCell(Record):
    """A cell that only one run planned."""

    id: str
    run: Literal["A", "B"]
    state: SeenState
    measured: bool
    sweep: bool
    """Whether a sweep chose it by what it found: then its absence from the other run is no fault."""


class Finding(Record):
    """Something that the gate has to say of a cell, or of the whole."""

    code: Literal[
        "slower",
        "failed",
        "cut-short",
        "missing",
        "nothing-judged",
        "maybe-slower",
        "other-machine",
        "not-judged",
        "nothing-certain",
        "not-ruled-out",
    ]
    cell: str | None = None
    message: str
    fails: bool


class Gate(Record):
    """The judgement of `--fail-above`."""

    fail_above: float
    """Share by which a step may take longer."""
    strict: bool
    failed: bool
    findings: list[Finding]


class ComparisonRecord(Record):
    """What `worldsize compare` found."""

    schema_version: int = SCHEMA_VERSION
    a: Side
    b: Side
    verdict: str
    """In a sentence or two."""
    caveats: list[str]
    """What the ratios do not know."""
    same_machine: bool
    """Same processor, number of cores and GPUs; the host's name does not matter."""
    changes: list[Change]
    cells: list[CellComparison]
    lone_cells: list[LoneCell]
    unread: list[str] = Field(default_factory=list)
    """Cells, and the run that each is of, whose record or samples cannot be read."""
    gate: Gate | None = None

    @property
    def exit_status(self) -> int:
        """0, or 3 where the gate fails, or 4 where a cell could not be read."""
        if self.gate is not None and self.gate.failed:
            return FAILED_GATE
        return DAMAGED if self.unread else 0
