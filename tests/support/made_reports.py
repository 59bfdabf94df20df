"""Run folders that have the shape of real ones: the four experiments, and what else a reader may meet.

`made_runs` writes what is timed in a cell; here it gets what a study writes beside it: messages of each step, the
link's benchmark, evaluations, proofs, memory, profiles and further parts.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from made_messages import mark
from made_runs import SHARES, MadeCell, make_run, messy_cells, provenance, synchronised
from made_traces import rank_of, write_traces
from worldsize.analysis.collective_cost import cost_s
from worldsize.config import StudySettings, read_study, validated
from worldsize.results.check_records import VerifyRecord
from worldsize.results.comm_records import CommRecord, CommSample
from worldsize.results.folder import Cell, load_run, write_cell, write_comm, write_study
from worldsize.results.records import CellRecord, ErrorRecord, Placement, WarningRecord
from worldsize.results.step_records import SpanRecord, UnobservedBlock
from worldsize.results.training_records import Divergence, Evaluation, MessageCount

MESSAGES = {
    "gather-scatter": ("gather", "scatter"),
    **dict.fromkeys(("all-reduce", "ddp", "ddp-bf16", "bucketed-fp16"), ("all_reduce",)),
}
"""Kinds of the messages of a strategy's step; `data-parallel` has none that a timeline sees."""
BUSY = WarningRecord(
    code="busy-machine",
    message="the load was 1.5 at the start, on 2 cores: other work makes steps slower and their times spread.\n"
    "No busy process is visible now: measure again when the machine is quiet.",
)
UNVERIFIED = WarningRecord(code="unverified-data", message="the files in /data/cifar-10-batches-bin are not verified")


def batch_sweep(folder: Path) -> Path:
    """A: five batches, the largest does not fit into memory."""
    memory = ErrorRecord(
        kind="OutOfMemory",
        message="[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
        "to allocate 9437184 bytes. Error code 12 (Cannot allocate memory)",
        rank=0,
    )
    times = {16: 0.26, 64: 0.7, 128: 1.3, 160: 1.61}
    cells = [MadeCell("single", 1, b, step_s=step_s, noise=0.02) for b, step_s in times.items()]
    cells.append(MadeCell("single", 1, 256, state="failed", error=memory, blocks=0))
    return _experiment(folder, "batch-sweep", cells, {"batch_sizes": (16,), "epochs": None, "steps": 4})


def dp_scaling(folder: Path) -> Path:
    """B: DataParallel on one, two and four workers, two local batches."""
    alone = [MadeCell("single", 1, b, step_s=step_s, noise=0.02) for b, step_s in ((16, 0.3), (32, 0.5))]
    several = [
        _several("data-parallel", n, b, step_s * (1 + 0.2 * n), 0.1)
        for n in (2, 4)
        for b, step_s in ((16, 0.3), (32, 0.5))
    ]
    return _experiment(folder, "dp-scaling", [*alone, *several], {"world_sizes": (1, 2, 4), "batch_sizes": (16, 32)})


def ddp_large_batch(folder: Path) -> Path:
    """C: DDP on one and two workers with its link, then accuracy by rule, then what breaks."""
    cells = [MadeCell("single", 1, b, step_s=b / 60, noise=0.02) for b in (16, 32)]
    cells += [_several("ddp", 2, b, b / 50, 0.08) for b in (16, 32)]
    changed = {"world_sizes": (1, 2), "batch_sizes": (16, 32), "accuracy_epochs": 2, "accuracy_batch": 64}
    changed |= {"accuracy_base_batch": 32, "seeds": 1, "target_accuracy": 0.4}
    rules = [MadeCell("single", 1, 32, label="baseline")]
    rules += [_several("ddp", 2, 64, 1.2, 0.08, label=label) for label in ("no-rule", "linear", "linear-warmup")]
    left_out = [f"without-{name}" for name in ("sampler-epoch", "initial-weights", "learning-rate", "buffers")]
    shown = [_several("ddp", 2, 16, 0.3, 0.08, label=label) for label in ("agreed", *left_out)]
    _experiment(folder / "parts" / "accuracy", "", rules, {}, epochs=2)
    _experiment(folder / "parts" / "demonstrations", "", shown, {}, epochs=2)
    return _experiment(folder, "ddp-large-batch", cells, changed)


