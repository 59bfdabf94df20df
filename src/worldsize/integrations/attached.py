"""What the adapters share: a meter from the start of a training to its end, and never an error of ours in it."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from worldsize.metering.meter import Meter, warn_of


class Attached:
    """A callback with a meter of its own while something trains.

    `out` and `samples_per_step` are those of `worldsize.meter`: off unless `out` or WORLDSIZE_METER names a run folder.
    """

    meter: Meter | None = None
    """That of the training which runs now."""

    def __init__(self, *, out: Path | str | None = None, samples_per_step: int | None = None) -> None:
        super().__init__()
        self._out, self._samples_per_step = out, samples_per_step

    def attach(self, model: nn.Module | None, optimizer: object) -> Meter:
        """Begin to meter; what was metered before is over."""
        self.detach()
        self.meter = Meter(model, real(optimizer), out=self._out, samples_per_step=self._samples_per_step)
        return self.meter

    def detach(self) -> None:
        """Write what is left, and take every hook off."""
        meter, self.meter = self.meter, None
        if meter is not None:
            meter.close()


def never_raises(method: Callable[..., None]) -> Callable[..., None]:
    """A framework that is not as we know it must not end a training: it ends the metering."""

    @functools.wraps(method)
    def called(self: Attached, *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            warn_of(error)
            self.detach()

    return called


def real(optimizer: object) -> Optimizer | None:
    """The optimizer of torch inside those that frameworks wrap around it: a wrapper never calls hooks of its own."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    return optimizer if isinstance(optimizer, Optimizer) else None
