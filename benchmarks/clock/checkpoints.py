"""An MLP whose rank 0 saves model and optimizer every 20 steps, while the others wait for it."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH_SIZE = 64
SAVE_EVERY = 20
WIDTH = 1024
PATH = "last.pt"


def save(step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    raw = model.module if isinstance(model, DistributedDataParallel) else model
    torch.save({"step": step, "model": raw.state_dict(), "optimizer": optimizer.state_dict()}, PATH)


def main() -> None:
    rank = int(os.environ.get("RANK", "0"))
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    hidden = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model: nn.Module = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), *hidden, nn.Linear(WIDTH, 10))
    if world_size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 1_000_000):
        inputs = torch.randn(BATCH_SIZE, 64, generator=generator)
        labels = torch.randint(10, (BATCH_SIZE,), generator=generator)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % SAVE_EVERY == 0:
            if rank == 0:
                save(step, model, optimizer)
                print(f"step {step} loss {loss.item():.4f} saved {PATH}", flush=True)
            if world_size > 1:
                dist.barrier()


if __name__ == "__main__":
    main()
