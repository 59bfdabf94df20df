"""What people write today to see how their training scales: a script for torchrun, one run for each configuration."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH, WARM_UP, STEPS = 16, 3, 6


def main() -> None:
    """Train some steps and print how long one took."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1).repeat_interleave(3, 1) / 16
    data = TensorDataset(nn.functional.interpolate(images, size=32), torch.tensor(digits.target))
    loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data), drop_last=True)
    torch.manual_seed(0)
    sys.path.insert(0, str(Path(sys.argv[1]).parent))
    model = DistributedDataParallel(__import__(Path(sys.argv[1]).stem).net(10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    times = []
    for step, (inputs, labels) in enumerate(loader):
        begin = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
        if step == WARM_UP + STEPS - 1:
            break
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} worker(s): {1e3 * sorted(times[WARM_UP:])[STEPS // 2]:.2f} ms a step")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
