"""Loss and accuracy on the whole test set, each sample counted once, with any number of processes.

And how far the ranks are apart: 0 where all hold the same weights (method.md §10).
"""

import math
from collections.abc import Iterable
from contextlib import ExitStack

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from worldsize.data import DataSet, test_batches
from worldsize.measure.message_counter import MessageCounter
from worldsize.ranks.heartbeat import beat
from worldsize.results.training_records import Divergence, Evaluation
from worldsize.training.trainer import Trainer


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


@torch.no_grad()
def evaluate(trainer: Trainer, data: DataSet, *, epoch: int) -> Evaluation | None:
    """Evaluate on every rank's part of the test set and add up; None if the data set has no test part.

    All ranks use the BatchNorm statistics of rank 0: they average over different samples on each rank, and
    without this the ranks would report different accuracies for the same weights. Where the ranks do not hold the
    same weights, one accuracy is not enough: each then runs the whole test set with what it holds. Ranks whose strategy
    lets them drift apart, and averages what they have come to, evaluate that average.
    """
    if data.test is None:
        return None
    model, channel = trainer.strategy.unwrap(), trainer.world.channel
    with ExitStack() as whole:
        with MessageCounter("evaluation") as counter:
            # A rank may have a batch less than the others, which would wait for its messages.
            whole.enter_context(trainer.strategy.unsharded())
        apart = divergence(model, channel.world_size)
        by_rank = None
        if apart is not None and apart.apart and trainer.strategy.traits.travels != "weights":
            by_rank = _by_rank(_totals(trainer, data, part=0, parts=1))
        with counter, trainer.strategy.averaged_weights():
            channel.broadcast(list(model.buffers()))
            totals = _totals(trainer, data, part=channel.rank, parts=channel.world_size)
            if channel.world_size > 1:
                dist.all_reduce(totals)
    loss, right, count = totals.tolist()
    return Evaluation(
        epoch=epoch,
        step=trainer.steps,
        test_loss=loss / count if math.isfinite(loss) else None,
        test_accuracy=right / count,
        test_samples=int(count),
        divergence=apart,
        messages=counter.counts(),
        order=trainer.seen.digest,
        rank_accuracy=by_rank,
    )


def _totals(trainer: Trainer, data: DataSet, *, part: int, parts: int) -> Tensor:
    """Sum of the losses, samples that were right, and samples, of one part of the test set."""
    model = trainer.strategy.unwrap().eval()
    totals = torch.zeros(3, dtype=torch.float64, device=trainer.device)
    for inputs, labels in test_batches(data, part=part, parts=parts):
        beat()
        inputs, labels = inputs.to(trainer.device), labels.to(trainer.device)
        with trainer.uncompiled():  # the mode and each size of a batch would be compiled by themselves
            outputs = model(inputs).float()
        totals[0] += F.cross_entropy(outputs, labels, reduction="sum")
        totals[1] += (outputs.argmax(dim=1) == labels).sum()
        totals[2] += len(labels)
    model.train()
    return totals


def _by_rank(mine: Tensor) -> list[float]:
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return [float(totals[1] / totals[2]) for totals in everyone]
