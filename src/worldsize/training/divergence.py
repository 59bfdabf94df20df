"""How far the ranks are apart: 0 where all hold the same weights (method.md §10)."""

import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from worldsize.results.training_records import Divergence


@torch.no_grad()
def divergence(model: nn.Module, processes: int) -> Divergence | None:
    """The distance of each rank from rank 0; None for one process. All ranks call it together."""
    if processes == 1:
        return None
    buffers = (buffer for buffer in model.buffers() if buffer.is_floating_point())
    return Divergence(weights=_apart(model.parameters(), processes), buffers=_apart(buffers, processes))


def _apart(tensors: Iterable[Tensor], processes: int) -> list[float | None]:
    """|x − x₀| ÷ |x₀| by rank, in double precision; each tensor of rank 0 travels once."""
    device = torch.device("cpu")
    difference = torch.zeros((), dtype=torch.float64)
    size = torch.zeros((), dtype=torch.float64)
    for tensor in tensors:
        device = tensor.device
        first = tensor.detach().clone(memory_format=torch.contiguous_format)
        dist.broadcast(first, src=0)
        difference += (tensor.double() - first.double()).square().sum().cpu()
        size += first.double().square().sum().cpu()
    mine = torch.stack([difference, size]).sqrt().to(device)
    everyone = [torch.empty_like(mine) for _ in range(processes)]
    dist.all_gather(everyone, mine)
    return [_ratio(*each.tolist()) for each in everyone]


def _ratio(difference: float, size: float) -> float | None:
    if difference == 0:
        return 0.0
    ratio = difference / size if size else math.inf
    return ratio if math.isfinite(ratio) else None
