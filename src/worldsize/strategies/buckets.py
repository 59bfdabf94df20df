"""Which gradients travel together: by size, or so that the last message of a step ends as early as it can."""

from collections.abc import Callable, Sequence

from torch import nn

from worldsize.strategies.channel import payload_bytes

Cost = Callable[[int], float]
"""Seconds that an all-reduce of some bytes takes: the α–β model of the link (method.md §5)."""


def by_size(parameters: Sequence[nn.Parameter], bucket_bytes: int) -> list[list[nn.Parameter]]:
    """Consecutive groups that are closed once they reach the size; never an empty one."""
    groups: list[list[nn.Parameter]] = [[]]
    for parameter in parameters:
        if payload_bytes(*groups[-1]) >= bucket_bytes:
            groups.append([])
        groups[-1].append(parameter)
    return groups


def by_cost(parameters: Sequence[nn.Parameter], ready_s: Sequence[float], cost_s: Cost) -> list[list[nn.Parameter]]:
    """The consecutive groups whose last all-reduce ends first, on a link that carries one after the other.

    `parameters` are in the order in which their gradients are ready, `ready_s` is when, `cost_s` how long an
    all-reduce of some bytes takes (the α–β model). Exact, by dynamic programming over the ends of the groups:
    end(k) = min over j < k of max(end(j), ready(k)) + cost(j … k).
    """
    sizes = [0]
    for parameter in parameters:
        sizes.append(sizes[-1] + payload_bytes(parameter))
    ends, starts = [0.0], [0]
    for k in range(1, len(sizes)):
        candidates = [max(ends[j], ready_s[k - 1]) + cost_s(sizes[k] - sizes[j]) for j in range(k)]
        best = min(range(k), key=candidates.__getitem__)
        ends.append(candidates[best])
        starts.append(best)
    groups: list[list[nn.Parameter]] = []
    k = len(parameters)
    while k > 0:
        groups.insert(0, list(parameters[starts[k] : k]))
        k = starts[k]
    return groups


def end_s(groups: Sequence[Sequence[nn.Parameter]], ready_s: Sequence[float], cost_s: Cost) -> float:
    """When the last of the groups has arrived, on a link that carries one after the other.

    `ready_s` belongs to the parameters of the groups, one group after the other.
    """
    end, seen = 0.0, 0
    for group in groups:
        seen += len(group)
        end = max(end, max(ready_s[:seen])) + cost_s(payload_bytes(*group))
    return end
