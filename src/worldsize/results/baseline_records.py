"""A stored baseline: of one run or several, in one JSON file, what later runs are compared with.

Small enough to be committed beside the code that it judges: of each block its medians and means, no raw samples.
"""

from pathlib import Path
from typing import Self

from pydantic import ConfigDict, Field, model_validator

from worldsize.config import StudySettings
from worldsize.errors import OutputError
from worldsize.results.base import Record
from worldsize.results.files import read_record, write_whole
from worldsize.results.provenance import Provenance
from worldsize.results.records import PARTS, SCHEMA_VERSION, CellSummary, Placement, SeenState
from worldsize.results.samples import MAX_S, MIN_S
from worldsize.results.training_records import DataRecord, ModelRecord

HOW = "A baseline is made by: worldsize compare RUN --save FILE (several runs separated by commas)"


class StoredBlock(Record):
    """One block of timed steps; what intervals are computed from."""

    model_config = ConfigDict(allow_inf_nan=False)

    session: int
    block: int
    steps: int
    step_s: float = Field(ge=MIN_S, lt=MAX_S)
    """Elapsed time ÷ steps, each step from one end of the world to the next (method.md §8)."""
    data_wait_s: float | None = None
    """Mean over steps and ranks, as are those below; None where the phases were not marked."""
    compute_s: float | None = None
    """Forward, backward and optimizer."""
    exposed_sync_s: float | None = None
    """None where nothing is synchronised, or it is not seen."""
    reference_s: float | None = None
    """Mean of the short computation beside the timed steps, each time on its slowest rank; None where it was not
    timed in this block."""


class StoredCell(Record):
    """One planned cell; without blocks, `reason` says why."""

    id: str
    strategy: str
    world_size: int
    batch_size: int
    """b: samples per worker per step, or per micro-batch."""
    accumulate: int = 1
    """K: micro-batches of b in a step."""
    label: str = ""
    state: SeenState
    reason: str | None = None
    """Why it has no numbers, or why they are not all there."""
    placement: Placement | None = None
    summary: CellSummary | None = None
    peak_memory_bytes: int | None = None
    test_loss: float | None = None
    """After the last evaluation, as is the accuracy."""
    test_accuracy: float | None = None
    blocks: list[StoredBlock] = Field(default_factory=list)

    @model_validator(mode="after")
    def _parts_of_a_step(self) -> Self:
        strange = set(self.summary.parts_s if self.summary else ()) - set(PARTS)
        if strange:
            raise ValueError(f"the summary has parts that no step has: {', '.join(sorted(strange))}")
        return self

    @property
    def global_batch(self) -> int:
        """B = N·b·K (method.md §1)."""
        return self.world_size * self.batch_size * self.accumulate

    @property
    def samples_a_step(self) -> float:
        """What was counted, as a mean: B, but for a loop whose batches vary."""
        if self.summary is None:
            return self.global_batch
        return self.summary.samples_per_s.value * self.summary.step_s.value


class StoredRun(Record):
    """What is kept of a run: provenance, settings, and the blocks of each cell."""

    schema_version: int = SCHEMA_VERSION
    name: str
    settings: StudySettings | None = None
    """None, as are data and model, of a run that was only metered."""
    provenance: Provenance
    sessions: list[Provenance] = Field(default_factory=list)
    """Provenance of each later start with --resume."""
    data: DataRecord | None = None
    model: ModelRecord | None = None
    cells: list[StoredCell]
    """In the order of the plan."""
    parts: dict[str, "StoredRun"] = Field(default_factory=dict)
    """Further parts of an experiment."""
    unread_parts: list[str] = Field(default_factory=list)
    """Those that cannot be read, as `parts/NAME`."""
    further: list["StoredRun"] = Field(default_factory=list)
    """More runs of the same commit, in a baseline of several."""

    @property
    def asked(self) -> StudySettings:
        """What was asked for; the defaults where nothing was."""
        return self.settings or StudySettings()

    @property
    def all_runs(self) -> list["StoredRun"]:
        """This run and the further ones, each by itself."""
        alone = self.model_copy(update={"further": []})
        return [alone, *(run for each in self.further for run in each.all_runs)]


def write_baseline(path: Path, run: StoredRun) -> None:
    """Write a baseline whole, or not at all; raise OutputError if the file cannot be written."""
    write_whole(path, run.model_dump_json(indent=1) + "\n")


def read_baseline(path: Path) -> StoredRun:
    """Read a baseline; raise OutputError if it is missing, broken, of a newer worldsize, or something else."""
    if path.name in ("study.json", "cell.json"):
        raise OutputError(f"{path} is a part of a run folder, and no baseline: give the run folder\n{HOW}")
    try:
        return read_record(StoredRun, path)
    except OutputError as error:
        lines = str(error).replace("a valid StoredRun", "a stored baseline").splitlines()
        raise OutputError("\n".join([lines[0], *(lines[1:] or [HOW])])) from None
