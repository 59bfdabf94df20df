"""Training as a workload: what its turns do that are no steps, and what feeds its steps.

Rolled-back steps measure, and leave weights, optimizer and step count as they were; the order of the data, too, unless
a loader works ahead: a second one beside it would take its cores.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from worldsize.data import DataSet
from worldsize.measure.accelerator import kept_random_state
from worldsize.measure.alignment import Offset
from worldsize.measure.limits import forget_peak
from worldsize.measure.timeline import Timeline
from worldsize.ranks.host_collectives import gather
from worldsize.ranks.memory import room_for
from worldsize.ranks.turns import Reply, Turn
from worldsize.ranks.workload import State
from worldsize.results.memory_records import MemoryParts
from worldsize.results.traces import rank_trace
from worldsize.results.training_records import GradientTimes
from worldsize.strategies import World
from worldsize.strategies.shards import local
from worldsize.training.check import check
from worldsize.training.checkpoint import put_back, state_of
from worldsize.training.evaluate import evaluate
from worldsize.training.memory import fit, memory_parts
from worldsize.training.profile import profile_steps
from worldsize.training.trainer import TrainedStep, Trainer


class RolledBack:
    """Where a trainer was before steps that are rolled back, in memory that is asked for once.

    A copy that is made anew each time costs page faults that grow with the model, in every block. On a GPU the copy is
    in the memory of the host: a model that fills its device has no room there for a second one (method.md §9).
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self._kept: dict[object, Tensor] = {}

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Undo on leaving all that the trainer does within.

        Without synchronisation the ranks would drift apart for good; and steps that only serve to measure must not
        make one strategy train further than another.
        """
        trainer = self.trainer
        # The tensors themselves, not copies; what the strategy carries has no name that a model's could be.
        model = {**trainer.strategy.unwrap().state_dict(), **_of_strategy(trainer)}
        state = self._optimizer_state()
        options = [{k: v for k, v in group.items() if k != "params"} for group in trainer.optimizer.param_groups]
        for key, value in (*model.items(), *state.items()):
            self._keep(key, value)
        steps, stream = trainer.steps, trainer.stream
        trainer.stream = trainer.spare_stream or stream
        try:
            with (
                kept_random_state(trainer.device),
                trainer.strategy.rolled_back(),
            ):  # a model with dropout draws the masks it would have drawn
                yield
        finally:
            trainer.steps, trainer.stream = steps, stream
            for group, option in zip(trainer.optimizer.param_groups, options, strict=True):
                group.update(option)
            self._put_back(model, state)

    @torch.no_grad()
    def _keep(self, key: object, value: Any) -> None:
        if not isinstance(value, Tensor):
            return
        value = local(value)
        kept = self._kept.get(key)
        if kept is None or (kept.shape, kept.dtype) != (value.shape, value.dtype):
            kept = self._kept[key] = torch.empty_like(value, device="cpu")
        kept.copy_(value)

    @torch.no_grad()
    def _put_back(self, model: dict[Any, Any], state: dict[tuple[int, str], Any]) -> None:
        of_optimizer = self.trainer.optimizer.state
        parameters = self._parameters()
        for parameter in parameters:  # what the optimizer began to keep only now is forgotten
            of_optimizer.pop(parameter, None)
        for (number, name), value in state.items():
            of_optimizer[parameters[number]][name] = value
        for key, value in (*model.items(), *state.items()):
            if isinstance(value, Tensor):
                local(value).copy_(self._kept[key])

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.trainer.optimizer.param_groups for parameter in group["params"]]

    def _optimizer_state(self) -> dict[tuple[int, str], Any]:
        """What the optimizer keeps, by (number of the parameter, name)."""
        state = self.trainer.optimizer.state
        return {
            (number, name): value
            for number, parameter in enumerate(self._parameters())
            for name, value in state.get(parameter, {}).items()
        }


def _of_strategy(trainer: Trainer) -> dict[Any, Tensor]:
    return {("strategy", name): value for name, value in trainer.strategy.state().items()}


class TrainingWorkload:
    """A trainer, and the data set of a classifier; `folder` is where its traces go."""

    def __init__(self, trainer: Trainer, data: DataSet | None, folder: Path) -> None:
        self.trainer, self.data, self.folder = trainer, data, folder
        self.rolled_back = RolledBack(trainer)

    @property
    def world(self) -> World:
        """Of its strategy."""
        return self.trainer.world

    @property
    def timeline(self) -> Timeline:
        """Which its steps mark."""
        return self.trainer.timeline

    @property
    def steps(self) -> int:
        """Steps of training behind it."""
        return self.trainer.steps

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch."""
        steps = self.trainer.batches.steps_per_epoch
        assert steps is not None, "whole epochs are trained of data whose size is known"
        return steps

    @property
    def saves(self) -> bool:
        """Whether the settings ask for checkpoints."""
        return self.trainer.settings.checkpoint

    def step(self, *, synchronise: bool = True) -> TrainedStep:
        """Train on the next batch."""
        return self.trainer.step(synchronise=synchronise)

    def begin_data_anew(self) -> None:
        """End the loader of training, where it works ahead, and begin another one at the same place."""
        if self.trainer.batches.works_ahead:
            self.trainer.stream.close()
            self.trainer.go_on_after(self.steps)

    @contextmanager
    def uninstrumented(self) -> Iterator[None]:
        """No hook of ours, where all ranks have room for what that takes: about the gradients once more."""
        processes = self.world.channel.world_size
        room = room_for(self.trainer.gradient_bytes or 0, self.trainer.device, processes)
        with self.trainer.uninstrumented(room=all(gather(room, processes))):
            yield

    def other(self, turn: Turn, align: Callable[[], Offset]) -> Reply:
        """Evaluate, try whether a step fits, prove or profile."""
        reply = Reply()
        if turn.op == "evaluate":
            assert self.data is not None, "what has no test set is not evaluated"
            epoch = max(0, self.steps - 1) // self.steps_per_epoch
            reply.evaluation = evaluate(self.trainer, self.data, epoch=epoch)
        elif turn.op == "fit":
            reply.fit = fit(self.trainer)
        elif turn.op == "verify":
            with self.rolled_back():
                reply.check = check(self.trainer, turn.count)
            forget_peak(self.trainer.device)
        elif turn.op == "profile":
            with self.rolled_back():
                path = rank_trace(self.folder, self.world.channel.rank)
                reply.profile, reply.profile_problem = profile_steps(self.trainer, turn, align, path)
        return reply

    def state(self) -> State:
        """Weights, optimizer, place in the data and random state."""
        return state_of(self.trainer)

    def restore(self, state: State) -> None:
        """Go on from there; `arrange_buckets` (checkpoint.py) comes first."""
        put_back(self.trainer, state)

    def gradients(self) -> GradientTimes | None:
        """As seen in steps in which nothing travelled."""
        return self.trainer.gradients.found()

    def memory(self) -> MemoryParts:
        """Weights, gradients, optimizer state and the like, to the byte."""
        return memory_parts(self.trainer)

    def close(self) -> None:
        """End the processes of the loaders."""
        for stream in (self.trainer.stream, self.trainer.spare_stream):
            if stream is not None:
                stream.close()
