"""`--bucket-mb auto`: buckets from the link's α–β model and the measured backward of this model on this machine."""

import copy
import dataclasses
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn

from worldsize.analysis.collective_cost import cost_s
from worldsize.measure.accelerator import settle
from worldsize.measure.clocks import Clock, Mark, clock_for
from worldsize.ranks.host_collectives import agree
from worldsize.results.comm_records import AllReduceCost
from worldsize.sending import Cost, best_cap
from worldsize.strategies import World
from worldsize.strategies.base import trained
from worldsize.strategies.buckets import by_cost, sizes_of

Loss = Callable[[nn.Module], Tensor]
"""The loss of a model on some batch."""
REPEATS = 3


def with_planned_buckets(world: World, model: nn.Module, loss: Loss, link: AllReduceCost) -> World:
    """The same world with the best buckets for this model and its loss; rank 0 decides for all.

    Backward runs a few times on a copy of the model; neither the model nor the data notice.
    """
    ready = ready_times(model, loss, world.device)
    parameters = trained(model)

    def cost(size_bytes: int) -> float:
        return cost_s(
            "all-reduce", world.world_size, link.alpha_s, link.beta_bytes_per_s, size_bytes, segment_s=link.segment_s
        )

    groups, cap = agree(_decide(parameters, ready, cost), world.channel.world_size)
    return dataclasses.replace(world, bucket_groups=tuple(map(tuple, groups)), bucket_bytes=cap)


def ready_times(model: nn.Module, loss: Loss, device: torch.device) -> list[float]:
    """When each trained parameter's gradient is ready, in seconds after backward began; median of some runs.

    By the device's clock where it has one: the host is ahead of it, and would tell when a gradient was asked for.
    """
    clock = clock_for(device)
    twin = copy.deepcopy(model).train()
    parameters = trained(twin)
    times: list[list[float]] = []
    for repeat in range(REPEATS + 1):
        seen: list[Mark | None] = [None] * len(parameters)
        hooks = [p.register_post_accumulate_grad_hook(_note(clock, seen, i)) for i, p in enumerate(parameters)]
        found = loss(twin)
        settle(device)
        clock.rebase()
        begin = clock.mark()
        found.backward()
        for hook in hooks:
            hook.remove()
        twin.zero_grad()
        if repeat:  # the first run warms up
            times.append([_since_s(clock, begin, mark) for mark in seen])
    return [statistics.median(column) for column in zip(*times, strict=True)]


def _note(clock: Clock, seen: list[Mark | None], index: int) -> Callable[[Tensor], None]:
    def ready(_: Tensor) -> None:
        seen[index] = clock.mark()

    return ready


def _since_s(clock: Clock, begin: Mark, mark: Mark | None) -> float:
    """Seconds from the startning of backward; 0 for a parameter that it did not come to."""
    return 0.0 if mark is None else (clock.read(mark) - clock.read(begin)) / 1e9


def _decide(parameters: list[nn.Parameter], ready: list[float], cost: Cost) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Groups for strategies that take any, and the best cap for DDP, which takes only that."""
    order = sorted(range(len(parameters)), key=ready.__getitem__)
    number = {parameter: index for index, parameter in enumerate(parameters)}
    groups = by_cost([parameters[i] for i in order], [ready[i] for i in order], cost)
    cap = best_cap(sizes_of(list(reversed(parameters))), list(reversed(ready)), cost)
    return tuple(tuple(number[p] for p in group) for group in groups), cap
