"""What a comparison of two sides, A and B, of one or several runs each, finds; all ratios are B ÷ A."""

from typing import Literal

from pydantic import Field

from worldsize.errors import DAMAGED
from worldsize.results.base import Record
from worldsize.results.provenance import Provenance
from worldsize.results.records import SCHEMA_VERSION, Estimate, SeenState

FAILED_GATE = 3
"""Exit status of a gate that fails; 1 and 2 are those of errors.py."""

Verdict = Literal["faster", "slower", "indistinguishable", "not known", "not judged", "no numbers"]
"""Of a cell: whether its step time differs significantly from A's, over all cells at once (method.md §11); not known
with less than two runs a side."""

Direction = Literal["larger", "smaller", "same", "indistinguishable", "not known"]
"""Of any other quantity, likewise."""

JudgedBy = Literal["relative", "plain", "normalised"]
Outcome = Literal["passed", "failed", "not known"]
"""Of the gate."""
Weight = Literal["fails", "not known", "note"]
"""What a finding does to the gate."""

Area = Literal["work", "code", "software", "machine", "environment", "settings", "placement", "run"]


class ComparedRun(Record):
    """One run of a side."""

    name: str
    provenance: Provenance


class Side(Record):
    """A or B: one run, or several of the same commit."""

    path: str
    """As it was given; several paths, comma-separated."""
    runs: list[ComparedRun] = Field(min_length=1)


class RunError(Record):
    """How well the logarithm of a ratio is known, with runs as the unit (method.md §11)."""

    standard_error: float = Field(gt=0)
    degrees_of_freedom: float = Field(gt=0)
    runs: tuple[int, int]
    """Runs of A and of B that it is taken from."""
    left_open: float | None = None
    """What the blocks of one run leave open of its number, as a standard deviation; None without runs of two blocks."""


class Change(Record):
    """One thing in which the sides differ: all runs of A from all runs of B (method.md §11)."""

    area: Area
    what: str
    old: str
    new: str
    where: str = ""
    """The part of an experiment, or the cells; empty for the whole run."""


class Quantity(Record):
    """A number of a cell in A and in B (the mean over runs), in the unit of its name, and their ratio."""

    name: str
    old: float | None
    new: float | None
    ratio: Estimate | None = None
    """None where one of them is absent or 0. With one run a side the interval, if there is one, is that of blocks."""
    direction: Direction | None = None
    """None for what the verdict of the cell speaks of in other words, and for other work."""


class CellComparison(Record):
    """A cell that both sides planned."""

    id: str
    """With the part of the experiment in front, if it is in one."""
    verdict: Verdict
    judged_by: JudgedBy | None = None
    """What the verdict is taken from; None for a cell that is not judged."""
    plain: Estimate | None = None
    """Ratio of the step times. With one run a side the drift of the machine between the runs is not in its interval."""
    plain_error: RunError | None = None
    """None with less than two runs a side, as below."""
    relative: Estimate | None = None
    """Ratio of the step times, each over that of the baseline cell of its own run, block by block; what the machine
    does to both cancels. 1 ÷ it is the ratio of the speed-ups."""
    relative_error: RunError | None = None
    baseline: str | None = None
    """That baseline cell."""
    normalised: Estimate | None = None
    """Ratio of the step times, each over the short computation that was timed beside it (method.md §8); None where it
    was not timed in all runs."""
    normalised_error: RunError | None = None
    reference: Estimate | None = None
    """Ratio of the times of that computation, which is no code of the user's: what the machine did by itself."""
    reference_moved: bool = False
    """Whether it is significant, so that step times that moved with it may be the machine's; not asked with
    `--judge-by plain`."""
    other_work: list[str] = Field(default_factory=list)
    """Why its steps are not the same work: `model`, `data`, `precision`, `optimizer`, `batch`."""
    measured: tuple[bool, bool]
    """Whether it has numbers in a run of A and of B."""
    lost: bool = False
    """Whether it has numbers in A, and none in B or, where all runs of A have some, not in all runs of B."""
    cut_short: bool = False
    """Whether it was complete in all runs of A and is not in all of B."""
    remark: str = ""
    """Why it has none, or not all."""
    quantities: list[Quantity] = Field(default_factory=list)

    @property
    def judged(self) -> Estimate | None:
        """The ratio that the verdict is taken from."""
        return None if self.judged_by is None else getattr(self, self.judged_by)

    @property
    def judged_error(self) -> RunError | None:
        """How well that ratio is known."""
        return None if self.judged_by is None else getattr(self, f"{self.judged_by}_error")


class LoneCell(Record):
    """A cell that only one side planned."""

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
        "one-run",
        "maybe-slower",
        "other-machine",
        "machine",
        "baseline",
        "not-judged",
        "not-ruled-out",
    ]
    cell: str | None = None
    message: str
    weight: Weight


class Gate(Record):
    """The judgement of `--fail-above`."""

    fail_above: float
    """Share by which a step may take longer."""
    strict: bool
    outcome: Outcome
    failed: bool
    """Whether the command ends with 3: where it failed, and with `strict` where it is not known."""
    findings: list[Finding]
    settle: list[str] = Field(default_factory=list)
    """Where it is not known: the commands whose numbers would settle it, or why none would."""


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
    """Cells whose record or samples cannot be read, and parts of experiments, each with the side that it is of."""
    gate: Gate | None = None

    @property
    def exit_status(self) -> int:
        """0, or 3 where the gate fails, or 4 where a cell could not be read."""
        if self.gate is not None and self.gate.failed:
            return FAILED_GATE
        return DAMAGED if self.unread else 0
