"""Parameters that a step does not use: DDP waits for the gradient of each, and its next step ends with an error."""

from collections.abc import Sequence

from torch import nn

from worldsize.errors import UsageError

SHOWN = 8
"""Names that a message lists."""


def without_gradient(model: nn.Module) -> list[str]:
    """The names of the trained parameters that backward has not come to."""
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad and parameter.grad is None]


def unused_text(names: Sequence[str]) -> str:
    """What is wrong with these parameters, and what to do."""
    left = len(names) - SHOWN
    listed = ", ".join(names[:SHOWN]) + (f" and {left} more" if left > 0 else "")
    return (
        f"the loss does not depend on {listed}, and ddp waits for the gradient of every trained parameter\n"
        "Give --find-unused-parameters, or freeze them with requires_grad_(False)."
    )


class UnusedParametersError(UsageError):
    """Parameters without a gradient under a strategy that waits for all of them."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(unused_text(names))
