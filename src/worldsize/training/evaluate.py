"""Loss and accuracy on the whole test set, each sample counted once, whatever the number of processes."""

import math

import torch
import torch.distributed as dist
from torch.nn import functional as F

from worldsize.data import DataSet, test_batches
from worldsize.results.records import Evaluation
from worldsize.training.trainer import Trainer


@torch.no_grad()
def evaluate(trainer: Trainer, data: DataSet, *, epoch: int) -> Evaluation | None:
    """Evaluate on every rank's part of the test set and add up; None if the data set has no test part.

    All ranks use the BatchNorm statistics of rank 0: they average over different samples on each rank, and
    without this the ranks would report different accuracies for the same weights.
    """
    if data.test is None:
        return None
    model, channel = trainer.strategy.unwrap(), trainer.world.channel
    channel.broadcast(list(model.buffers()))
    model.eval()
    totals = torch.zeros(3, dtype=torch.float64, device=trainer.device)
    for inputs, labels in test_batches(data, part=channel.rank, parts=channel.world_size):
        inputs, labels = inputs.to(trainer.device), labels.to(trainer.device)
        outputs = model(inputs).float()
        totals[0] += F.cross_entropy(outputs, labels, reduction="sum")
        totals[1] += (outputs.argmax(dim=1) == labels).sum()
        totals[2] += len(labels)
    model.train()
    if channel.world_size > 1:
        dist.all_reduce(totals)
    loss, right, count = totals.tolist()
    return Evaluation(
        epoch=epoch,
        step=trainer.steps,
        test_loss=loss / count if math.isfinite(loss) else None,
        test_accuracy=right / count,
        test_samples=int(count),
    )
