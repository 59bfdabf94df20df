"""The memory of training, taken apart: models whose bytes are known, and the peak of real processes beside them."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs import start
from tiny import alone, tiny_settings
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores
from worldsize.results.files import cell_folder
from worldsize.results.memory_records import MemoryParts
from worldsize.training.memory import memory_parts

MODEL = """
from torch import nn

def net(classes):
    # 3·16 → 10,000 → classes: 490,000 + 100,010 weights of 4 bytes; the layer between has 4 values for each feature.
    return nn.Sequential(
        nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 10_000), nn.BatchNorm1d(10_000), nn.Linear(10_000, classes)
    )
"""
WEIGHTS = 48 * 10_000 + 10_000 + 2 * 10_000 + 10 * 10_000 + 10
TENSORS = 6
PARAMETER_BYTES, BUFFER_BYTES = 4 * WEIGHTS, 2 * 4 * 10_000 + 8
"""Mean and variance of each feature, and how many batches there were."""

LARGE = """
from torch import nn

def net(classes):
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 200_000), nn.Linear(200_000, classes))
"""
LARGE_BYTES = 4 * (48 * 200_000 + 200_000 + 200_000 * 10 + 10)
BATCH = 4
ACTIVATIONS = 4 * BATCH * 200_000
MIB = 2**20

pytestmark = pytest.mark.usefixtures("clean_imports")


def known(folder: Path, **settings: Any) -> Any:
    (folder / "known.py").write_text(MODEL)
    return tiny_settings(folder, model=f"{folder / 'known.py'}:net", batch_size=4, **settings)


@pytest.mark.parametrize(("momentum", "states"), [(0.9, 1), (0.0, 0)])
def test_every_part_of_sgd_is_known_to_the_byte(tmp_path: Path, momentum: float, states: int) -> None:
    trainer, _ = alone(known(tmp_path, momentum=momentum))
    for _ in range(2):
        trainer.step()
    found = memory_parts(trainer)
    assert (found.parameter_bytes, found.buffer_bytes) == (PARAMETER_BYTES, BUFFER_BYTES)
    assert found.gradient_bytes == PARAMETER_BYTES
    assert found.optimizer_bytes == states * PARAMETER_BYTES
    assert found.copy_bytes == 0


def test_adam_keeps_two_moments_and_a_count_of_each_tensor(tmp_path: Path) -> None:
    trainer, _ = alone(known(tmp_path))
    trainer.optimizer = torch.optim.Adam(trainer.model.parameters())
    trainer.step()
    assert memory_parts(trainer).optimizer_bytes == 2 * PARAMETER_BYTES + 4 * TENSORS


def test_a_weight_that_is_not_trained_has_no_gradient_and_no_state(tmp_path: Path) -> None:
    trainer, _ = alone(known(tmp_path))
    frozen = trainer.model[2].weight.requires_grad_(False)  # type: ignore[index]
    trainer.step()
    found = memory_parts(trainer)
    assert found.parameter_bytes == PARAMETER_BYTES
    assert found.gradient_bytes == found.optimizer_bytes == PARAMETER_BYTES - 4 * frozen.numel()


def test_replicas_and_their_gradients_are_copies(tmp_path: Path) -> None:
    trainer, _ = alone(known(tmp_path, strategy="data-parallel", world_size=3))
    trainer.step()
    assert memory_parts(trainer).copy_bytes == 2 * (PARAMETER_BYTES + BUFFER_BYTES) + 3 * PARAMETER_BYTES


@pytest.mark.parametrize(
    ("strategy", "world_size", "copies"),
    [("single", 1, (0,)), ("ddp", 2, (LARGE_BYTES,) * 2), ("gather-scatter", 2, (2 * 4 * 48 * 200_000, 0))],
)
def test_the_peak_of_a_real_training_is_its_tensors_and_little_more(
    tmp_path: Path, strategy: str, world_size: int, copies: tuple[int, ...]
) -> None:
    """Weights, gradients, momentum and buckets are there together when the last gradient has arrived.

    Beside them there can be one more copy of the gradients, which a layer's backward works on, and of what the
    strategy copies, for gloo gathers into memory of its own; the values between the layers with their gradients; and
    what torch's threads and kernels need, less than 64 MiB.
    """
    for rank, reply in enumerate(trained(tmp_path, strategy, world_size)):
        found = MemoryParts.model_validate(reply["memory"])
        assert (found.rank, found.parameter_bytes, found.gradient_bytes) == (rank, LARGE_BYTES, LARGE_BYTES)
        assert (found.optimizer_bytes, found.copy_bytes) == (LARGE_BYTES, copies[rank])
        assert found.before_bytes is not None
        tensors = found.known_bytes - found.before_bytes
        assert tensors == 3 * LARGE_BYTES + copies[rank]
        most = found.known_bytes + LARGE_BYTES + copies[rank] + 4 * ACTIVATIONS + 64 * MIB
        assert tensors - MIB < reply["peak_memory_bytes"] < most


def trained(folder: Path, strategy: str, world_size: int) -> list[Any]:
    (folder / "large.py").write_text(LARGE)
    model = f"{folder / 'large.py'}:net"
    settings = tiny_settings(folder, model=model, strategy=strategy, world_size=world_size, batch_size=BATCH)
    placement = place(
        world_size=world_size, processes=world_size, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo"
    )
    job = start(
        "worldsize.training.rank:enter",
        world_size,
        cell_folder(folder, settings.id) / "job",
        run=str(folder),
        settings=settings.model_dump(mode="json"),
        placement=placement.model_dump(mode="json"),
        session=0,
    )
    with closing(job):
        job.receive()
        job.send({"op": "steps", "count": 3})
        replies = job.receive()
        job.send({"op": "finish"})
        job.receive()
    return replies
