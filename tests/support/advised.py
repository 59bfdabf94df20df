"""Studies with known truth for the rules of the advice: made runs, with messages, a link, and changed steps."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from made_runs import SHARES, MadeCell, make_run, provenance, synchronised
from worldsize.analysis.advice import Advice, advise
from worldsize.analysis.collective_cost import cost_s
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.config import Hosts
from worldsize.results.comm_records import CommRecord, CommSample
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run, write_cell, write_comm, write_study
from worldsize.results.records import CellRecord, Placement
from worldsize.results.step_records import BlockActivity, SpanRecord

STEP_S = 0.5
SINGLE = MadeCell("single", 1)
Change = Callable[[int, dict[str, Any]], None]
"""Changes a step record of a rank in place."""


@dataclass(frozen=True)
class Messages:
    """The messages of each step of a cell, one after the other; every rank is done when the transfer is."""

    kind: str = "all_reduce"
    count: int = 2
    payload_bytes: int = 10**6
    last_bytes: int | None = None
    """Of the last one, where that is larger."""
    transfer_s: float = 0.05
    late_rank: int = 1
    late_s: float = 0.0
    """How much later than the others the late rank issues the first message."""


def exchanging(
    strategy: str = "ddp", *, exposed: float = 0.2, hidden_s: float = 0.0, step_s: float = STEP_S, **more: Any
) -> MadeCell:
    """Two workers that have `exposed` of their step exposed communication, and hide some more of it."""
    shares = synchronised(SHARES, exposed)
    comm_s = exposed * step_s + hidden_s
    given: dict[str, Any] = {"comm_s": comm_s, "overlapped_s": hidden_s, "shares": shares, "rank_spread": 0, **more}
    return MadeCell(strategy, given.pop("world_size", 2), step_s=step_s, **given)


def study(folder: Path, cells: Sequence[MadeCell], *, changes: Sequence[Any] = (), **settings: Any) -> StudyAnalysis:
    """A made run with other settings, after what `changes` do to its folder."""
    make_run(folder, cells)
    record = load_run(folder).study
    grid = {
        "strategies": tuple(dict.fromkeys(cell.strategy for cell in cells)),
        "world_sizes": tuple(sorted({cell.world_size for cell in cells})),
        "batch_sizes": None if "global_batch" in settings else tuple(sorted({cell.batch_size for cell in cells})),
    }
    record.settings = record.asked.model_copy(update={**grid, **settings})
    write_study(folder, record)
    for change in changes:
        change(folder)
    return analyse(load_run(folder))


def found(analysis: StudyAnalysis, code: str) -> Advice | None:
    """The advice with this code, if it is given."""
    return next((each for each in advise(analysis) if each.code == code), None)


def codes(analysis: StudyAnalysis) -> list[str]:
    """The codes of all advice, in order."""
    return [each.code for each in advise(analysis)]


def evidence(advice: Advice) -> dict[str, str]:
    """The numbers of an advice by their labels."""
    return {each.label: each.text for each in advice.evidence}


def gain(advice: Advice) -> str:
    """What an advice may bring, as a person reads it; empty where it does not say."""
    return advice.gain.text if advice.gain else ""


def basis(advice: Advice) -> str:
    """What that was computed from."""
    return advice.gain.basis if advice.gain else ""


def steps(cell: MadeCell, change: Change) -> Callable[[Path], None]:
    """Change the step records of a cell."""

    def apply(folder: Path) -> None:
        for path in cell_folder(folder, cell.id).glob("rank?.jsonl"):
            records = [json.loads(line) for line in path.read_text().splitlines()]
            late_s: dict[int, float] = {}
            for record in records:
                before_s, block = record["step_s"], record["block"]
                change(int(path.stem.removeprefix("rank")), record)
                # A step that takes longer makes those that follow it in its turn begin later.
                record["start_ns"] += round(1e9 * late_s.get(block, 0.0))
                late_s[block] = late_s.get(block, 0.0) + record["step_s"] - before_s
            path.write_text("".join(f"{json.dumps(record)}\n" for record in records))

    return apply


def moved(source: str, target: str, shares: Sequence[float]) -> Change:
    """Move a share of the step from one of its parts to another, by turns of the blocks."""

    def change(_: int, record: dict[str, Any]) -> None:
        seconds = shares[record["block"] % len(shares)] * record["step_s"]
        record[source] -= seconds
        record[target] += seconds
        if target == "exposed_sync_s":
            record["comm_s"] += seconds

    return change


def longer(part: str, factors: Sequence[float], *, only_rank: int | None = None) -> Change:
    """Make a part of the step take so many times as long, by turns of the blocks."""

    def change(rank: int, record: dict[str, Any]) -> None:
        if only_rank in (None, rank):
            more = record[part] * (factors[record["block"] % len(factors)] - 1)
            record[part] += more
            record["step_s"] += more

    return change


def messages(cell: MadeCell, sent: Messages) -> Callable[[Path], None]:
    """Write the messages of each step of a cell."""

    def apply(folder: Path) -> None:
        place = cell_folder(folder, cell.id)
        for path in sorted(place.glob("rank?.jsonl")):
            rank = int(path.stem.removeprefix("rank"))
            spans = (_spans(json.loads(line), rank, sent) for line in path.read_text().splitlines())
            (place / f"rank{rank}.spans.jsonl").write_text("".join(f"{s.model_dump_json()}\n" for s in spans))

    return apply


def _spans(record: dict[str, Any], rank: int, sent: Messages) -> SpanRecord:
    begin = 0.1
    first = begin + (sent.late_s if rank == sent.late_rank else 0.0)
    ends = [begin + sent.late_s + (number + 1) * sent.transfer_s / sent.count for number in range(sent.count)]
    return SpanRecord(
        session=record["session"],
        step=record["step"],
        kind=[sent.kind] * sent.count,
        payload_bytes=[sent.payload_bytes] * (sent.count - 1) + [sent.last_bytes or sent.payload_bytes],
        issued_s=[first, *ends[:-1]],
        done_s=ends,
    )


def link(
    alpha_s: float,
    beta_bytes_per_s: float,
    *,
    world_size: int = 2,
    rate_bits_per_s: int | None = None,
    exponent: int = 1,
) -> Callable[[Path], None]:
    """The collective benchmark of a link that follows its cost model to the nanosecond."""
    sizes = [1024 * 4**k for k in range(8)]
    samples = [
        CommSample(
            collective=name,
            size_bytes=size,
            begin_ns=0,
            end_ns=round(1e9 * cost_s(name, world_size, alpha_s, beta_bytes_per_s, size, 0.0, exponent)),
            clock_error_ns=0,
            calls=1,
            wrong_elements=0,
        )
        for name in ("all-reduce", "broadcast", "gather", "scatter")
        for size in sizes
        for _ in range(3)
    ]
    placement = Placement(
        processes=world_size, threads_per_worker=1, cores=(), oversubscribed=False, device="cpu", backend="gloo"
    )
    hosts = None if rate_bits_per_s is None else Hosts(count=world_size, rate_bits_per_s=rate_bits_per_s)
    record = CommRecord(
        provenance=provenance(),
        world_size=world_size,
        placement=placement,
        hosts=hosts,
        ranks=[samples] * world_size,
    )
    return lambda folder: write_comm(folder, record)


def records(cell: MadeCell, change: Callable[[CellRecord], None]) -> Callable[[Path], None]:
    """Change the record of a cell."""

    def apply(folder: Path) -> None:
        record = load_run(folder).cells[cell.id].record
        change(record)
        write_cell(folder, record)

    return apply


def acting(cell: MadeCell, *ranks: dict[str, float]) -> Callable[[Path], None]:
    """What the thread of each rank did per step in all blocks of a cell: columns of BlockActivity; the others are 0.

    What is collected is collected in one step of ten.
    """
    steps_of_block = 10
    names = ("cpu_s", "queued_s", "collected_s", "major_faults")

    def change(record: CellRecord) -> None:
        columns = {name: [each.get(name, 0.0) * steps_of_block for each in ranks] for name in names}
        columns["most_collected_s"] = [
            each.get("most_collected_s", 10 * each.get("collected_s", 0.0)) for each in ranks
        ]
        record.activities = [
            BlockActivity.model_validate({"session": 0, "block": block, "steps": steps_of_block, **columns})
            for block in range(6)
        ]

    return records(cell, change)
