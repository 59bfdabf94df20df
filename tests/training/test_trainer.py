"""One rank trains: on its share of the data, with a loss that falls."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tiny import alone, tiny_settings
from worldsize.config import CellSettings
from worldsize.data import load_data, training_batches
from worldsize.errors import DataError
from worldsize.measure.timeline import Phase, read
from worldsize.training.classifier import my_share

pytestmark = pytest.mark.usefixtures("clean_imports")


@given(st.integers(1, 16), st.integers(1, 64), st.booleans())
def test_shares_are_the_global_batch_side_by_side(world_size: int, batch_size: int, one_process: bool) -> None:
    settings = CellSettings(world_size=world_size, batch_size=batch_size)
    processes = 1 if one_process else world_size
    batch = list(range(settings.global_batch))
    shares = [batch[my_share(settings, rank, processes)] for rank in range(processes)]
    assert [sample for share in shares for sample in share] == batch
    assert {len(share) for share in shares} == {settings.global_batch // processes}


def test_the_same_data_reach_the_model_at_any_world_size() -> None:
    def batches(world_size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The first global batches of the second epoch, put together from those of all ranks."""
        settings = CellSettings(data="digits", world_size=world_size, batch_size=12 // world_size, seed=3)
        ranks = [
            training_batches(
                data,
                loader="batched",
                loader_workers=0,
                seed=settings.seed,
                global_batch=settings.global_batch,
                share=my_share(settings, rank, world_size),
            ).epoch(1)
            for rank in range(world_size)
        ]
        steps = [list(step) for _, step in zip(range(3), zip(*ranks, strict=True), strict=False)]
        return [(torch.cat([x for x, _ in step]), torch.cat([y for _, y in step])) for step in steps]

    data = load_data(CellSettings(data="digits"))
    wanted = batches(1)
    for world_size in (2, 3, 4):
        for (inputs, labels), (same_inputs, same_labels) in zip(wanted, batches(world_size), strict=True):
            assert torch.equal(inputs, same_inputs)
            assert torch.equal(labels, same_labels)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_loss_falls(tmp_path: Path, precision: str) -> None:
    trainer, _ = alone(tiny_settings(tmp_path, precision=precision, learning_rate=0.05))
    losses = [float(trainer.step()[2]) for _ in range(60)]
    assert trainer.steps == 60
    assert sum(losses[-10:]) < sum(losses[:10]) / 2


def test_the_same_seed_trains_the_same_model(tmp_path: Path) -> None:
    def losses(seed: int) -> list[float]:
        trainer, _ = alone(tiny_settings(tmp_path, seed=seed))
        return [float(trainer.step()[2]) for _ in range(3)]

    assert losses(0) == losses(0)
    assert losses(0) != losses(1)


def test_a_step_is_marked_phase_by_phase(tmp_path: Path) -> None:
    trainer, _ = alone(tiny_settings(tmp_path, strategy="data-parallel", world_size=2, batch_size=4))
    epoch, samples, loss, right, _ = trainer.step()
    assert right is not None
    assert 0 <= int(right) <= samples
    marks = read(trainer.timeline.take(), trainer.timeline.clock)
    assert (epoch, samples, loss.requires_grad) == (0, 8, False)
    ends = [marks.begin, *marks.ends.values()]
    assert ends == sorted(ends)
    assert list(marks.ends) == list(Phase)
    assert marks.last_gradient is not None
    assert marks.ends[Phase.FORWARD] <= marks.last_gradient <= marks.ends[Phase.BACKWARD]
    assert [message.kind for message in marks.messages] == ["replicate", "gather", "reduce"]


def test_an_epoch_ends_with_its_last_whole_batch(tmp_path: Path) -> None:
    trainer, data = alone(tiny_settings(tmp_path, batch_size=30, train_samples=70))
    assert trainer.batches.steps_per_epoch == len(data.train) // 30 == 2
    assert [trainer.step()[0] for _ in range(5)] == [0, 0, 1, 1, 2]


def test_traffic_is_that_of_the_model_and_looking_at_it_leaves_no_trace(tmp_path: Path) -> None:
    trainer, _ = alone(tiny_settings(tmp_path))
    model = trainer.strategy.unwrap()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    sizes = trainer.sizes()
    weights = 3 * 16 * 9 + 2 * 16 + 16 * 32 * 9 + 2 * 32 + 32 * 4 * 4 * 10 + 10
    norms = (2 * 16 * 4 + 8) + (2 * 32 * 4 + 8)  # mean and variance, and the count of batches as int64
    assert sizes.gradient_bytes == 4 * weights
    assert sizes.buffer_bytes == norms
    assert sizes.input_bytes == 16 * 3 * 32 * 32 * 4
    assert sizes.output_bytes == 16 * 10 * 4
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_batch_above_the_data_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2000 is larger than the 1437"):
        alone(tiny_settings(tmp_path, batch_size=2000))
