"""Input pipeline: images/s of the batched pipeline against the per-sample one, both on one core."""

import os
import time
from collections.abc import Callable
from typing import Any

import torch

from common import cifar10_or_synthetic, in_turn, keep, ratio, say, shown
from worldsize.config import TrainingSettings
from worldsize.data import Batches, load_data, training_batches

BATCH = 128
IMAGES = {"per-sample": 2 * BATCH, "batched": 60 * BATCH}
"""Images per block: enough that each takes some tens of milliseconds."""


def run(data_dir: str | None) -> None:
    """Measure and print."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    torch.set_num_threads(1)
    settings = TrainingSettings(**cifar10_or_synthetic(data_dir))
    data = load_data(settings)

    def loader(kind: Any) -> Batches:
        # No worker processes: on one core they only add the cost of moving batches between processes.
        share = slice(0, BATCH)
        return training_batches(data, loader=kind, loader_workers=0, seed=0, global_batch=BATCH, share=share)

    samples = in_turn({name: _timed(loader(name), images) for name, images in IMAGES.items()}, blocks=15)
    gain = ratio(samples, "per-sample", "batched")
    rate = {name: 1 / float(min(x[0] for x in blocks.values())) for name, blocks in samples.items()}
    # uint8 read, float32 written: what must move at least (method.md §12).
    moved = rate["batched"] * 3 * 32 * 32 * 5 / 1e9
    copied = _copy_rate()
    say("")
    print(f"input pipeline, one core, {settings.data}, b = {BATCH}")
    print(f"  batched ÷ per-sample: {shown(gain)} times the images/s (at least 15, aim 30)")
    print(f"  batched moves {moved:.2f} GB/s; a plain copy on this core moves {copied:.2f} GB/s: {moved / copied:.0%}")
    low, high = gain.estimate.low, gain.estimate.high
    keep("pipeline", {"ratio": gain.estimate.value, "interval": [low, high], "copy_share": moved / copied})


def _timed(batches: Batches, images: int) -> Callable[[], float]:
    epoch = 0

    def block() -> float:
        nonlocal epoch
        epoch += 1
        stream = iter(batches.epoch(epoch))
        next(stream)  # drawing the order of an epoch is paid once per epoch, not per block
        start = time.perf_counter()
        for _ in range(images // BATCH):
            next(stream)
        seconds = (time.perf_counter() - start) / images
        stream.close()  # type: ignore[attr-defined]
        return seconds

    return block


def _copy_rate() -> float:
    """GB/s (read + written) of copying 64 MiB, more than any cache holds."""
    source = torch.zeros(64 * 2**20, dtype=torch.uint8)
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        target.copy_(source)
        best = min(best, time.perf_counter() - start)
    return 2 * source.numel() / best / 1e9
