"""`MeterCallback` for the Trainer of transformers."""

import gc
from collections.abc import Iterator
from typing import Any

from transformers import Trainer, TrainerCallback

from worldsize.integrations.attached import Attached, never_raises
from worldsize.metering.meter import Meter


class MeterCallback(Attached, TrainerCallback):  # type: ignore[misc] # transformers may not be installed
    """Meters `trainer.train` as `worldsize.meter` does a loop of one's own: `Trainer(callbacks=[MeterCallback()])`."""

    @never_raises
    def on_train_begin(self, args: Any, state: Any, control: Any, **having: Any) -> None:
        trainer = self._trainer()
        meter = self.attach(trainer.model_wrapped if trainer else having["model"], having["optimizer"])
        if meter.on:
            feed(having["train_dataloader"], meter)

    def _trainer(self) -> Any:
        """A callback is told of the bare model only; that which synchronises is known to the Trainer alone."""
        trainers = (each for each in gc.get_objects() if issubclass(type(each), Trainer))
        return next((each for each in trainers if self in each.callback_handler.callbacks), None)

    @never_raises
    def on_step_end(self, args: Any, state: Any, control: Any, **having: Any) -> None:
        if self.meter is not None and control.should_evaluate:  # it comes right after this
            self.meter.pause()

    @never_raises
    def on_epoch_end(self, args: Any, state: Any, control: Any, **having: Any) -> None:
        if self.meter is not None:
            self.meter.fed_out()

    @never_raises
    def on_train_end(self, args: Any, state: Any, control: Any, **having: Any) -> None:
        self.detach()


def feed(loader: Any, meter: Meter) -> None:
    """Let the batches of one loader pass through the meter, though somebody else iterates over it.

    Python looks `__iter__` up in the class, so it is replaced there, and changes nothing of other loaders.
    """
    kind: Any = type(loader)
    iterate = kind.__iter__

    def fed(each: Any) -> Iterator[Any]:
        batches: Iterator[Any] = iterate(each)
        return iter(meter(batches)) if each is loader else batches

    meter.replace(kind, "__iter__", fed)
