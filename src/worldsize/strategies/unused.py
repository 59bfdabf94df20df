"""Parameters that a step does not use: DDP waits for the gradient of each, and its next step ends with an error."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from worldsize.errors import UsageError

SHOWN = 8
"""Names that a message lists."""
ASKED = "find_unused_parameters"
"""In the paragraph that torch raises in the step after the one that left parameters out."""
NUMBERS = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")


def without_gradient(model: nn.Module) -> list[str]:
    """The names of the trained parameters that backward has not come to."""
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad and parameter.grad is None]


def listed(names: Sequence[str]) -> str:
    """The first of the names, and how many more there are."""
    left = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {left} more" if left > 0 else "")


def unused_text(names: Sequence[str]) -> str:
    """What is wrong with these parameters, and what to do."""
    return (
        f"the loss does not depend on {listed(names)}, and ddp waits for the gradient of every trained parameter\n"
        "Give --find-unused-parameters, or freeze them with requires_grad_(False)."
    )


class UnusedParametersError(UsageError):
    """Parameters without a gradient under a strategy that waits for all of them."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(unused_text(names))


@contextmanager
def plain_message(model: nn.Module) -> Iterator[None]:
    """Raise UsageError where DDP complains in this context of unused parameters of the model."""
    try:
        yield
    except RuntimeError as error:
        if ASKED not in str(error):
            raise
        raise UnusedParametersError(_named(model, str(error))) from None


def _named(model: nn.Module, message: str) -> list[str]:
    """The names of the parameters whose numbers torch tells; it counts those that are trained."""
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    found = NUMBERS.search(message)
    numbers = [int(number) for number in found[1].split()] if found else []
    return [names[number] for number in numbers if number < len(names)] or ["some parameters"]
