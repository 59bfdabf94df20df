"""The learning rate of each step, against values worked out by hand."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tiny import alone, tiny_settings
from worldsize.config import StudySettings, TrainingSettings, validated
from worldsize.errors import UsageError
from worldsize.training.recipe import learning_rate, target_rate

pytestmark = pytest.mark.usefixtures("clean_imports")
STEPS_PER_EPOCH = 10


def rates(global_batch: int = 128, **settings: Any) -> list[float]:
    chosen = TrainingSettings(epochs=4, **settings)
    return [learning_rate(chosen, global_batch, STEPS_PER_EPOCH, step) for step in range(4 * STEPS_PER_EPOCH)]


@pytest.mark.parametrize(("rule", "rate"), [("none", 0.1), ("linear", 1.6), ("sqrt", 0.4)])
def test_the_rate_of_sixteen_times_the_base_batch(rule: Any, rate: float) -> None:
    assert target_rate(TrainingSettings(lr_scaling=rule), 2048) == pytest.approx(rate)
    assert target_rate(TrainingSettings(lr_scaling=rule), 128) == pytest.approx(0.1)
    assert rates(2048, lr_scaling=rule) == pytest.approx([rate] * 40)


def test_warm_up_grows_from_the_rate_of_the_base_batch_in_equal_steps() -> None:
    found = rates(256, lr_scaling="linear", lr_warmup_epochs=1)
    assert found[:10] == pytest.approx([0.1 + 0.01 * (k + 1) for k in range(10)])
    assert found[10:] == pytest.approx([0.2] * 30)


def test_warm_up_without_scaling_grows_from_nothing() -> None:
    assert rates(lr_warmup_epochs=0.5)[:6] == pytest.approx([0.02, 0.04, 0.06, 0.08, 0.1, 0.1])


def test_step_decay_divides_by_ten_at_one_half_and_three_quarters() -> None:
    assert rates(lr_schedule="step") == pytest.approx([0.1] * 20 + [0.01] * 10 + [0.001] * 10)


def test_cosine_falls_to_nothing_after_warm_up() -> None:
    found = rates(lr_schedule="cosine", lr_warmup_epochs=2)
    assert found[20] == pytest.approx(0.1)
    assert found[30] == pytest.approx(0.05)
    assert 0 < found[39] < 0.001
    assert all(later < earlier for earlier, later in pairwise(found[20:]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr_schedule": "cosine", "steps": 20}, "falls over epochs"),
        ({"lr_warmup_epochs": 5, "epochs": 5}, "must end before"),
        ({"nesterov": True, "momentum": 0}, "momentum is 0"),
        ({"optimizer": "adam"}, "sgd.*muon"),
        ({"lr_scaling": "cubic"}, "none.*linear.*sqrt"),
        ({"label_smoothing": 1}, "less than 1"),
    ],
)
def test_a_recipe_that_cannot_be_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        validated(StudySettings, settings)


def test_the_optimizer_takes_the_rate_of_each_step(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, batch_size=400, epochs=2, lr_scaling="linear", lr_warmup_epochs=1)
    trainer, _ = alone(settings)
    used = []
    trainer.optimizer.register_step_pre_hook(lambda optimizer, *_: used.append(optimizer.param_groups[0]["lr"]))
    for _ in range(4):
        trainer.step()
    assert used == pytest.approx([0.1 + (0.3125 - 0.1) * k / 3 for k in (1, 2, 3)] + [0.3125])


def test_label_smoothing_is_in_the_training_loss(tmp_path: Path) -> None:
    trainer, _ = alone(tiny_settings(tmp_path, label_smoothing=0.1))
    plain, _ = alone(tiny_settings(tmp_path))
    _, (inputs, labels) = next(plain.stream)
    wanted = F.cross_entropy(plain.model(inputs), labels, label_smoothing=0.1)
    assert torch.allclose(trainer.step()[2], wanted)
    assert not torch.allclose(wanted, F.cross_entropy(plain.model(inputs), labels))


def test_clipped_gradients_have_the_norm_that_was_asked_for_and_their_direction(tmp_path: Path) -> None:
    """With plain SGD the change of the weights is the learning rate times the gradient."""
    plain = {"momentum": 0.0, "weight_decay": 0.0, "learning_rate": 0.5}
    free, _ = alone(tiny_settings(tmp_path, **plain))
    clipped, _ = alone(tiny_settings(tmp_path, **plain, clip_norm=0.01))
    changes = []
    for trainer in (free, clipped):
        before = torch.cat([p.detach().flatten().clone() for p in trainer.model.parameters()])
        trainer.step()
        changes.append(torch.cat([p.detach().flatten() for p in trainer.model.parameters()]) - before)
    assert float(changes[0].norm()) > 0.5 * 0.01, "there is something to clip"
    assert float(changes[1].norm()) == pytest.approx(0.5 * 0.01, rel=1e-3)
    assert float(F.cosine_similarity(changes[0], changes[1], dim=0)) > 0.999


def test_a_norm_that_is_not_reached_changes_nothing(tmp_path: Path) -> None:
    losses = []
    for clip_norm in (None, 1e6):
        trainer, _ = alone(tiny_settings(tmp_path, clip_norm=clip_norm))
        losses.append([float(trainer.step().loss) for _ in range(3)])
    assert losses[0] == losses[1]
