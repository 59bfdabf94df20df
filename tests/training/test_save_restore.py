"""A trainer that goes on from a checkpoint does what the one that wrote it does next, to the last bit."""

import contextlib
import errno
import gc
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs import start
from tiny import alone, tiny_settings
from worldsize.config import CellSettings
from worldsize.data import load_data
from worldsize.errors import OutputError, RunError
from worldsize.launch.local import LocalJob
from worldsize.launch.placement import place
from worldsize.measure.clocks import HostClock
from worldsize.measure.machine import allowed_cores
from worldsize.ranks import checkpoint
from worldsize.ranks.checkpoint import agreed_checkpoint
from worldsize.ranks.loop import Loop
from worldsize.ranks.recorder import Recorder
from worldsize.ranks.turns import Turn
from worldsize.results.checkpoints import (
    CheckpointRecord,
    check_parts,
    checkpoint_folder,
    find_checkpoint,
    write_part,
)
from worldsize.results.files import cell_folder
from worldsize.training.checkpoint import arrange_buckets
from worldsize.training.trainer import Trainer
from worldsize.training.workload import TrainingWorkload

pytestmark = pytest.mark.usefixtures("clean_imports")

DROPOUT = """
from torch import nn

def net(classes):
    return nn.Sequential(
        nn.AvgPool2d(4), nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.4),
        nn.Flatten(), nn.Linear(8 * 8 * 8, classes),
    )
"""


def settings_of(folder: Path, **settings: Any) -> CellSettings:
    (folder / "dropout_model.py").write_text(DROPOUT)
    recipe = {"epochs": 3, "lr_schedule": "cosine", "lr_warmup_epochs": 0.5, "train_samples": 64}
    return tiny_settings(folder, **{"model": f"{folder / 'dropout_model.py'}:net", **recipe, **settings})


def losses(trainer: Trainer, count: int) -> list[tuple[int, str]]:
    """Epoch and loss, to the last bit, of the next steps."""
    results = [trainer.step() for _ in range(count)]
    trainer.timeline.take()
    return [(result.epoch, float(result.loss).hex()) for result in results]


def digest(trainer: Trainer) -> str:
    found = hashlib.sha256()
    for tensor in trainer.strategy.unwrap().state_dict().values():
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def work_of(trainer: Trainer, folder: Path) -> TrainingWorkload:
    return TrainingWorkload(trainer, load_data(trainer.settings), folder)


def save(trainer: Trainer, folder: Path) -> None:
    checkpoint.save(work_of(trainer, folder), folder)


def restore(trainer: Trainer, folder: Path, record: CheckpointRecord) -> None:
    """As a rank does it (training/rank.py)."""
    arrange_buckets(trainer)
    checkpoint.restore(work_of(trainer, folder), folder, record)


def gone_on(settings: CellSettings, folder: Path) -> Trainer:
    trainer, _ = alone(settings)
    record = agreed_checkpoint(folder, 0, 1)
    assert record is not None
    restore(trainer, folder, record)
    return trainer


@pytest.mark.parametrize("loader", ["batched", "per-sample"])
@pytest.mark.parametrize("steps", [1, 4, 6])
def test_losses_and_weights_are_those_of_a_training_that_went_on(tmp_path: Path, loader: str, steps: int) -> None:
    """Four steps make an epoch: within one, at the end of one, within the second."""
    settings = settings_of(tmp_path, loader=loader, loader_workers=0)
    first, _ = alone(settings)
    losses(first, steps)
    save(first, tmp_path / "checkpoint")
    rate, seen = first.rate(), first.seen.digest
    expected = losses(first, 5)  # now: both draw from the generators of this process
    second = gone_on(settings, tmp_path / "checkpoint")
    assert (second.steps, second.rate()) == (steps, rate)
    assert second.seen.digest == seen
    assert losses(second, 5) == expected
    assert (digest(second), second.seen.digest) == (digest(first), first.seen.digest)


def test_a_loader_with_worker_processes_begins_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, loader="per-sample", loader_workers=1)
    first, _ = alone(settings)
    expected = losses(first, 4)[2:]
    second, _ = alone(settings)
    losses(second, 2)
    save(second, tmp_path / "checkpoint")
    third = gone_on(settings, tmp_path / "checkpoint")
    assert losses(third, 2) == expected
    for trainer in (first, second, third):
        trainer.stream.close()
    del first, second, third, trainer
    gc.collect()  # the loaders end their worker processes


def test_a_new_checkpoint_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    trainer, _ = alone(settings_of(tmp_path))
    names = []
    for _ in range(2):
        losses(trainer, 1)
        save(trainer, tmp_path / "checkpoint")
        names.append(sorted(path.name for path in (tmp_path / "checkpoint").iterdir()))
    assert names[0] == ["checkpoint.json", "model-1.pt", "optimizer-1.pt", "rank0-1.pt"]
    assert names[1] == [name.replace("-1", "-2") for name in names[0]]


class Killed(BaseException):
    """The end of the process, as far as the disk can tell."""


