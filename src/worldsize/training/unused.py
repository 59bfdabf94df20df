"""What DDP says of parameters that a step has not used, in plain words and with their names."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from worldsize.strategies.unused import UnusedParametersError

ASKED = "find_unused_parameters"
"""In the paragraph that torch raises in the step after the one that left parameters out."""
NUMBERS = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")


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
