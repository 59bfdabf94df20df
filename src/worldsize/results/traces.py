"""The traces of a profile: what is needed to read those of all ranks together, and how they are read.

They are Chrome traces, read with suspicion: they may be cut short, or made by somebody else. The format is the JSON
object of the Trace Event Format, as torch.profiler writes it: `traceEvents`, and beside it `distributedInfo` and
`baseTimeNanoseconds`.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from worldsize.errors import OutputError
from worldsize.results.base import Record
from worldsize.results.files import own, read_record, write_whole
from worldsize.results.records import SCHEMA_VERSION

Nanoseconds = Annotated[int, Field(ge=-(2**62), lt=2**62)]
"""No clock of a machine is out of it; a file may say anything."""
MAX_BYTES = 512 * 2**20
"""A larger file is refused: it would take gigabytes of memory to read."""
MAX_US = 2.0**52
"""Times beyond it have lost their microseconds."""

STEP_MARK = "ProfilerStep#"
"""What torch calls the mark around a step, and readers of traces look for."""
COLLECTIVE = "collective"
"""Category of the messages that our own timeline saw."""
COMMUNICATION_THREAD = 9_000_001
"""Thread number of the messages in a rank's trace, and of the further lanes after it; no system counts so far."""


class ProfiledRank(Record):
    """How the trace of one rank was made, and how its clock is read."""

    rank: int = Field(ge=0, lt=2**20)
    steps: int
    zero_ns: Nanoseconds
    """The rank's monotonic clock at `ts` = 0 of its trace: clock = zero_ns + 1000·ts."""
    zero_error_ns: Nanoseconds
    """How wrong `zero_ns` can be: half of the mark during which both clocks were read."""
    clock_offset_ns: Nanoseconds
    """What to add to this rank's clock to get rank 0's."""
    clock_error_ns: Nanoseconds
    """How wrong the offset can be."""


class ProfileRecord(Record):
    """cells/<cell>/profile/profile.json: the ranks whose traces lie beside it."""

    schema_version: int = SCHEMA_VERSION
    ranks: list[ProfiledRank]


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One event with a name and a time."""

    phase: str
    """`X` has a length, `M` describes a process or thread, `s` and `f` are the ends of an arrow."""
    name: str
    category: str
    start_ns: int
    end_ns: int
    thread: tuple[int | str, int | str]
    """Process and thread."""
    id: str | None = None
    """Of an arrow."""
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trace:
    """A trace that was read."""

    events: list[TraceEvent]
    distributed: dict[str, Any]
    """`distributedInfo`: backend, rank, world_size."""
    base_ns: int
    """Wall-clock time of `ts` = 0."""


def profile_folder(cell: Path) -> Path:
    """Where the profile of a cell lies, given the cell's folder."""
    return cell / "profile"


def rank_trace(cell: Path, rank: int) -> Path:
    """The trace of one rank."""
    return profile_folder(cell) / f"rank{rank}.json"


def read_profile(cell: Path) -> ProfileRecord | None:
    """The record of a cell's profile; None where none was made. Raises OutputError if it is not valid."""
    path = own(cell, "profile", "profile.json")
    return read_record(ProfileRecord, path) if path.exists() else None


def write_profile(cell: Path, record: ProfileRecord) -> None:
    """Write the record of a cell's profile whole."""
    write_whole(profile_folder(cell) / "profile.json", record.model_dump_json(indent=2) + "\n")


def read_trace(path: Path) -> Trace:
    """Read one trace; events that make no sense are left out. Raises OutputError for a file that is no trace."""
    path = own(path.parent.parent, path.parent.name, path.name)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise OutputError(f"{path} is larger than {MAX_BYTES >> 20} MiB: it is not read")
        content = json.loads(path.read_bytes(), parse_constant=_refuse)
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise OutputError(f"{path} is not valid JSON: {str(error)[:200]}") from None
    events = content.get("traceEvents") if isinstance(content, dict) else None
    if not isinstance(events, list):
        raise OutputError(f"{path} is not a Chrome trace: it has no list traceEvents")
    distributed, base = content.get("distributedInfo"), content.get("baseTimeNanoseconds")
    return Trace(
        events=[event for event in map(_event, events) if event is not None],
        distributed=distributed if isinstance(distributed, dict) else {},
        base_ns=base if isinstance(base, int) and abs(base) < 2**63 else 0,
    )


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


def _event(raw: Any) -> TraceEvent | None:
    if not isinstance(raw, dict):
        return None
    phase, name, category = raw.get("ph"), raw.get("name"), raw.get("cat", "")
    thread = raw.get("pid", 0), raw.get("tid", 0)
    start, length = _time_us(raw.get("ts", 0)), _time_us(raw.get("dur", 0))
    named = all(isinstance(each, str) for each in (phase, name, category))
    placed = all(isinstance(each, int | str) for each in thread)
    if not (named and placed) or start is None or length is None or length < 0:
        return None
    args, arrow = raw.get("args"), raw.get("id")
    begin = round(start * 1000)
    return TraceEvent(
        phase=str(phase),
        name=str(name),
        category=str(category),
        start_ns=begin,
        end_ns=begin + round(length * 1000),
        thread=thread,
        id=str(arrow) if isinstance(arrow, int | str) else None,
        args=args if isinstance(args, dict) else {},
    )


def _time_us(value: Any) -> float | None:
    """A time of the file; None for what is no number, or no time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MAX_US < value < MAX_US:
        return None
    return float(value)
