"""What a rehearsal replays: the computing of measured steps, without the messages in them (method.md §15)."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from worldsize.analysis.parts import STEP, messages_of, stretches_of
from worldsize.analysis.steps import timed_steps
from worldsize.config import CellSettings
from worldsize.errors import OutputError, UsageError
from worldsize.results.folder import Cell, Run
from worldsize.results.records import CellRecord
from worldsize.results.replay import PHASES, Replay, ReplayedCell
from worldsize.results.training_records import GradientTimes
from worldsize.traits import ALL_CORES, BASELINE_STRATEGY, traits_of

MAX_NUMBERS = 200_000
"""Steps × ranks that are kept of a cell at most; further blocks would tell no more of its spread."""
PHASE_OF = {"data_wait": "data", "copy": "data", "forward": "forward", "backward": "backward", "optimizer": "optimizer"}
"""Stretch of a step → what it is replayed as. What lies between the last gradient and the optimizer is messages, and
work on them: a rehearsal does it."""
AGAIN = "Measure it again with this version: worldsize study --strategies single,ddp --world-sizes 1,2 …"


class Wanted(NamedTuple):
    """What is to be rehearsed."""

    strategies: tuple[str, ...]
    batch_size: int
    world_size: int
    alone: bool
    """Whether the run has one worker at this batch, to compare with."""


def wanted(run: Run, strategies: Sequence[str] | None, batch_size: int | None, world_size: int) -> Wanted:
    """What was asked for, where the run has it. Raises UsageError where it has not."""
    if (accumulate := run.study.asked.accumulate) > 1:
        raise UsageError(
            f"{run.folder} has {accumulate} micro-batches in a step (--accumulate); a rehearsal replays one\n"
            "Measure it without --accumulate."
        )
    if not run.study.trains:
        raise UsageError(
            f"{run.folder} is of a script or a metered loop: when its backward has each gradient is not known, and a "
            "rehearsal needs that\nMeasure the model by worldsize study --model or --workload."
        )
    cells = _usable(run)
    if not cells and run.unread:
        raise UsageError(f"the cells of {run.folder} cannot be read: {next(iter(run.unread.values()))}")
    if not cells:
        raise UsageError(f"{run.folder} has no cell with timed steps of a training of worldsize's own\n{AGAIN}")
    batches = sorted({cell.record.batch_size for cell in cells})
    measured = ", ".join(map(str, batches))
    if batch_size is None and len(batches) > 1:
        raise UsageError(f"{run.folder} has local batches of {measured}\nGive one of them with --batch-size.")
    batch = batches[0] if batch_size is None else batch_size
    if batch not in batches:
        raise UsageError(f"batch size {batch} was given; {run.folder} has measured {measured}\nGive one of these.")
    here = [cell.record for cell in cells if cell.record.batch_size == batch]
    several = dict.fromkeys(record.strategy for record in here if _processes(record) > 1)
    if away := [name for name in strategies or () if traits_of(name).travels != "gradients"]:
        raise UsageError(
            f"strategy {away[0]} was given; its ranks exchange {traits_of(away[0]).travels}, and a rehearsal has "
            "gradients alone\nGive other --strategies."
        )
    several = {name: None for name in several if traits_of(name).travels == "gradients"}
    chosen = tuple(name for name in dict.fromkeys(strategies or several) if name != BASELINE_STRATEGY)
    if not chosen:
        what = f"{BASELINE_STRATEGY} alone was given" if strategies else f"{run.folder} has none of these"
        raise UsageError(
            f"a rehearsal needs a strategy of several workers that exchange gradients, and {what}\n"
            "Give --strategies, such as ddp,bucketed."
        )
    if alone := [name for name in chosen if not traits_of(name).collectives]:
        raise UsageError(
            f"strategy {alone[0]} was given; it runs in one process, on one host\nGive other --strategies."
        )
    return Wanted(chosen, batch, world_size, any(record.world_size == 1 for record in here))


def replay_of(run: Run, what: Wanted) -> Replay:
    """The steps that the cells of a rehearsal replay.

    Raises UsageError for a run without the marks or the gradients that this takes, OutputError for damaged samples.
    """
    model = run.study.model
    if model is None:
        raise UsageError(f"{run.folder} does not say what its model is made of\n{AGAIN}")
    cells = _usable(run)
    watched, gradients = _gradients(run, cells, what.batch_size)
    at_batch = [cell for cell in cells if cell.record.batch_size == what.batch_size]
    sources = {(name, what.world_size): _source(at_batch, name) for name in what.strategies}
    if what.alone:
        sources[BASELINE_STRATEGY, 1] = min(
            (cell for cell in at_batch if cell.record.world_size == 1),
            key=lambda cell: cell.record.strategy != BASELINE_STRATEGY,
        )
    found = {id(cell): replayed(cell) for cell in sources.values()}
    last = max(gradients.ready_share)  # below 1 where medians are of steps that end with one or another gradient
    return Replay(
        run=run.study.name,
        gradients_of=watched,
        sizes_bytes=gradients.sizes_bytes,
        ready_share=tuple(share / last for share in gradients.ready_share),
        element_bytes=round(model.parameter_bytes / model.parameters),
        buffer_bytes=model.buffer_bytes,
        cells={
            CellSettings(strategy=name, world_size=size, batch_size=what.batch_size).id: found[id(cell)]
            for (name, size), cell in sources.items()
        },
    )


def replayed(cell: Cell) -> ReplayedCell:
    """The computing of the timed steps of a cell. Raises UsageError where no phase of them was marked."""
    counting = timed_steps(cell).select("session", "block", "step").sort("session", "step")
    counting = counting.head(max(1, MAX_NUMBERS // max(1, _processes(cell.record))))
    steps = cell.collect(cell.scan_steps().join(counting.lazy(), on=["session", "step"], how="semi"))
    steps = steps.sort("rank", "session", "step")
    spans = cell.collect(cell.scan_spans().join(steps.lazy().select(STEP), on=STEP, how="semi"))
    if steps["phases"].is_not_null().any() or steps["forward_end_s"].null_count():
        raise UsageError(f"the steps of {cell.record.id} have no marks of forward and backward\n{AGAIN}")
    times_ns = _computing_ns(_without_packing(steps, spans), spans).reshape(len(PHASES), _processes(cell.record), -1)
    lengths = counting.group_by("session", "block", maintain_order=True).len()["len"]
    return ReplayedCell(
        source=cell.record.id,
        source_world_size=cell.record.world_size,
        blocks=tuple(lengths.to_list()),
        times_us=tuple(
            tuple(tuple(round(each / 1e3) for each in phase) for phase in times_ns[:, rank])
            for rank in range(times_ns.shape[1])
        ),
    )


def _without_packing(steps: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The same, with backward ended when the last bucket had all of its gradients.

    A strategy in Python packs and sends a bucket in the hook of its last gradient, before that gradient is marked; a
    rehearsal does both itself. The mark stays where a bucket was left over after backward, and where a second message
    follows the one of a bucket (PowerSGD): not all messages say then when their gradients were there.
    """
    once = spans.unique(STEP, keep="last")
    known = once.select(*STEP, "ready_s", "blocking").drop_nulls().explode("ready_s", "blocking")
    buckets = known.filter(~pl.col("blocking")).group_by(STEP)
    all_ready = pl.when(pl.col("ready_s").is_not_null().all()).then(pl.col("ready_s").max())
    found = steps.join(buckets.agg(all_ready.alias("ready_s")), on=STEP, how="left", maintain_order="left")
    return found.with_columns(last_gradient_s=pl.min_horizontal("last_gradient_s", "ready_s")).drop("ready_s")


