"""A transformer encoder whose gradients are summed over four micro-batches and reduced in the last of them."""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

MICRO_BATCH_SIZE = 8
MICRO_BATCHES = 4
VOCABULARY, WIDTH, LENGTH = 256, 96, 48


class Model(nn.Module):
    """Two encoder layers between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(self.embedding(tokens)))
        return logits


def main() -> None:
    rank = int(os.environ.get("RANK", "0"))
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        dist.init_process_group("gloo")
    if rank == 0:
        print(f"global batch {MICRO_BATCH_SIZE * MICRO_BATCHES * world_size}", flush=True)
    torch.manual_seed(0)
    model: nn.Module = Model()
    if world_size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1_000_000):
        optimizer.zero_grad()
        total = 0.0
        for micro in range(MICRO_BATCHES):
            tokens = torch.randint(VOCABULARY, (MICRO_BATCH_SIZE, LENGTH), generator=generator)
            last = micro == MICRO_BATCHES - 1
            syncing: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
            if isinstance(model, DistributedDataParallel) and not last:
                syncing = model.no_sync()
            with syncing:
                loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()) / MICRO_BATCHES
                loss.backward()
            total += loss.item()
        optimizer.step()
        if step % 20 == 0 and rank == 0:
            print(f"step {step} loss {total:.4f}", flush=True)


if __name__ == "__main__":
    main()
