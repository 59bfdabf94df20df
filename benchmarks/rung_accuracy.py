"""What sending less does to the training: VGG-11 on real CIFAR-10, two workers, five epochs, three seeds a rung.

Asked (with slow_link.py): a test accuracy within one point of exact DDP. The accuracy does not depend on the link, so
the workers talk over loopback. Five epochs of all 50,000 images for each of nine trainings take hours on two cores: of
the images SAMPLES are used, so accuracies are lower than those of a full training; the differences, seed by seed with
Student's interval, are what is looked at.
"""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

from scipy import stats

import worldsize
from common import keep, say
from worldsize.errors import UsageError

EXACT = "ddp"
RUNGS = ("int8", "powersgd")
EPOCHS, SEEDS, BATCH, SAMPLES, TESTED = 5, 3, 32, 5_000, 10_000
ASKED = 0.01
SETTINGS: dict[str, Any] = {
    "model": "vgg11",
    "data": "cifar10",
    "strategies": (EXACT, *RUNGS),
    "world_sizes": (2,),
    "batch_sizes": (BATCH,),
    "epochs": EPOCHS,
    "train_samples": SAMPLES,
    "test_samples": TESTED,
    "evaluate": "end",
    "learning_rate": 0.05,
    "lr_schedule": "cosine",
    "lr_warmup_epochs": 1,
    "baseline": "wrapped",
}


def run(data_dir: str | None) -> None:
    """Train, print and keep, seed by seed. Raises UsageError without the real images."""
    if not (data_dir or os.environ.get("WORLDSIZE_DATA")):
        raise UsageError("accuracies are those of real images\nGive --data-dir, a folder of CIFAR-10.")
    accuracies: dict[str, list[float]] = {name: [] for name in SETTINGS["strategies"]}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(SEEDS):
            done = worldsize.study(out=Path(folder) / str(seed), report=False, seed=seed, data_dir=data_dir, **SETTINGS)
            for cell in done.cells.values():
                accuracies[cell.record.strategy].append(cell.record.evaluations[-1].test_accuracy)
            say(f"  seed {seed}: {accuracies}")
            keep(
                "rung-accuracy",
                {"settings": _settings(), "accuracies": accuracies, "differences": _differences(accuracies)},
            )
    print(f"vgg11, {SAMPLES} images, {EPOCHS} epochs, 2 workers, b = {BATCH}, {SEEDS} seeds: test accuracy")
    for name, found in accuracies.items():
        print(f"  {name:<10} " + "  ".join(f"{each:.1%}" for each in found))
    for name, each in _differences(accuracies).items():
        print(f"  {name} − {EXACT}: {_points(each)} points (asked: within {ASKED:.0%})")


def _settings() -> dict[str, Any]:
    return {key: value for key, value in SETTINGS.items() if key != "data_dir"}


def _differences(accuracies: dict[str, list[float]]) -> dict[str, dict[str, float | None]]:
    """Mean difference to the exact strategy over the seeds, and Student's 95 % interval."""
    found: dict[str, dict[str, float | None]] = {}
    for name in RUNGS:
        each = [rung - exact for rung, exact in zip(accuracies[name], accuracies[EXACT], strict=True)]
        mean, n = sum(each) / len(each), len(each)
        half = None
        if n > 1:
            spread = math.sqrt(sum((value - mean) ** 2 for value in each) / (n - 1))
            half = float(stats.t.ppf(0.975, n - 1)) * spread / math.sqrt(n)
        found[name] = {"mean": mean, "half_width": half}
    return found


def _points(difference: dict[str, float | None]) -> str:
    mean, half = difference["mean"], difference["half_width"]
    assert mean is not None
    return f"{mean * 100:+.2f}" + ("" if half is None else f" ± {half * 100:.2f}")