def _computing_ns(steps: pl.DataFrame, spans: pl.DataFrame) -> NDArray[np.int64]:
    """Time of each of PHASES in each step, without messages that held it."""
    found = np.zeros((len(PHASES), steps.height), np.int64)
    for rows, stretches, exposed, _ in stretches_of(steps, messages_of(steps, spans)):
        own = stretches.ends - stretches.starts - exposed
        for place, name in enumerate(stretches.names):
            phase = PHASE_OF.get(name) or ("other" if place == len(stretches.names) - 1 else None)
            if phase is not None:
                found[PHASES.index(phase)][rows] += own[:, place]
    return found


def _usable(run: Run) -> list[Cell]:
    """Cells of a training of ours with timed steps, whose workers are processes."""
    return [cell for cell in run.cells.values() if _is_usable(cell)]


def _is_usable(cell: Cell) -> bool:
    record = cell.record
    if record.label == ALL_CORES:  # it computes with more cores than a worker of several has
        return False
    if record.settings is None or record.settings.program is not None or record.settings.replay is not None:
        return False
    if record.state not in ("complete", "interrupted") or _processes(record) != record.world_size:
        return False
    try:
        return timed_steps(cell).height > 0
    except OutputError:
        return False


def _processes(record: CellRecord) -> int:
    return record.placement.processes if record.placement else 0


def _source(cells: Sequence[Cell], strategy: str) -> Cell:
    """Where a strategy is replayed from: itself, with the most workers; else the largest other cell.

    So how much computing slows while messages travel is in it, as far as it was measured. A cell with more threads than
    cores comes last.
    """
    return max(cells, key=lambda cell: _worth(cell.record, strategy))


def _worth(record: CellRecord, strategy: str) -> tuple[bool, bool, int]:
    several = record.strategy == strategy and record.world_size > 1
    return not (record.placement and record.placement.oversubscribed), several, record.world_size


def _gradients(run: Run, cells: Sequence[Cell], batch_size: int) -> tuple[str, GradientTimes]:
    """When backward has each gradient: of the cell that has looked in most steps, at this batch if possible."""
    known: Iterator[tuple[CellRecord, GradientTimes]] = (
        (cell.record, cell.record.gradients) for cell in cells if cell.record.gradients
    )
    best = max(known, key=lambda each: (each[0].batch_size == batch_size, each[1].steps), default=None)
    if best is None:
        raise UsageError(
            f"{run.folder} does not say when backward has each gradient: no step without messages fitted into its "
            f"budget, or an older version has measured it\n{AGAIN}"
        )
    return best[0].id, best[1]
