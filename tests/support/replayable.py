"""A measured run with known marks: what its ranks computed, and when their gradients came, is exactly this."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from made_runs import MadeCell, make_run
from worldsize.config import CellSettings
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run, write_cell
from worldsize.results.step_records import SpanRecord, StepRecord
from worldsize.results.training_records import GradientTimes

DATA_S, FORWARD_S, BACKWARD_S, SYNCHRONISE_S, OPTIMIZER_S, OTHER_S = 0.002, 0.010, 0.030, 0.020, 0.004, 0.001
"""Of each step of two workers; the second rank computes LATE_S longer in forward."""
LATE_S = 0.005
COMPUTED_S = DATA_S + FORWARD_S + BACKWARD_S + OPTIMIZER_S + OTHER_S
SIZES = (4_000, 400_000, 40_000, 4_000)
"""Bytes of the gradients, in the model's order."""
SHARES = (1.0, 0.9, 0.5, 0.4)
STEPS = 6
PACKED_S, PACKED_UNTIL_S = 0.003, 0.002
"""`bucketed` packs its only bucket from so long before the mark of its last gradient, and until so long before it."""


def replayable(folder: Path, cells: Sequence[MadeCell] | None = None) -> Path:
    """A run of one worker and of two, with `all-reduce` and `ddp`, at b = 32."""
    made = cells or [MadeCell("single", 1), MadeCell("all-reduce", 2), MadeCell("ddp", 2)]
    make_run(folder, [MadeCell(**{**vars(cell), "blocks": 2, "block_steps": STEPS // 2}) for cell in made])
    for cell in load_run(folder).cells.values():
        record = cell.record
        record.gradients = GradientTimes(sizes_bytes=SIZES, ready_share=SHARES, steps=9)
        record.summary = None
        write_cell(folder, record)
        for rank in range(record.world_size):
            _write(cell_folder(folder, record.id), rank, record.world_size)
    return folder


def _write(place: Path, rank: int, world_size: int) -> None:
    synchronise_s = SYNCHRONISE_S if world_size > 1 else 0.0
    forward_s = FORWARD_S + (LATE_S if rank else 0.0)
    waited_s = 0.0 if rank else (LATE_S if world_size > 1 else 0.0)
    lengths = (DATA_S, 0.0, forward_s, BACKWARD_S, waited_s + synchronise_s, OPTIMIZER_S)
    names = ("data_wait", "copy", "forward", "backward", "synchronise", "optimizer")
    ends = dict(zip((f"{name}_end_s" for name in names), accumulate(lengths), strict=True))
    step_s, begin_ns = sum(lengths) + OTHER_S, 1_000_000_000
    steps, spans = [], []
    for number in range(STEPS):
        steps.append(
            StepRecord.model_validate(
                {
                    **{"session": 0, "block": number // (STEPS // 2), "step": number, "epoch": 0, "timed": True},
                    **{"samples": 32, "loss": 1.0, "start_ns": begin_ns, "step_s": step_s},
                    **{"last_gradient_s": ends["backward_end_s"], **ends},
                }
            )
        )
        begin_ns += round(step_s * 1e9)
        if world_size > 1:
            bucketed = place.name.startswith("bucketed")
            spans.append(_span(number, ends["backward_end_s"], ends["synchronise_end_s"], bucketed=bucketed))
    (place / f"rank{rank}.jsonl").write_text("".join(f"{step.model_dump_json()}\n" for step in steps))
    (place / f"rank{rank}.spans.jsonl").write_text("".join(f"{span.model_dump_json()}\n" for span in spans))


def _span(step: int, begin_s: float, end_s: float, *, bucketed: bool) -> SpanRecord:
    ready_s = begin_s - PACKED_S if bucketed else None
    return SpanRecord(
        session=0,
        step=step,
        kind=["all_reduce"],
        payload_bytes=[sum(SIZES)],
        blocking=[not bucketed],
        ready_s=[ready_s],
        issued_s=[begin_s - PACKED_UNTIL_S if bucketed else begin_s],
        done_s=[end_s],
    )


def cell_settings(**settings: object) -> CellSettings:
    """Settings of a cell; those of the made run where nothing is given."""
    return CellSettings.model_validate({"strategy": "single", "world_size": 1, "batch_size": 32, **settings})