def dying(patch: pytest.MonkeyPatch, before: int) -> None:
    """End the process before this call, counted from 0, of those that settle or change what is on disk."""
    calls = itertools.count()

    def instead_of(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if next(calls) == before:
                raise Killed
            return real(*args, **options)

        return call

    for name in ("fsync", "replace", "unlink"):
        patch.setattr(os, name, instead_of(getattr(os, name)))


def test_a_kill_at_any_moment_leaves_the_old_checkpoint_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = alone(settings_of(tmp_path))
    losses(trainer, 2)
    save(trainer, tmp_path / "old")
    losses(trainer, 1)
    found = []
    for moment in itertools.count():
        folder = tmp_path / f"killed{moment}"
        shutil.copytree(tmp_path / "old", folder)
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            dying(patch, moment)
            save(trainer, folder)
            break
        record = find_checkpoint(folder)
        assert record is not None
        check_parts(folder, record.parts)
        found.append(record.step)
        save(trainer, folder)  # the next session's, over what was left
        if record.step == 2:
            assert len(list(folder.iterdir())) == 4
    assert found == sorted(found)
    assert (found.count(2), found.count(3)) == (10, 4)


def test_a_disk_without_room_is_told_and_the_old_checkpoint_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = alone(settings_of(tmp_path))
    losses(trainer, 1)
    save(trainer, tmp_path)
    losses(trainer, 1)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match=r"cannot write .*rank0-2.pt: No space left on device"):
            save(trainer, tmp_path)
    record = find_checkpoint(tmp_path)
    assert record is not None
    assert record.step == 1
    check_parts(tmp_path, record.parts)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_checkpoint_of_another_model_is_told_in_a_line(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    trainer, _ = alone(settings)
    losses(trainer, 1)
    save(trainer, tmp_path / "checkpoint")
    (tmp_path / "wider_model.py").write_text(DROPOUT.replace("8, classes", "8, classes + 1"))
    other = settings.model_copy(update={"model": f"{tmp_path / 'wider_model.py'}:net"})
    with pytest.raises(OutputError, match=r"model-1.pt: it does not fit the model.*6.weight is \(10, 512\) there"):
        gone_on(other, tmp_path / "checkpoint")


class Runs:
    """What a pickle would do."""

    def __reduce__(self) -> Any:
        return os.putenv, ("WORLDSIZE_PICKLE", "ran")


def test_nothing_in_a_checkpoint_is_run(tmp_path: Path) -> None:
    settings, folder = settings_of(tmp_path), tmp_path / "checkpoint"
    trainer, _ = alone(settings)
    losses(trainer, 1)
    save(trainer, folder)
    record = find_checkpoint(folder)
    assert record is not None
    bad = write_part(folder / "optimizer-1.pt", lambda file: torch.save(Runs(), file))
    parts = [[bad if part.name == bad.name else part for part in record.parts[0]]]
    again, _ = alone(settings)
    with pytest.raises(OutputError, match=r"optimizer-1.pt: torch cannot load it \("):
        restore(again, folder, record.model_copy(update={"parts": parts}))


def started(run: Path, settings: CellSettings, session: int) -> LocalJob:
    size = settings.world_size
    placed = place(
        world_size=size, processes=size, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo"
    ).model_dump(mode="json")
    run_of: dict[str, Any] = {
        "run": str(run),
        "session": session,
        "settings": settings.model_dump(mode="json"),
        "placement": placed,
    }
    return start("worldsize.training.rank:enter", size, cell_folder(run, settings.id) / "job", **run_of)


def test_three_ranks_that_do_not_hold_the_same_weights_go_on_each_with_its_own(tmp_path: Path) -> None:
    """With three, a sum depends on its order, and so on DDP's buckets, which it arranges anew after its first step."""
    settings = settings_of(
        tmp_path,
        strategy="ddp",
        world_size=3,
        batch_size=4,
        bucket_mb=0.001,
        leave_out=("initial-weights",),
        checkpoint=True,
    )
    for session in (0, 1):
        with contextlib.closing(started(tmp_path, settings, session)) as job:
            [facts, *_] = [reply["facts"] for reply in job.receive()]
            assert facts["steps"] == 2 * session
            turns: list[dict[str, Any]] = [{"op": "epoch", "count": 4, "first_step": 2}]
            if session == 0:
                turns = [{"op": "epoch", "count": 2}, {"op": "checkpoint"}, *turns]
            for turn in turns:
                job.send(turn)
                job.receive()
    place_ = cell_folder(tmp_path, settings.id)
    record = find_checkpoint(checkpoint_folder(place_))
    assert record is not None
    assert record.apart == [1, 2]
    for rank in range(3):
        lines = [json.loads(line) for line in (place_ / f"rank{rank}.jsonl").read_text().splitlines()]
        first, second = ([each for each in lines if each["session"] == session] for session in (0, 1))
        assert [each["step"] for each in second] == [2, 3, 4, 5]
        assert [each["loss"] for each in second] == [each["loss"] for each in first[2:]]


def test_workers_that_were_started_again_say_so_rather_than_begin_anew(tmp_path: Path) -> None:
    trainer, data = alone(settings_of(tmp_path))
    with Recorder(tmp_path / "cell", 0, HostClock()) as recorder:
        loop = Loop(TrainingWorkload(trainer, data, recorder.folder), recorder, session=0)
        with pytest.raises(
            RunError, match=r"restarted and lost 4 training steps, usually for lack of memory\nGive --checkpoint"
        ):
            loop.take(Turn(op="epoch", first_step=4))
