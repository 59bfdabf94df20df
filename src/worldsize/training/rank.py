"""One rank of a cell, from its start to its last turn: pin, build, take turns."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from worldsize.config import CellSettings
from worldsize.data import load_data
from worldsize.measure.activity import queued_by_all_s
from worldsize.measure.clocks import clock_for
from worldsize.measure.limits import forget_peak, matmul_flops_per_s, matmul_precision
from worldsize.measure.message_counter import MessageCounter
from worldsize.measure.timeline import Timeline
from worldsize.measure.user_code import user_files
from worldsize.ranks.checkpoint import agreed_checkpoint, restore
from worldsize.ranks.loop import Loop
from worldsize.ranks.memory import limit_memory
from worldsize.ranks.recorder import Recorder
from worldsize.ranks.setup import Rank, choose_device, further_group, group_of, pin, process_group, where
from worldsize.ranks.turns import Facts, Reply, Turn, Turns, run_turns
from worldsize.results.base import Record
from worldsize.results.checkpoints import checkpoint_folder
from worldsize.results.comm_records import AllReduceCost
from worldsize.results.files import cell_folder, read_record
from worldsize.results.imported import refuse_other_code
from worldsize.results.provenance import UserFile
from worldsize.results.records import Placement, StudyRecord
from worldsize.strategies import Channel, Observer, World
from worldsize.training.checkpoint import arrange_buckets
from worldsize.training.replay import ReplayTask
from worldsize.training.task import Task, task_of
from worldsize.training.trainer import Trainer
from worldsize.training.user_task import OwnBatches
from worldsize.training.workload import TrainingWorkload


def world_of(rank: Rank, settings: CellSettings, placement: Placement, device: torch.device, seen: Observer) -> World:
    """The world that the strategy of this process works in; `seen` observes its messages."""
    return World(
        channel=Channel(rank.rank, rank.processes, seen, further_group),
        world_size=settings.world_size,
        group=group_of(rank.processes),
        device=device,
        cores=placement.cores,
        threads_per_worker=placement.threads_per_worker,
        share_buffers="buffers" not in settings.leave_out,
        find_unused_parameters=settings.find_unused_parameters,
        options=settings,
    )


class Assignment(Record):
    """What a worker is told when it is started."""

    run: str
    """The run folder."""
    settings: CellSettings
    placement: Placement
    session: int
    launch: int = 0
    """How often the workers of this cell were started before in this session."""
    rate_is_known: bool = False
    """Whether an earlier launch has told the matrix-multiply rate."""
    first_step: int = 0
    """The number of its first step in the records: those of earlier launches are not used again."""
    link: AllReduceCost | None = None
    """Cost of an all-reduce between the ranks, where it was measured."""


def work(assignment: Assignment, turns: Turns) -> None:
    """Be one rank of a cell, from the first to the last turn. Raises what training raises."""
    rank = Rank.from_environment()
    pin(rank, assignment.placement)  # first: the backend's threads inherit the cores
    device = choose_device(rank, assignment.placement)
    with process_group(rank, assignment.placement, device):
        serve(assignment, turns, rank, device)


def serve(assignment: Assignment, turns: Turns, rank: Rank, device: torch.device) -> None:
    """Build everything and do all turns, within the process group. Raises what training raises."""
    pin(rank, assignment.placement)
    settings = assignment.settings
    if settings.memory_limit_bytes is not None and device.type == "cpu":
        limit_memory(settings.memory_limit_bytes)
    data = None if settings.workload or settings.replay else load_data(settings)
    timeline = Timeline(clock_for(device))
    world = world_of(rank, settings, assignment.placement, device, timeline)
    place = cell_folder(Path(assignment.run), settings.id)
    saved = agreed_checkpoint(checkpoint_folder(place), rank.rank, rank.processes) if settings.epochs else None
    if saved:
        world = dataclasses.replace(world, bucket_bytes=saved.bucket_bytes, bucket_groups=saved.bucket_groups)
    with MessageCounter("start") as counter:
        task = task_of(settings, data, Path(assignment.run))
        trainer = Trainer(settings, task, world, timeline, None if saved else assignment.link)
    same_code(assignment, user_files((*settings.trained, settings.strategy)))
    arithmetic = matmul_precision(device, settings.precision)
    known = assignment.rate_is_known or settings.replay is not None  # a rehearsal computes nothing
    compile_s = trainer.compile()
    facts = Facts(
        steps_per_epoch=trainer.batches.steps_per_epoch,
        steps=saved.step if saved else 0,
        wire=trainer.strategy.wire_bytes(trainer.sizes()),
        # The same workers on the same cores: once is enough, and it takes a good part of a launch.
        matmul_flops_per_s=None if known else matmul_flops_per_s(device, precision=arithmetic),
        matmul_precision=None if settings.replay else arithmetic,
        messages=counter.counts(),
        compile_s=compile_s,
        place=where(assignment.placement),
    )
    forget_peak(device)  # of the model's building and of the yardstick, which has large matrices on a GPU
    workload = TrainingWorkload(trainer, data, place)
    if saved:  # after everything else that draws from the random generators
        arrange_buckets(trainer)
        restore(workload, checkpoint_folder(place), saved)
    with Recorder(place, rank.rank, timeline.clock) as recorder:
        loop = Loop(
            workload,
            recorder,
            assignment.session,
            launch=assignment.launch,
            first_step=assignment.first_step,
        )
        with closing(loop):
            run_turns(turns, Reply(facts=facts), _taking(loop, task, trainer))


def _taking(loop: Loop, task: Task, trainer: Trainer) -> Callable[[Turn], Reply]:
    """How a turn is done, with what is to be told beside it."""
    compiled, batches = trainer.compiled, trainer.batches

    def telling(turn: Turn) -> Reply:
        reply = loop.take(turn)
        reply.warnings += compiled.warnings() if compiled else []
        if isinstance(batches, OwnBatches):
            reply.loader_processes = batches.loader_processes
        return reply

    return _waiting(loop.take, task) if trainer.settings.replay else telling


def _waiting(take: Callable[[Turn], Reply], task: Task) -> Callable[[Turn], Reply]:
    """The same turns, and how a rehearsal kept its times in each."""
    assert isinstance(task, ReplayTask), "a rehearsal replays"

    def waiting(turn: Turn) -> Reply:
        task.waits.taken()
        before_s, begun_s = queued_by_all_s(), time.perf_counter()
        reply = take(turn)
        after_s, took_s = queued_by_all_s(), time.perf_counter() - begun_s
        reply.replayed = task.waits.taken()
        if before_s is not None and after_s is not None:
            reply.replayed.queued_s, reply.replayed.turns_s = max(0.0, after_s - before_s), took_s
        return reply

    return waiting


def same_code(assignment: Assignment, files: Sequence[UserFile]) -> None:
    """Raise FactoryError where a file of the user's is not what it was when the study looked at it (method.md §11).

    Cells that are started later, or again, must not be of other code than the first. A host that does not see the run
    folder cannot tell.
    """
    study = Path(assignment.run) / "study.json"
    if not files or not study.exists():
        return
    record = read_record(StudyRecord, study)
    began = record.sessions[-1] if record.sessions else record.provenance
    known = began.user_code.digests if began.user_code else {}
    refuse_other_code(file.name for file in files if file.sha256 not in known.get(file.name, (file.sha256,)))


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """The entry that launch calls in each worker."""
    work(Assignment.model_validate(payload), turns)