def sync_ladder(folder: Path) -> Path:
    """D: four rungs on emulated hosts, profiled; the comparison warns of a busy machine."""
    cells = [
        MadeCell("single", 1, 64, step_s=1.0, noise=0.02),
        _several("gather-scatter", 2, 32, 0.9, 0.3),
        _several("all-reduce", 2, 32, 0.7, 0.2),
        _several("ddp", 2, 32, 0.6, 0.08, warnings=(BUSY,)),
    ]
    changed = {"world_sizes": (1, 2), "global_batch": 64, "hosts": 2, "link": "1gbit"}
    _experiment(folder, "sync-ladder", cells, changed)
    for cell in load_run(folder).cells.values():
        write_traces(cell.folder, [rank_of(rank) for rank in range(_processes(cell.record))])
    return folder


def failures(folder: Path) -> Path:
    """Cells that failed, were cut short, crowded, never started, or are hostile by name."""
    never = [MadeCell("ddp", 2, 64)]
    return make_run(folder, messy_cells(), never_started=never, name="failures", warnings=[BUSY, UNVERIFIED])


def one_cell(folder: Path) -> Path:
    """What `worldsize train` leaves of one worker."""
    return make_run(folder, [MadeCell("single", 1, noise=0.02)], name="one")


def many_ranks(folder: Path) -> Path:
    """Sixty-four ranks, on emulated hosts of long names."""
    cells = [MadeCell("single", 1, 32, noise=0.01), _several("all-reduce", 64, 32, 0.7, 0.2)]
    cells.append(_several("ddp", 64, 32, 0.6, 0.1))
    make_run(folder, cells, name="a-run-on-sixty-four-ranks-with-a-name-that-is-as-long-as-people-make-them")
    _furnish(folder, epochs=1)
    return folder


def rungs(folder: Path) -> Path:
    """Exact and lossy strategies of two and four workers."""
    names = (("all-reduce", 0.9), ("ddp", 0.7), ("ddp-bf16", 0.5), ("bucketed-fp16", 0.45))
    several = [_several(name, n, 32, step_s * (1 + 0.1 * n), 0.4) for n in (2, 4) for name, step_s in names]
    return _experiment(folder, "", [MadeCell("single", 1, step_s=0.4, noise=0.02), *several], {})


RUNS: Mapping[str, Callable[[Path], Path]] = {
    "batch-sweep": batch_sweep,
    "dp-scaling": dp_scaling,
    "ddp-large-batch": ddp_large_batch,
    "sync-ladder": sync_ladder,
    "failures": failures,
    "one-cell": one_cell,
    "many-ranks": many_ranks,
    "rungs": rungs,
}
EXPERIMENT_RUNS = ("batch-sweep", "dp-scaling", "ddp-large-batch", "sync-ladder")


def _several(strategy: str, n: int, b: int, step_s: float, exposed: float, **more: Any) -> MadeCell:
    """Several workers, of whose step the share `exposed` is exposed communication, and half as much overlapped."""
    overlapped = 0.5 * exposed * step_s if strategy == "ddp" else 0.0
    return MadeCell(
        strategy,
        n,
        b,
        step_s=step_s,
        shares=synchronised(SHARES, exposed),
        comm_s=exposed * step_s + overlapped,
        overlapped_s=overlapped,
        noise=0.02,
        **more,
    )


def _experiment(folder: Path, name: str, cells: list[MadeCell], changed: Mapping[str, Any], *, epochs: int = 1) -> Path:
    make_run(folder, cells, name=name or folder.name, warnings=[UNVERIFIED])
    record = load_run(folder).study
    if name:
        settings = validated(StudySettings, {**read_study(name), **changed})
        write_study(folder, record.model_copy(update={"settings": settings}))
    _furnish(folder, epochs)
    return folder


