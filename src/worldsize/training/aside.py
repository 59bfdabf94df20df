"""Steps aside: they measure, and leave weights, optimizer, step count and the order of the data as they were."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from worldsize.measure.accelerator import kept_random_state
from worldsize.training.trainer import Trainer


class Aside:
    """Where a trainer was before it stepped aside, in memory that is asked for once.

    A copy that is made anew each time costs page faults that grow with the model, in every block. On a GPU the copy is
    in the memory of the host: a model that fills its device has no room there for a second one (method.md §9).
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self._kept: dict[object, Tensor] = {}

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Undo on leaving whatever the trainer does within.

        Without synchronisation the ranks would drift apart for good; and steps that only serve to measure must not
        make one strategy train further than another.
        """
        trainer = self.trainer
        model = dict(trainer.strategy.unwrap().state_dict())  # the tensors themselves, not copies
        state = self._optimizer_state()
        options = [{k: v for k, v in group.items() if k != "params"} for group in trainer.optimizer.param_groups]
        for key, value in (*model.items(), *state.items()):
            self._keep(key, value)
        steps, stream = trainer.steps, trainer.stream
        trainer.stream = trainer.spare_stream
        try:
            with kept_random_state(trainer.device):  # a model with dropout draws the masks it would have drawn
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
        kept = self._kept.get(key)
        if kept is None or (kept.shape, kept.dtype) != (value.shape, value.dtype):
            kept = self._kept[key] = torch.empty_like(value, device="cpu")
        kept.copy_(value)

    @torch.no_grad()
    def _put_back(self, model: dict[str, Any], state: dict[tuple[int, str], Any]) -> None:
        of_optimizer = self.trainer.optimizer.state
        parameters = self._parameters()
        for parameter in parameters:  # what the optimizer began to keep only now is forgotten
            of_optimizer.pop(parameter, None)
        for (number, name), value in state.items():
            of_optimizer[parameters[number]][name] = value
        for key, value in (*model.items(), *state.items()):
            if isinstance(value, Tensor):
                value.copy_(self._kept[key])

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
