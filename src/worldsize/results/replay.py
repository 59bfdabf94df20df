"""replay.json of a rehearsal: what its ranks wait for in place of computing, as it was measured (method.md §15)."""

from pathlib import Path

from pydantic import Field, model_validator

from worldsize.config import CellSettings
from worldsize.results.base import Record
from worldsize.results.files import own, read_record, write_whole
from worldsize.results.records import SCHEMA_VERSION
from worldsize.results.training_records import ReplayedRecord

FILE = "replay.json"
PHASES = ("data", "forward", "backward", "optimizer", "other")
"""What is replayed of a step, in order: waiting for data with the copy to the device, computing without messages, and
what comes after the optimizer."""


class ReplayedCell(Record):
    """The measured steps that one cell replays."""

    source: str
    """Cell of the run in which they were measured."""
    source_world_size: int
    blocks: tuple[int, ...] = Field(min_length=1)
    """How many steps each measured block had; they are drawn block by block."""
    times_us: tuple[tuple[tuple[int, ...], ...], ...] = Field(min_length=1)
    """Microseconds by rank, phase and step."""

    @model_validator(mode="after")
    def _whole(self) -> "ReplayedCell":
        steps = sum(self.blocks)
        shapes = {len(rank) == len(PHASES) and all(len(phase) == steps for phase in rank) for rank in self.times_us}
        if shapes != {True} or min(self.blocks) < 1:
            raise ValueError("blocks, phases and steps do not fit together")
        return self


class Replay(Record):
    """All that is replayed, of all cells of a rehearsal."""

    schema_version: int = SCHEMA_VERSION
    run: str
    """Name of the run that was measured."""
    gradients_of: str
    """The cell whose gradients were watched."""
    sizes_bytes: tuple[int, ...] = Field(min_length=1)
    """Of each gradient, in the model's order."""
    ready_share: tuple[float, ...]
    """When each was there, as a share of backward."""
    element_bytes: int
    buffer_bytes: int
    cells: dict[str, ReplayedCell]
    """By the id of the cell that replays them."""


def write_replay(run: Path, replay: Replay) -> None:
    """Write the file whole."""
    write_whole(run / FILE, replay.model_dump_json() + "\n")


def read_replay(run: Path) -> Replay:
    """Read the file; raises OutputError where it is missing or damaged."""
    return read_record(Replay, own(run, FILE))


def replayed_by(run: Path, cell: CellSettings) -> ReplayedRecord | None:
    """What a cell of a rehearsal replays, before it has begun; None of one that computes."""
    if cell.replay is None:
        return None
    found = read_replay(run).cells[cell.id]
    steps = sum(found.blocks)
    return ReplayedRecord(source=found.source, source_world_size=found.source_world_size, source_steps=steps)
