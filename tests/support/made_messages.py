"""Messages and links for made runs: what a rank's spans and the collective benchmark would have left of them."""

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from made_runs import MadeCell, provenance
from worldsize.analysis.collective_cost import cost_s
from worldsize.config import Hosts
from worldsize.results.comm_records import CommRecord, CommSample
from worldsize.results.files import cell_folder
from worldsize.results.folder import write_comm
from worldsize.results.records import Placement
from worldsize.results.samples import TAKEN_APART
from worldsize.results.step_records import SpanRecord


def with_messages(run: Path, cells: Sequence[MadeCell]) -> Path:
    """The run with marks in place of parts, and with messages where they go between processes."""
    for cell in cells:
        if cell.processes > 1 and cell.comm_s:
            add_messages(run, cell, count=4)
        elif not cell.comm_s:
            add_marks(run, cell)
    return run


def add_marks(run: Path, cell: MadeCell) -> None:
    """Let the steps of a cell have marks in place of parts."""
    for rank in range(cell.processes):
        mark(cell_folder(run, cell.id) / f"rank{rank}.jsonl")


def mark(path: Path) -> list[dict[str, Any]]:
    """Let the steps of a rank have marks in place of parts; returns the steps with their parts."""
    steps = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("".join(f"{json.dumps(marked(step))}\n" for step in steps), encoding="utf-8")
    return steps


def marked(step: dict[str, Any]) -> dict[str, Any]:
    """The line of a step with marks in place of its parts; exposed communication ends its backward."""
    lengths = {
        "data_wait": step["data_wait_s"],
        "copy": step["copy_s"],
        "forward": step["forward_s"],
        "backward": step["backward_s"] + step["exposed_sync_s"],
        "synchronise": 0.0,
        "optimizer": step["optimizer_s"],
    }
    ends = {f"{name}_end_s": end for name, end in zip(lengths, accumulate(lengths.values()), strict=True)}
    computed = {"last_gradient_s": ends["forward_end_s"] + step["backward_s"]}
    return {**{name: value for name, value in step.items() if name not in TAKEN_APART}, **ends, **computed}


def add_messages(run: Path, cell: MadeCell, *, count: int, kind: str = "all_reduce", late_s: float = 0.0) -> None:
    """Give every step of a made cell `count` messages, one after the other, that are as long as its communication.

    They end when its exposed communication does. Rank 0 issues each `late_s` before the others: it waits.
    """
    for rank in range(cell.processes):
        place = cell_folder(run, cell.id)
        steps = mark(place / f"rank{rank}.jsonl")
        spans = [_spans(step, count, kind, late_s if rank == 0 else 0.0) for step in steps]
        text = "".join(f"{span.model_dump_json()}\n" for span in spans)
        (place / f"rank{rank}.spans.jsonl").write_text(text, encoding="utf-8")


def _spans(step: dict[str, float], count: int, kind: str, early_s: float) -> SpanRecord:
    end = sum(step[part] for part in ("data_wait_s", "copy_s", "forward_s", "backward_s", "exposed_sync_s"))
    begin, each = end - step["comm_s"], step["comm_s"] / count
    return SpanRecord(
        session=int(step["session"]),
        step=int(step["step"]),
        kind=[kind] * count,
        payload_bytes=[10**6] * count,
        blocking=[kind != "all_reduce"] * count,
        ready_s=[None] * count,
        issued_s=[begin + number * each - early_s for number in range(count)],
        done_s=[begin + (number + 1) * each for number in range(count)],
    )


def add_link(
    run: Path,
    world_size: int,
    *,
    gb_per_s: float = 1.0,
    collective: str = "all-reduce",
    others: Sequence[str] = (),
    alpha_s: float = 0.0,
    sizes: Sequence[int] = (10**4, 10**6, 10**8),
    hosts: Hosts | None = None,
) -> None:
    """A collective benchmark between so many workers whose latency and peak in bus bandwidth are known.

    `others` are further collectives that have the same.
    """
    samples = [
        CommSample(
            collective=name,
            size_bytes=size,
            begin_ns=0,
            end_ns=round(1e9 * cost_s(name, world_size, alpha_s, 1e9 * gb_per_s, size)),
            clock_error_ns=0,
            calls=1,
            wrong_elements=0,
        )
        for name in (collective, *others)
        for size in sizes
    ]
    placement = Placement(
        processes=world_size,
        threads_per_worker=1,
        cores=tuple((rank,) for rank in range(world_size)),
        oversubscribed=False,
        device="cpu",
        backend="gloo",
    )
    ranks = [list(samples) for _ in range(world_size)]
    write_comm(
        run, CommRecord(provenance=provenance(), world_size=world_size, placement=placement, ranks=ranks, hosts=hosts)
    )
