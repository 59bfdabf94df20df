"""A small language model, trained on a file of tokens with accumulated gradients: one process, or several by torchrun."""

import argparse
import math
import os
import pathlib
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=100_000)
parser.add_argument("--accumulate", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--block-size", type=int, default=16)
parser.add_argument("--eval-every", type=int, default=10)
args = parser.parse_args()

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    assert args.accumulate % world == 0
    args.accumulate //= world
else:
    rank, world = 0, 1
torch.manual_seed(1337 + rank)


def get_batch(split):
    data = np.memmap(pathlib.Path("data") / f"{split}.bin", dtype=np.uint16, mode="r")
    at = torch.randint(len(data) - args.block_size - 1, (args.batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + args.block_size].astype(np.int64)) for i in at])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + args.block_size].astype(np.int64)) for i in at])
    return x, y


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (each.view(b, t, self.heads, -1).transpose(1, 2) for each in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=64, width=32, layers=2):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(args.block_size, width)
        self.blocks = nn.ModuleList(Block(width, 2) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x, targets=None):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        logits = self.head(h)
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


raw = GPT()
model = DDP(raw) if ddp else raw
optimizer = torch.optim.AdamW(raw.parameters(), lr=1e-3, betas=(0.9, 0.95))
pathlib.Path("out").mkdir(exist_ok=True)


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = {split: sum(raw(*get_batch(split))[1].item() for _ in range(5)) / 5 for split in ("train", "val")}
    model.train()
    return losses


x, y = get_batch("train")
for iteration in range(args.iterations):
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * 0.5 * (1 + math.cos(math.pi * min(1, iteration / 1000)))
    if iteration % args.eval_every == 0 and rank == 0:
        losses = estimate_loss()
        print(f"step {iteration}: train {losses['train']:.3f}, val {losses['val']:.3f}")
        torch.save({"model": raw.state_dict(), "iteration": iteration}, "out/ckpt.pt")
    for micro in range(args.accumulate):
        last = micro == args.accumulate - 1
        with model.no_sync() if ddp and not last else nullcontext():
            _, loss = model(x, y)
            x, y = get_batch("train")
            (loss / args.accumulate).backward()
    torch.nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
if ddp:
    destroy_process_group()
