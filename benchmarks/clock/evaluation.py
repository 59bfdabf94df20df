"""A small convolutional net that every rank evaluates on the test set, every 25 steps."""

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH_SIZE = 32
EVALUATE_EVERY = 25
RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))


def make_images(count: int) -> TensorDataset:
    return TensorDataset(torch.randn(count, 3, 32, 32), torch.randint(10, (count,)))


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(512, 10),
    )


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader[tuple[Tensor, ...]]) -> float:
    model.eval()
    right, seen = 0, 0
    for images, labels in loader:
        right += int((model(images).argmax(1) == labels).sum())
        seen += len(labels)
    model.train()
    return right / seen


def main() -> None:
    if WORLD_SIZE > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    train, test = make_images(8192), make_images(5120)
    sampler: DistributedSampler[tuple[Tensor, ...]] | None = DistributedSampler(train) if WORLD_SIZE > 1 else None
    train_loader = DataLoader(train, BATCH_SIZE, sampler=sampler, shuffle=sampler is None, drop_last=True)
    test_loader = DataLoader(test, 128)
    model = build_model()
    if WORLD_SIZE > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    while True:
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            if step % EVALUATE_EVERY == 0:
                accuracy = evaluate(model, test_loader)
                if RANK == 0:
                    print(f"step {step} loss {loss.item():.4f} accuracy {accuracy:.2%}", flush=True)


if __name__ == "__main__":
    main()
