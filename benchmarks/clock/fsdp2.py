"""A transformer encoder whose weights `fully_shard` spreads over the ranks; one process keeps them whole."""

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

BATCH_SIZE, LENGTH, WIDTH = 16, 32, 128


class Model(nn.Module):
    """Four encoder layers and a classifier of their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(4)
        )
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(x.mean(1))
        return logits


def shard(model: Model, world_size: int) -> None:
    mesh = init_device_mesh("cpu", (world_size,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def main() -> None:
    rank = int(os.environ.get("RANK", "0"))
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    torch.manual_seed(0)
    model = Model()
    if world_size > 1:
        dist.init_process_group("gloo")
        shard(model, world_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1_000_000):
        inputs = torch.randn(BATCH_SIZE, LENGTH, WIDTH, generator=generator)
        labels = torch.randint(10, (BATCH_SIZE,), generator=generator)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
