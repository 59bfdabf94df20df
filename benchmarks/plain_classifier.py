"""What a person would write to train one of plain_models.py on pictures in memory (arguments: MODEL BATCH)."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import plain_models

SAMPLES = 4000
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))


def main() -> None:
    """Train until somebody ends it."""
    torch.manual_seed(0)
    model: nn.Module = getattr(plain_models, sys.argv[1])(10)
    data = TensorDataset(torch.randn(SAMPLES, 3, 32, 32), torch.randint(10, (SAMPLES,)))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] | None = None
    if WORLD_SIZE > 1:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
        sampler = DistributedSampler(data)
    loader = DataLoader(data, int(sys.argv[2]), sampler=sampler, shuffle=sampler is None, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    while True:
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
