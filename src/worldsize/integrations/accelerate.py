"""`worldsize.meter` for a loop with Accelerate."""

from pathlib import Path
from typing import Any

from torch import nn

from worldsize.integrations.attached import real
from worldsize.metering.meter import Meter


def meter(
    accelerator: Any,
    model: nn.Module,
    optimizer: Any,
    *,
    out: Path | str | None = None,
    samples_per_step: int | None = None,
) -> Meter:
    """Return a meter for a loop whose model and optimizer `accelerator.prepare` has returned.

    It is used as that of `worldsize.meter`, and closed by `accelerator.end_training()` as well.
    """
    found = Meter(model, real(optimizer), out=out, samples_per_step=samples_per_step)
    end_training = accelerator.end_training

    def ended() -> None:
        found.close()
        end_training()

    found.replace(accelerator, "end_training", ended)
    return found
