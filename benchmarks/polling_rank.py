"""One rank of the benchmark of gloo's polling thread: times all-reduces, polite or as torch starts it."""

import time
from typing import Any

import torch
import torch.distributed as dist

from worldsize.ranks import setup
from worldsize.ranks.turns import Reply, Turn, Turns, run_turns
from worldsize.results.records import Placement


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """Entry of the job."""
    placement = Placement.model_validate(payload["placement"])
    rank = setup.Rank.from_environment()
    setup.pin(rank, placement)
    if not payload["polite"]:
        setup.POLLING_THREAD = "none of this name"
    tensors = [torch.zeros(payload["size_bytes"] // 4) for _ in range(payload["in_flight"])]
    matrix = torch.randn(256, 256)

    def take(turn: Turn) -> Reply:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(turn.count):
            works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
            for _ in range(payload["products"]):
                matrix @ matrix
            for work in works:
                work.wait()
        return Reply(step_s=[(time.perf_counter() - start) / turn.count])

    with setup.process_group(rank, placement, torch.device("cpu")):
        run_turns(turns, Reply(), take)
