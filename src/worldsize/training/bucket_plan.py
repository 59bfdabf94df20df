"""`--bucket-mb auto`: buckets from the link's α–β model and the measured backward of this model on this machine."""

import copy
import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.futures import Future

from worldsize.analysis.collective_cost import cost_s
from worldsize.measure.accelerator import wait_for
from worldsize.measure.clocks import Clock, Mark, clock_for
from worldsize.ranks.host_collectives import agree
from worldsize.results.comm_records import AllReduceCost
from worldsize.sending import Cost, best_cap, by_cost
from worldsize.strategies import Channel, Strategy, World
from worldsize.strategies.averaging import Averaging, Exact, Full
from worldsize.strategies.base import trained
from worldsize.strategies.bucketed import sizes_of
from worldsize.strategies.channel import completed

Loss = Callable[[nn.Module], Tensor]
"""The loss of a model on some batch."""
REPEATS = 3
PACKED_BYTES = 4_000_000
"""Of the bucket whose packing is timed: about as large as those that are planned."""


def with_planned_buckets(
    world: World, model: nn.Module, loss: Loss, link: AllReduceCost, strategy: type[Strategy]
) -> World:
    """The same world with the best buckets for this strategy, model and loss; rank 0 decides for all.

    Backward runs a few times on a copy of the model; neither the model nor the data notice. Of a strategy that packs
    its buckets the plan counts the bytes that it sends, and how long packing takes here.
    """
    traits = strategy.traits
    ready = ready_times(model, loss, world.device)
    parameters = trained(model)
    sent = sizes_of(parameters)
    if traits.sent_bytes is not None:
        sent = [traits.sent_bytes(tuple(p.shape), world.options.powersgd_rank) for p in parameters]
    packing_s = packing_s_per_byte(getattr(strategy, "averaging", Exact), parameters, sent, world)

    def cost(size_bytes: int) -> float:
        each = (
            cost_s(name, world.world_size, link.alpha_s, link.beta_bytes_per_s, size, segment_s=link.segment_s)
            for name, size in traits.messages(size_bytes)
        )
        return sum(each) + packing_s * size_bytes

    groups, cap = agree(_decide(parameters, sent, ready, cost), world.channel.world_size)
    return dataclasses.replace(world, bucket_groups=tuple(map(tuple, groups)), bucket_bytes=cap)


class _Echo(Channel):
    """A channel without receivers, whose messages arrive at once: what is left of an averaging is its packing."""

    def all_reduce_async(self, tensor: Tensor, ready: Any = None) -> Future[Tensor]:
        return completed(tensor)

    def all_to_all_async(self, into: Tensor, tensor: Tensor, ready: Any = None) -> Future[Tensor]:
        return completed(into.copy_(tensor))

    def follow_with_all_gather(self, token: int, whole: Tensor, part: Tensor, group: Any) -> Future[Tensor]:
        """Each rank's part is this one's."""
        return completed(whole.copy_(part.repeat(self.world_size, *(1 for _ in part.shape[1:]))))

    def follow_with_all_reduce(self, token: int, tensor: Tensor, group: Any) -> Future[Tensor]:
        """The sum is what this rank has."""
        return completed(tensor)


def packing_s_per_byte(
    averaging: type[Averaging], parameters: list[nn.Parameter], sent_bytes: list[int], world: World
) -> float:
    """How long packing and unpacking a bucket of PACKED_BYTES takes, per byte of `sent_bytes`; 0 if it is exact."""
    if averaging is Exact:
        return 0.0
    held = itertools.accumulate(sizes_of(parameters))
    count = 1 + sum(1 for size in held if size < PACKED_BYTES)
    some = parameters[:count]
    options = world.options.model_copy(update={"powersgd_start_step": 0})  # packed from the first step on
    averager = averaging(_Echo(world.channel.rank, world.world_size, further_group=lambda: None), some, options)
    taken = []
    for _ in range(REPEATS + 1):  # the first run touches its memory for the first time
        packed = torch.randn(sum(p.numel() for p in some), dtype=some[0].dtype, device=world.device)
        split = partial(packed.split, [p.numel() for p in some])
        wait_for(world.device)
        begin = time.perf_counter()
        averager.average(Full(packed, split, some)).wait()
        wait_for(world.device)
        taken.append(time.perf_counter() - begin)
    return min(taken) / sum(sent_bytes[:count])


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
        wait_for(device)
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
    """Seconds from the start of backward; 0 for a parameter that it did not come to."""
    return 0.0 if mark is None else (clock.read(mark) - clock.read(begin)) / 1e9


def _decide(
    parameters: list[nn.Parameter], sent: list[int], ready: list[float], cost: Cost
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Groups for strategies that take any, and the best cap for DDP, which takes only that."""
    order = sorted(range(len(parameters)), key=ready.__getitem__)
    groups = by_cost([sent[number] for number in order], [ready[number] for number in order], cost)
    cap = best_cap(sizes_of(parameters[::-1]), ready[::-1], cost, sent[::-1])
    return tuple(tuple(order[place] for place in group) for group in groups), cap
