"""`MeterCallback` for the Trainer of `lightning.pytorch` or `pytorch_lightning`, whichever the script uses."""

import importlib
import sys
from typing import Any

from worldsize.integrations.attached import Attached, never_raises

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
FETCH = ".train_dataloader_next"
LOSS = ".training_step"
"""How the names end that Lightning gives its profiler for these two: it tells it of both, and a callback of neither."""


def _callback() -> Any:
    imported = [name for name in PACKAGES if name in sys.modules]
    for name in imported or PACKAGES:
        try:
            return importlib.import_module(name).Callback
        except ModuleNotFoundError as error:
            missing = error
    raise missing


class MeterCallback(Attached, _callback()):  # type: ignore[misc] # it is one of two
    """Meters `trainer.fit` as `worldsize.meter` does a loop of one's own: `Trainer(callbacks=[MeterCallback()])`."""

    @never_raises
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        meter = self.attach(trainer.strategy.model, next(iter(trainer.optimizers), None))
        if not meter.on:
            return
        self._batch: Any = None
        start, stop = trainer.profiler.start, trainer.profiler.stop

        def started(action_name: str) -> None:
            if action_name.endswith(FETCH):
                meter.fetching()
            elif action_name.endswith(LOSS):
                batch, self._batch = self._batch, None  # or it would live until the next is there
                meter.forward(batch)
            start(action_name)

        def stopped(action_name: str) -> None:
            stop(action_name)
            if action_name.endswith(FETCH):
                meter.fetched()

        meter.replace(trainer.profiler, "start", started)
        meter.replace(trainer.profiler, "stop", stopped)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._batch = batch

    @never_raises
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self.meter is not None:
            self.meter.pause()

    @never_raises
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self.meter is not None:
            self.meter.fed_out()

    @never_raises
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.detach()

    @never_raises
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.detach()
