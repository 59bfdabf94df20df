"""How fast each rank reaches rank 0, one after the other: one on the wrong interface is far slower than the others."""

import time

import torch
import torch.distributed as dist

from worldsize.measure.accelerator import settle

SIZE_BYTES = 512 * 2**10
TURNS = 3
FEWEST = 3
"""Ranks from which on one can be told from the others."""


def rate_to_first(device: torch.device) -> float | None:
    """Bytes per second between this rank and rank 0, the best of a few turns; None on rank 0, or of two ranks.

    All ranks call it together.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size < FEWEST:
        return None
    box = torch.zeros(SIZE_BYTES, dtype=torch.uint8, device=device)
    best_s = float("inf")
    for other in range(1, world_size):
        for _ in range(TURNS):
            dist.barrier()
            if rank in (0, other):
                best_s = min(best_s, _there_and_back(box, rank, other))
    return None if rank == 0 else 2 * SIZE_BYTES / best_s


def _there_and_back(box: torch.Tensor, rank: int, other: int) -> float:
    began = time.perf_counter()
    if rank == 0:
        dist.recv(box, other)
        dist.send(box, other)
    else:
        dist.send(box, 0)
        dist.recv(box, 0)
    settle(box.device)
    return time.perf_counter() - began
