"""A small convolutional net on images that two loader processes augment."""

import os

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image, ImageEnhance, ImageFilter
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

BATCH_SIZE = 32
EPOCHS = 1000


class Pictures(Dataset[tuple[Tensor, int]]):
    """Pictures of noise, each turned, blurred, cropped and brightened anew when it is read."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        random = np.random.default_rng(index)
        image = Image.fromarray(random.integers(0, 256, (96, 96, 3), dtype=np.uint8))
        image = image.rotate(random.uniform(-20, 20), resample=Image.Resampling.BICUBIC)
        image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.5, 2)))
        left, top = (int(each) for each in random.integers(0, 16, 2))
        image = image.crop((left, top, left + 80, top + 80)).resize((48, 48), Image.Resampling.BICUBIC)
        image = ImageEnhance.Brightness(image).enhance(random.uniform(0.7, 1.3))
        image = ImageEnhance.Contrast(image).enhance(random.uniform(0.7, 1.3))
        pixels = torch.from_numpy(np.asarray(image, dtype=np.float32) / 255)
        return pixels.permute(2, 0, 1), index % 10


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def main() -> None:
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if distributed:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = build_model()
    if distributed:
        model = DistributedDataParallel(model)
    data = Pictures(50_000)
    sampler: DistributedSampler[tuple[Tensor, int]] | None = DistributedSampler(data) if distributed else None
    loader = DataLoader(data, BATCH_SIZE, sampler=sampler, shuffle=sampler is None, num_workers=2, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(EPOCHS):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for step, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            if step % 50 == 0 and os.environ.get("RANK", "0") == "0":
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
