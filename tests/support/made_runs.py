"""Run folders with known truth, written through the record classes: what the tests of analysis and report read.

A `MadeCell` says what is true of a cell (its step time, how it is made up, how noisy it is); `make_run` writes the
samples that a study on a drifting machine would leave of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from worldsize.config import CellSettings, StudySettings
from worldsize.results.files import cell_folder
from worldsize.results.folder import write_cell, write_study
from worldsize.results.provenance import Host, Provenance
from worldsize.results.records import (
    STEP_PARTS,
    CellRecord,
    CellState,
    ErrorRecord,
    Placement,
    StudyRecord,
    WarningRecord,
)
from worldsize.results.samples import TakenApartStep
from worldsize.results.training_records import DataRecord, Evaluation, ModelRecord
from worldsize.wire import WireBytes

Drift = Callable[[float], float]
"""Factor on all step times at a moment of a session, in turns (1.5 is the middle of the second turn)."""

SHARES = {"data_wait_s": 0.02, "forward_s": 0.3, "backward_s": 0.6, "optimizer_s": 0.05, "other_s": 0.03}
"""How a step of one worker is made up."""
PAYLOAD_BYTES = 44_695_848
TURN_S = 1_000
"""From the start of one turn to that of the next."""


@dataclass(frozen=True)
class MadeCell:
    """What is true of a cell."""

    strategy: str
    world_size: int
    batch_size: int = 32
    step_s: float = 0.5
    """The time at which the slowest rank ends a step, on a machine without noise or drift."""
    shares: dict[str, float] = field(default_factory=lambda: dict(SHARES))
    """Share of each part of the step; parts that are not named are 0, and they must add up to 1."""
    comm_s: float = 0.0
    overlapped_s: float = 0.0
    noise: float = 0.0
    """Standard deviation of the logarithm of a step's time."""
    blocks: int = 6
    block_steps: int = 3
    warmup_steps: int = 2
    session: int = 0
    state: CellState = "complete"
    error: ErrorRecord | None = None
    warnings: tuple[WarningRecord, ...] = ()
    oversubscribed: bool = False
    threads: int = 1
    losses: Callable[[int], float | None] = lambda step: 2.3 / (1 + 0.05 * step)
    """Training loss at a step."""
    rank_spread: float = 0.1
    """How much sooner than the slowest rank the fastest one is done, as a share of the step."""
    label: str = ""

    @property
    def settings(self) -> CellSettings:
        return CellSettings(
            strategy=self.strategy,
            world_size=self.world_size,
            batch_size=self.batch_size,
            steps=18,
            label=self.label,
        )

    @property
    def id(self) -> str:
        return self.settings.id

    @property
    def processes(self) -> int:
        return 1 if self.strategy == "data-parallel" else self.world_size


def synchronised(shares: dict[str, float], exposed: float) -> dict[str, float]:
    """The parts of a step in which `exposed` of the time is exposed communication."""
    return {**{part: share * (1 - exposed) for part, share in shares.items()}, "exposed_sync_s": exposed}


def usual_cells(*, blocks: int = 6, noise: float = 0.01) -> list[MadeCell]:
    """A study as `make study` leaves it: ddp reaches exactly 1.8 times the samples/s of one worker."""

    def several(strategy: str, speedup: float, exposed: float, overlapped: float = 0.0) -> MadeCell:
        step_s = 0.5 * 2 / speedup
        return MadeCell(
            strategy,
            2,
            step_s=step_s,
            shares=synchronised(SHARES, exposed),
            comm_s=exposed * step_s + overlapped,
            overlapped_s=overlapped,
            noise=noise,
            blocks=blocks,
        )

    return [
        MadeCell("single", 1, noise=noise, blocks=blocks),
        MadeCell("ddp", 1, step_s=0.51, noise=noise, blocks=blocks),
        several("data-parallel", 1.3, 0.12),
        several("gather-scatter", 1.45, 0.2),
        several("all-reduce", 1.65, 0.11),
        several("ddp", 1.8, 0.06, overlapped=0.05),
    ]


def steady(_: float) -> float:
    """A machine that does not drift."""
    return 1.0


def make_run(
    folder: Path,
    cells: Sequence[MadeCell],
    *,
    drift: Drift = steady,
    seed: int = 0,
    never_started: Sequence[MadeCell] = (),
    name: str = "made",
    model: str = "resnet18",
    allow_oversubscribed: bool = False,
    warnings: Sequence[WarningRecord] = (),
    sessions: Sequence[Provenance] = (),
    train_samples: int = 1536,
) -> Path:
    """Write a run folder whose cells were timed in turns (A B C A B C …), and return it."""
    generator = np.random.default_rng(seed)
    for position, cell in enumerate(cells):
        write_cell(folder, _cell_record(cell, train_samples))
        _write_steps(folder, cell, position / max(1, len(cells)), drift, generator)
    settings = StudySettings(model=model, steps=18, allow_oversubscribed=allow_oversubscribed)
    record = StudyRecord(
        name=name,
        settings=settings,
        plan=[cell.id for cell in (*cells, *never_started)],
        provenance=provenance(),
        data=DataRecord(
            name="digits",
            train_samples=train_samples,
            test_samples=261,
            shape=(3, 32, 32),
            classes=10,
            verification="embedded",
        ),
        model=ModelRecord(
            name=model,
            parameters=11_173_962,
            parameter_bytes=PAYLOAD_BYTES,
            buffer_bytes=38_720,
            gradient_tensors=62,
        ),
        warnings=list(warnings),
        sessions=list(sessions),
    )
    write_study(folder, record)
    return folder


