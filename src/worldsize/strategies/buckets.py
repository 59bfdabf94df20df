"""Which gradients travel together, as groups of parameters; the rules are in sending.py."""

from collections.abc import Sequence

from torch import nn

from worldsize import sending
from worldsize.sending import Cost
from worldsize.strategies.channel import payload_bytes


def by_size(parameters: Sequence[nn.Parameter], bucket_bytes: int) -> list[list[nn.Parameter]]:
    """Consecutive groups that are closed once they reach the size; never an empty one."""
    return _groups(parameters, sending.by_size(sizes_of(parameters), bucket_bytes))


def by_cost(parameters: Sequence[nn.Parameter], ready_s: Sequence[float], cost_s: Cost) -> list[list[nn.Parameter]]:
    """The consecutive groups whose last all-reduce ends first; in the order in which gradients are ready."""
    return _groups(parameters, sending.by_cost(sizes_of(parameters), ready_s, cost_s))


def sizes_of(parameters: Sequence[nn.Parameter]) -> list[int]:
    """Bytes of each gradient."""
    return [payload_bytes(parameter) for parameter in parameters]


def _groups(parameters: Sequence[nn.Parameter], groups: Sequence[Sequence[int]]) -> list[list[nn.Parameter]]:
    return [[parameters[number] for number in group] for group in groups]
