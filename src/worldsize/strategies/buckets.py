"""Which gradients travel together, as groups of parameters; the rules are in sending.py."""

from collections.abc import Sequence

from torch import nn

from worldsize import sending
from worldsize.strategies.channel import payload_bytes


def by_size(parameters: Sequence[nn.Parameter], bucket_bytes: int) -> list[list[nn.Parameter]]:
    """Consecutive groups that are closed once they reach the size; never an empty one."""
    return _groups(parameters, sending.by_size(sizes_of(parameters), bucket_bytes))


def sizes_of(parameters: Sequence[nn.Parameter]) -> list[int]:
    """Bytes of each gradient."""
    return [payload_bytes(parameter) for parameter in parameters]


def _groups(parameters: Sequence[nn.Parameter], groups: Sequence[Sequence[int]]) -> list[list[nn.Parameter]]:
    return [[parameters[number] for number in group] for group in groups]