def provenance(*, hostname: str = "node", torch_version: str = "2.13.0+cpu") -> Provenance:
    """Where a made run claims to come from."""
    host = Host(
        hostname=hostname,
        system="Linux 6.1",
        cpu_model="A processor",
        logical_cores=2,
        physical_cores=2,
        allowed_cores=(0, 1),
        memory_bytes=8 * 2**30,
        load_1min=0.25,
        interfaces={"lo": ["127.0.0.1"]},
    )
    return Provenance(
        created="2026-01-01T00:00:00Z",
        command=("worldsize", "study", "--steps", "18"),
        worldsize_version="0.1.0",
        commit="0123456789abcdef",
        python_version="3.11.2",
        torch_version=torch_version,
        host=host,
        environment={"OMP_NUM_THREADS": "1"},
    )


def _cell_record(cell: MadeCell, train_samples: int) -> CellRecord:
    n = cell.world_size
    wire = WireBytes(
        payload_bytes=PAYLOAD_BYTES,
        busiest_rank_bytes=2 * (n - 1) * PAYLOAD_BYTES // n,
        other_rank_bytes=2 * (n - 1) * PAYLOAD_BYTES // n,
        formula="2(N−1)/N·S",
    )
    complete = cell.state == "complete"
    return CellRecord.of(
        cell.settings,
        state=cell.state,
        error=cell.error,
        warnings=list(cell.warnings),
        placement=Placement(
            processes=cell.processes,
            threads_per_worker=cell.threads,
            cores=tuple((rank,) for rank in range(n)),
            oversubscribed=cell.oversubscribed,
            device="cpu",
            backend="gloo",
        ),
        wire=wire,
        ended_by="cap" if complete else None,
        steps_per_epoch=train_samples // cell.settings.global_batch,
        evaluations=[Evaluation(epoch=0, step=20, test_loss=0.5, test_accuracy=0.875, test_samples=261)]
        if complete
        else [],
    )


def _write_steps(folder: Path, cell: MadeCell, offset: float, drift: Drift, generator: np.random.Generator) -> None:
    """One file per process; the last rank is the slowest, and its steps take the times that were asked for."""
    place = cell_folder(folder, cell.id)
    steps = cell.warmup_steps + cell.blocks * cell.block_steps
    noise = np.exp(cell.noise * generator.standard_normal(steps))
    for rank in range(cell.processes):
        behind = cell.processes - 1 - rank
        early = 1 - cell.rank_spread * behind / max(1, cell.processes - 1)
        lines: list[str] = []
        begins_s: dict[int, float] = {}
        for step in range(steps):
            timed = step - cell.warmup_steps
            block = max(0, timed // cell.block_steps)
            within = max(0, timed % cell.block_steps) / cell.block_steps
            # The cells of a turn run one after the other, and a machine drifts on between them.
            world_s = cell.step_s * noise[step] * drift(block + offset + within / 100)
            # All ranks begin a step when the last one has ended the one before it.
            begin_s = begins_s.setdefault(block, TURN_S * (block + offset))
            lines.append(_line(cell, step, block, early * world_s, start_ns=round(1e9 * begin_s)))
            begins_s[block] += world_s
        (place / f"rank{rank}.jsonl").write_text("".join(lines), encoding="utf-8")


def _line(cell: MadeCell, step: int, block: int, step_s: float, start_ns: int) -> str:
    stretch = step_s / cell.step_s
    samples = cell.settings.global_batch // cell.processes
    parts: dict[str, Any] = {part: cell.shares.get(part, 0.0) * step_s for part in STEP_PARTS}
    record = TakenApartStep(
        session=cell.session,
        block=block,
        step=step,
        epoch=0,
        timed=step >= cell.warmup_steps,
        samples=samples,
        loss=cell.losses(step),
        start_ns=start_ns,
        step_s=step_s,
        comm_s=cell.comm_s * stretch,
        overlapped_s=cell.overlapped_s * stretch,
        **parts,
    )
    return record.model_dump_json() + "\n"


def messy_cells() -> list[MadeCell]:
    """Everything that can go wrong in one study: cells that failed, were cut short, crowded, or hostile by name."""
    error = ErrorRecord(
        kind="OutOfMemoryError", message="<script>alert('reason')</script>\ntried to allocate 2 GiB", rank=1
    )
    busy = WarningRecord(code="busy-machine", message="<script>alert('warning')</script> load 3.5 on 2 cores")
    return [
        MadeCell("single", 1, noise=0.01, warnings=(busy,)),
        MadeCell("single", 1, 64, step_s=0.9, noise=0.01, warnings=(busy,)),
        MadeCell("ddp", 2, step_s=0.55, noise=0.01, shares=synchronised(SHARES, 0.08), comm_s=0.1, overlapped_s=0.05),
        MadeCell("ddp", 4, step_s=0.6, noise=0.01, shares=synchronised(SHARES, 0.12), comm_s=0.1, overlapped_s=0.03),
        MadeCell("all-reduce", 2, state="failed", error=error),
        MadeCell("all-reduce", 4, state="interrupted", blocks=1),
        MadeCell("gather-scatter", 2, blocks=0),
        MadeCell("gather-scatter", 4, state="running", blocks=2, session=1, noise=0.01),
        MadeCell("data-parallel", 4, oversubscribed=True),
        MadeCell("<script>alert('strategy')</script>:Mine", 2, step_s=0.7),
    ]
