"""Claim: VGG-11 reaches 85 % test accuracy in 5 epochs of CIFAR-10 with DDP, and keeps it within a point at B = 2048.

Two trainings with 2 workers and the same recipe, at B = 128 and, with linear scaling of the learning rate and gradual
warm-up, at B = 2048. Momentum alone differs: gradients of 2048 samples need less averaging, and there are 120 updates
where small batches have 1,950. What is kept is the accuracy after each epoch; times are none of it, so other work may
run beside.
"""

import tempfile
from pathlib import Path
from typing import Any

import worldsize
from common import cifar10_or_synthetic, keep, say

EPOCHS = 5
RECIPE: dict[str, Any] = {
    "model": "vgg11",
    "strategy": "ddp",
    "world_size": 2,
    "epochs": EPOCHS,
    "precision": "bf16",
    "optimizer": "muon",
    "learning_rate": 0.015,
    "base_batch": 128,
    "lr_scaling": "linear",
    "lr_schedule": "cosine",
    "lr_warmup_epochs": 0.5,
    "nesterov": True,
    "weight_decay": 0.05,
}
BATCHES: dict[str, dict[str, Any]] = {
    "small": {"batch_size": 64, "momentum": 0.9},
    "large": {"batch_size": 1024, "momentum": 0.7},
}
GOAL, MARGIN = 0.85, 0.01


def run(data_dir: str | None) -> None:
    """Train both and keep the accuracies, each as soon as it is known."""
    found: dict[str, Any] = {}
    for name, batch in BATCHES.items():
        with tempfile.TemporaryDirectory() as folder:
            settings = {**RECIPE, **batch, **cifar10_or_synthetic(data_dir)}
            done = worldsize.train(out=Path(folder) / "run", report=False, checkpoint=False, **settings)
            [cell] = done.cells.values()
        found[name] = {
            "global_batch": cell.record.global_batch,
            "settings": {**RECIPE, **batch},
            "data": done.study.training[1].model_dump(mode="json", exclude={"location"}),
            "test_accuracy_by_epoch": [e.test_accuracy for e in cell.record.evaluations],
        }
        say(f"  {name}: {found[name]['test_accuracy_by_epoch']}")
        keep("accuracy", {"goal": GOAL, "margin": MARGIN, "runs": found})
    last = {name: result["test_accuracy_by_epoch"][-1] for name, result in found.items()}
    reached = "reached" if last["small"] >= GOAL else "not reached"
    near = "within" if last["large"] >= last["small"] - MARGIN else "not within"
    print(
        f"accuracy: B = 128 {last['small']:.1%} ({GOAL:.0%} {reached}), B = 2048 {last['large']:.1%} ({near} a point)"
    )
