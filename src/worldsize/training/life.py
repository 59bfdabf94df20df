"""What one rank does in each of its turns: steps, an evaluation, a profile, or steps aside that leave no trace."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist

from worldsize.data import DataSet
from worldsize.errors import RunError
from worldsize.measure.alignment import Offset, align
from worldsize.measure.limits import peak_memory_bytes
from worldsize.ranks.turns import Reply, Turn
from worldsize.results.checkpoints import checkpoint_folder
from worldsize.results.traces import rank_trace
from worldsize.training.check import check
from worldsize.training.checkpoint import save
from worldsize.training.evaluate import evaluate
from worldsize.training.fit import fit
from worldsize.training.profile import profile_steps
from worldsize.training.recorder import Pending, Recorder
from worldsize.training.trainer import Trainer


class Life:
    """Does the turns of one rank."""

    def __init__(
        self,
        trainer: Trainer,
        data: DataSet,
        recorder: Recorder,
        session: int,
        *,
        launch: int = 0,
        first_step: int = 0,
    ) -> None:
        self.trainer = trainer
        self.data = data
        self.recorder = recorder
        self.session, self.launch, self.first_step = session, launch, first_step
        self.epoch = max(0, trainer.steps - 1) // trainer.batches.steps_per_epoch
        self._between_cpus: dist.ProcessGroup | None = None

    def take(self, turn: Turn) -> Reply:
        """Do one turn and reply; raise RunError for one that belongs to a later point of the training."""
        self._check_place(turn)
        reply = Reply()
        if turn.op == "steps":
            reply.step_s = self._steps(turn, turn.count)
        elif turn.op == "epoch":
            reply.step_s = self._steps(turn, turn.count or self.trainer.batches.steps_per_epoch)
        elif turn.op == "evaluate":
            reply.evaluation = evaluate(self.trainer, self.data, epoch=self.epoch)
        elif turn.op == "fit":
            reply.fit = fit(self.trainer)
        elif turn.op == "verify":
            with aside(self.trainer):
                reply.check = check(self.trainer, turn.count)
        elif turn.op == "checkpoint" and self.trainer.steps:
            save(self.trainer, checkpoint_folder(self.recorder.folder))
        elif turn.op == "profile":
            with aside(self.trainer):
                path = rank_trace(self.recorder.folder, self.trainer.world.channel.rank)
                reply.profile, reply.profile_problem = profile_steps(self.trainer, turn, self._align, path)
        reply.peak_memory_bytes = peak_memory_bytes(self.trainer.device)
        return reply

    def _check_place(self, turn: Turn) -> None:
        # Workers that had to be started again in the middle of a training would begin it anew, and nobody would know.
        if turn.first_step is not None and turn.first_step != self.trainer.steps:
            lost = turn.first_step - self.trainer.steps
            way = "Go on with --resume" if self.trainer.settings.checkpoint else "Give --checkpoint"
            raise RunError(
                f"the workers had to be started again and lost {lost} steps of training\n"
                f"{way}, with less beside them in memory."
            )

    def _steps(self, turn: Turn, count: int) -> list[float]:
        """Step times (s); the clocks are aligned anew before each turn, outside of its steps."""
        timeline = self.trainer.timeline
        timeline.clock.rebase()
        offset = self._align()
        if turn.lead:
            self._lead(turn.lead)
        timeline.watching = turn.observe
        with nullcontext() if turn.trains else aside(self.trainer):
            drain = turn.model_copy(update={"timed": False})
            times = [time for _ in range(turn.drain) for time in self._step(drain, offset)]
            times += [time for _ in range(count) for time in self._step(turn, offset)]
            times += self.recorder.flush() if turn.observe else []
            return times[turn.drain :]

    def _lead(self, count: int) -> None:
        self.trainer.timeline.watching = False
        with aside(self.trainer):
            for _ in range(count):
                self.trainer.step()
                self.trainer.timeline.take()

    def _align(self) -> Offset:
        if self.trainer.world.channel.world_size == 1:
            return Offset()
        if dist.get_backend() != "gloo" and self._between_cpus is None:
            self._between_cpus = dist.new_group(backend="gloo")
        return align(self.trainer.timeline.clock.now, self._between_cpus)

    def _step(self, turn: Turn, offset: Offset) -> list[float]:
        number = self.first_step + self.trainer.steps
        result = self.trainer.step(synchronise=turn.synchronise)
        step = self.trainer.timeline.take()
        if not turn.observe:
            clock = self.trainer.timeline.clock
            return [(clock.read(step.ends[-1]) - clock.read(step.begin)) / 1e9]
        if turn.trains:
            self.epoch = result.epoch
        pending = Pending(
            step=step,
            loss=result.loss,
            session=self.session,
            launch=self.launch,
            block=turn.block,
            number=number,
            epoch=result.epoch,
            timed=turn.timed and turn.synchronise,
            samples=result.samples,
            right=result.right,
            synchronised=turn.synchronise,
            offset=offset,
        )
        return self.recorder.add(pending)


@contextmanager
def aside(trainer: Trainer) -> Iterator[None]:
    """Steps in this context leave weights, optimizer, step count and the order of the data as they were.

    Without synchronisation the ranks would drift apart for good; and steps that only serve to measure must not
    make one strategy train further than another.
    """
    model = trainer.strategy.unwrap()
    weights = copy.deepcopy(model.state_dict())
    optimizer = copy.deepcopy(trainer.optimizer.state_dict())
    steps, stream = trainer.steps, trainer.stream
    devices = [trainer.device] if trainer.device.type == "cuda" else []
    trainer.stream = trainer.spare_stream
    try:
        with torch.random.fork_rng(devices):  # a model with dropout draws the masks it would have drawn
            yield
    finally:
        trainer.steps, trainer.stream = steps, stream
        model.load_state_dict(weights)
        trainer.optimizer.load_state_dict(optimizer)
