"""The whole life of one rank: settle, build, take turns, record."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from worldsize.config import CellSettings
from worldsize.data import DataSet, load_data
from worldsize.measure.clocks import clock_for
from worldsize.measure.limits import matmul_flops_per_s, peak_memory_bytes
from worldsize.measure.timeline import Timeline
from worldsize.results.folder import cell_folder
from worldsize.results.records import Placement, Record
from worldsize.training.evaluate import evaluate
from worldsize.training.recorder import Pending, Recorder
from worldsize.training.setup import Rank, choose_device, process_group, settle, world_of
from worldsize.training.trainer import Trainer
from worldsize.training.turns import Facts, Reply, Turn, Turns, run_turns


class Assignment(Record):
    """What a worker is told when it is started."""

    run: str
    """The run folder."""
    settings: CellSettings
    placement: Placement
    session: int


def work(assignment: Assignment, turns: Turns) -> None:
    """Be one rank of a cell, from the first to the last turn. Raises what training raises."""
    rank = Rank.from_environment()
    device = choose_device(rank, assignment.placement)
    with process_group(rank, assignment.placement, device):
        serve(assignment, turns, rank, device)


def serve(assignment: Assignment, turns: Turns, rank: Rank, device: torch.device) -> None:
    """Build everything and do all turns, within the process group. Raises what training raises."""
    settle(rank, assignment.placement)
    settings = assignment.settings
    data = load_data(settings)
    timeline = Timeline(clock_for(device))
    trainer = Trainer(settings, data, world_of(rank, settings, assignment.placement, device, timeline), timeline)
    facts = Facts(
        steps_per_epoch=trainer.batches.steps_per_epoch,
        wire=trainer.strategy.wire_bytes(settings.world_size, trainer.traffic()),
        matmul_flops_per_s=matmul_flops_per_s(device),
    )
    with Recorder(cell_folder(Path(assignment.run), settings.id), rank.rank, timeline.clock) as recorder:
        life = Life(trainer, data, recorder, assignment.session)
        run_turns(turns, Reply(facts=facts), life.take)


class Life:
    """Does the turns of one rank."""

    def __init__(self, trainer: Trainer, data: DataSet, recorder: Recorder, session: int) -> None:
        self.trainer = trainer
        self.data = data
        self.recorder = recorder
        self.session = session
        self.epoch = 0

    def take(self, turn: Turn) -> Reply:
        """Do one turn and reply."""
        reply = Reply()
        if turn.op == "steps":
            reply.step_s = self._steps(turn, turn.count)
        elif turn.op == "epoch":
            reply.step_s = self._steps(turn, self.trainer.batches.steps_per_epoch)
        elif turn.op == "evaluate":
            reply.evaluation = evaluate(self.trainer, self.data, epoch=self.epoch)
        reply.peak_memory_bytes = peak_memory_bytes(self.trainer.device)
        return reply

    def _steps(self, turn: Turn, count: int) -> list[float]:
        clock = self.trainer.timeline.clock
        clock.rebase()
        self.trainer.timeline.watching = turn.observe
        with _weights_kept(self.trainer) if not turn.synchronise else _nothing():
            times = [time for _ in range(count) for time in self._step(turn)]
            if turn.observe:
                times += self.recorder.flush()
        return times

    def _step(self, turn: Turn) -> list[float]:
        self.epoch, samples, loss = self.trainer.step(synchronise=turn.synchronise)
        step = self.trainer.timeline.take()
        if not turn.observe:
            clock = self.trainer.timeline.clock
            return [(clock.read(step.ends[-1]) - clock.read(step.begin)) / 1e9]
        pending = Pending(
            step=step,
            loss=loss,
            session=self.session,
            block=turn.block,
            number=self.trainer.steps - 1,
            epoch=self.epoch,
            timed=turn.timed,
            samples=samples,
        )
        return self.recorder.add(pending)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _weights_kept(trainer: Trainer) -> Iterator[None]:
    """Put weights, buffers and optimizer back: without synchronisation the ranks would drift apart for good."""
    model = trainer.strategy.unwrap()
    weights = copy.deepcopy(model.state_dict())
    optimizer = copy.deepcopy(trainer.optimizer.state_dict())
    try:
        yield
    finally:
        model.load_state_dict(weights)
        trainer.optimizer.load_state_dict(optimizer)


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """The entry that launch calls in each worker."""
    work(Assignment.model_validate(payload), turns)
