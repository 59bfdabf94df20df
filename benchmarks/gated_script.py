"""The script that script_gate.py times, old or new: two convolutions, with DDP where several workers run it.

With `--slower 0.1` it waits a tenth of its own step in each, as planted.py does.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from planted import Slower

parser = argparse.ArgumentParser()
parser.add_argument("--slower", type=float, default=0.0)
slower = parser.parse_args().slower
torch.manual_seed(0)
dist.init_process_group("gloo")
layers = (nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
net: nn.Module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10))
model = DistributedDataParallel(Slower(net, slower) if slower else net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images, labels = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
for _ in range(1_000_000):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
