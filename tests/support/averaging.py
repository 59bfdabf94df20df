"""What the tests of averagings run: steps of made-up gradients through one, in real processes."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from worldsize import sending
from worldsize.config.synchronisation import SynchronisationSettings
from worldsize.measure.clocks import HostClock
from worldsize.measure.timeline import Timeline, read
from worldsize.ranks.setup import Rank, choose_device, further_group, pin, process_group
from worldsize.ranks.turns import Reply, Turn, Turns, run_turns
from worldsize.results.records import Placement
from worldsize.strategies import Channel, find_strategy
from worldsize.strategies.averaging import Averaging, Full
from worldsize.strategies.channel import flat

SHAPES = ((40, 70), (7,), (16, 24, 3, 3), (1300,), (3, 1, 1, 1), (9,), (65, 33))
"""Of the parameters; not a whole number of blocks, one bucket per two of them, one of vectors alone."""
LATE_S = 0.01
PIECE = 2000
"""Elements of a piece of int8: the buckets have 2, 3, 1 and 2."""


def parameters() -> list[nn.Parameter]:
    """Zeros, one of them channels-last."""
    made = [nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in SHAPES]
    made[2].data = made[2].data.to(memory_format=torch.channels_last)
    return made


def gradients(rank: int, step: int) -> list[Tensor]:
    """Of a rank in a step, as they lie in the memory of each parameter."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    made[2] = made[2].to(memory_format=torch.channels_last)
    return made


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """Entry of the job: a turn is all steps with one strategy's averaging."""
    rank = Rank.from_environment()
    placement = Placement.model_validate(payload["placement"])
    device = choose_device(rank, placement)
    pin(rank, placement)
    sending.INT8_PIECE = PIECE

    def do(turn: Turn) -> Reply:
        if turn.op != "finish":
            name = payload["strategies"][turn.block]
            kept = _steps(find_strategy(name).averaging, rank, turn.count)  # type: ignore[attr-defined]
            torch.save(kept, Path(payload["folder"]) / f"{name}-rank{rank.rank}.pt")
        return Reply()

    with process_group(rank, placement, device):
        run_turns(turns, Reply(), do)


def _steps(averaging: type[Averaging], rank: Rank, count: int) -> dict[str, Any]:
    timeline = Timeline(HostClock())
    made = parameters()
    channel = Channel(rank.rank, rank.processes, timeline, further_group)
    averager = averaging(channel, made, SynchronisationSettings(powersgd_rank=3, powersgd_start_step=2))
    means, held, messages = [], [], []
    for step in range(count):
        timeline.begin()
        given = [flat(each) for each in gradients(rank.rank, step)]
        sent = []
        for first in range(0, len(made), 2):
            packed = torch.cat(given[first : first + 2])
            split = partial(packed.split, [each.numel() for each in given[first : first + 2]])
            sent.append(averager.average(Full(packed, split, made[first : first + 2], channel.ready())))
            if (rank.rank + first // 2) % 2:  # the first collectives end in another order on each rank
                time.sleep(LATE_S)
        means.append(torch.cat([each.wait() for each in sent]))
        held.append({name: value.clone() for name, value in averager.state().items()})
        found = read(_ended(timeline), timeline.clock)
        messages.append([(m.kind, m.payload_bytes) for m in found.messages])
        assert all(m.issued <= m.done for m in found.messages)
    return {"means": means, "held": held, "messages": messages}


def _ended(timeline: Timeline) -> Any:
    from worldsize.measure.timeline import Phase

    timeline.end(Phase.END)
    return timeline.take()
