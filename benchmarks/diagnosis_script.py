"""A training script that does something else after each step, where several workers run it (diagnosis.py)."""

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


class Sleeping(nn.Linear):
    """As if it computed on a core of its own."""

    def forward(self, x: Tensor) -> Tensor:
        """Scores, after a while."""
        time.sleep(0.03)
        return super().forward(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(Sleeping(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(100_000):
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_world_size() > 1:
        time.sleep(0.02)