def _furnish(folder: Path, epochs: int) -> None:
    """What a study leaves of its cells beside their steps."""
    run = load_run(folder)
    for cell in run.cells.values():
        if cell.record.state == "complete":
            write_cell(folder, _furnished(cell.record, epochs))
            messages_of(cell, MESSAGES.get(cell.record.strategy, ()))
    for n in {cell.record.world_size for cell in run.cells.values()} - {1}:
        write_comm(folder, made_link(n))


def _furnished(record: CellRecord, epochs: int) -> CellRecord:
    n = record.world_size
    together = None if n == 1 else Divergence(weights=[0.0] * n, buffers=[0.0, *[0.02] * (n - 1)])
    sent = [MessageCount(when="evaluation", kind="broadcast", calls=2, payload_bytes=38_720)] if n > 1 else []
    evaluations = [
        Evaluation(
            epoch=epoch,
            step=(epoch + 1) * 20 // epochs,
            test_loss=1.5 / (epoch + 1),
            test_accuracy=0.4 + 0.1 * epoch,
            test_samples=261,
            divergence=together,
            messages=sent,
            order="0123456789ab",
        )
        for epoch in range(epochs)
    ]
    first = [MessageCount(when="start", kind="broadcast", calls=3, payload_bytes=44_736_376)] if n > 1 else []
    step_s = 0.5 * record.batch_size / 32
    return record.model_copy(
        update={
            "evaluations": evaluations,
            "messages": first,
            "peak_memory_bytes": 2**29 + 2**22 * record.batch_size,
            "matmul_flops_per_s": 1.8e11,
            "verified": VerifyRecord(tolerance=1e-4, largest=3e-7 if n > 1 else None, samples="0123456789abcdef" * n),
            "unobserved": [UnobservedBlock(session=0, block=block, step_s=[step_s] * 3) for block in (0, 3)],
        }
    )


def messages_of(cell: Cell, kinds: tuple[str, ...]) -> None:
    """Four messages per step on each rank: the last of them ends with the step, but for the update of the weights."""
    if not kinds or cell.record.wire is None:
        return
    for path in sorted(cell.folder.glob("rank?.jsonl")) + sorted(cell.folder.glob("rank??.jsonl")):
        steps = mark(path)
        spans = "".join(f"{_span(step, kinds, cell.record.wire.payload_bytes).model_dump_json()}\n" for step in steps)
        path.with_suffix(".spans.jsonl").write_text(spans, encoding="utf-8")


def _span(step: Mapping[str, Any], kinds: tuple[str, ...], payload_bytes: int) -> SpanRecord:
    end = step["step_s"] - step["optimizer_s"] - step["other_s"]
    first, each = end - step["comm_s"], step["comm_s"] / 4
    return SpanRecord(
        session=step["session"],
        step=step["step"],
        kind=[kinds[k % len(kinds)] for k in range(4)],
        payload_bytes=[payload_bytes // 4] * 4,
        blocking=[kinds[k % len(kinds)] != "all_reduce" for k in range(4)],
        ready_s=[None] * 4,
        issued_s=[first + k * each for k in range(4)],
        done_s=[first + (k + 1) * each for k in range(4)],
    )


def made_link(n: int) -> CommRecord:
    """A link of 50 µs and 118 MB/s, as a gigabit one is."""
    sizes = [1024 * 4**k for k in range(8)]
    samples = [
        CommSample(
            collective=name,
            size_bytes=size,
            begin_ns=5_000,
            end_ns=5_000 + round(3e9 * (1 + 0.01 * again) * cost_s(name, n, 50e-6, 1.18e8, size)),
            clock_error_ns=50,
            calls=3,
            wrong_elements=0,
        )
        for name in ("all-reduce", "gather", "scatter", "broadcast")
        for again in range(3)
        for size in sizes
    ]
    placement = Placement(
        processes=n, threads_per_worker=1, cores=(), oversubscribed=False, device="cpu", backend="gloo"
    )
    return CommRecord(provenance=provenance(), world_size=n, placement=placement, ranks=[samples] * n)


def _processes(record: CellRecord) -> int:
    return record.placement.processes if record.placement else 1
