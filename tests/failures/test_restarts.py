"""`--max-restarts`: training goes on from its last checkpoint, and ends where one ends that was never disturbed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import finish, processes_of, worker
from failing import ALONE, EPOCH, EPOCHS, PAIR, TRAINING, Place, is_kept, wait_for
from worldsize.config import StudySettings, validated
from worldsize.errors import UsageError
from worldsize.results.folder import load_run

TRAIN = ("train", "--strategy", "all-reduce", "--world-size", 2, "--batch-size", 8, *TRAINING)


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Any]]:
    """A training whose rank 1 was killed, and whose agent was killed later, and how its command ended."""
    place = Place(tmp_path_factory.mktemp("restarts"))
    process = place.start(*TRAIN, "--out", "run", "--max-restarts", 2)
    wait_for(lambda: len(place.lines()) >= EPOCH + 3, "some steps of the second epoch")
    worker(place.folder, 1).kill()
    seen = place.written()
    wait_for(lambda: len(place.lines()) >= 2 * EPOCH + 5, "some steps of the third epoch")
    assert is_kept(seen, place.written())
    worker(place.folder, 0).parent().kill()
    done = finish(process, place.folder)
    assert place.left() == []
    yield place, done
    assert not processes_of(place.folder)


def test_a_training_goes_on_when_its_workers_have_died(restarted: tuple[Place, Any]) -> None:
    place, done = restarted
    assert done.returncode == 0, done.stderr
    assert place.record()["state"] == "complete"


def test_every_loss_is_that_of_a_training_that_was_never_disturbed(restarted: tuple[Place, Any], whole: Place) -> None:
    place, _ = restarted
    for rank in (0, 1):
        assert sorted(place.losses(rank=rank)) == list(range(EPOCHS * EPOCH))
        assert place.losses(rank=rank) == whole.losses(rank=rank)
    evaluated = [(each["step"], each["test_loss"]) for each in place.record()["evaluations"]]
    assert evaluated == [(each["step"], each["test_loss"]) for each in whole.record()["evaluations"]]
    steps = load_run(place.run).cells[PAIR].steps
    assert steps.height == 2 * EPOCHS * EPOCH, "what was run twice counts once"


def test_each_restart_is_a_warning(restarted: tuple[Place, Any]) -> None:
    place, done = restarted
    warnings = [each["message"] for each in place.record()["warnings"] if each["code"] == "restarted"]
    assert [text.split(" at step")[0] for text in warnings] == [f"{PAIR}: restart {n} of 2" for n in (1, 2)]
    assert "rank 1 was killed by SIGKILL" in warnings[0]
    assert "agent" in warnings[1]
    assert "restart 1 of 2" in " ".join(done.stdout.split())


def test_with_fewer_workers_it_goes_on_as_another_cell(tmp_path: Path) -> None:
    """The same global batch, from the checkpoint: without dropout its first loss is the mean of those of the ranks."""
    place = Place(tmp_path)
    process = place.start(*TRAIN, "--checkpoint-steps", 4, "--min-workers", 1, "--out", "run", DROPOUT="0")
    wait_for(lambda: len(place.lines()) >= EPOCH + 3, "steps after the checkpoint of the first epoch")
    worker(tmp_path, 1).kill()
    done = finish(process, tmp_path)
    assert done.returncode == 1, "the cell that was asked for has failed"
    assert place.record()["state"] == "failed"
    fewer = "all-reduce-w1-b16-after-w2"
    assert place.record(fewer)["state"] == "complete"
    losses = place.losses(fewer)
    first = min(losses)
    assert sorted(losses) == list(range(first, EPOCHS * EPOCH))
    assert first > 0
    assert first % 4 == 0
    ranks = [place.losses(rank=rank)[first] for rank in (0, 1)]
    assert losses[first] == pytest.approx(sum(ranks) / 2, rel=1e-4)
    [warning] = [each for each in place.record(fewer)["warnings"] if each["code"] == "fewer-workers"]
    assert f"goes on at step {first} of {PAIR} with 1 worker(s)" in warning["message"]
    # With --resume the workers may be there again: the cell itself goes on.
    resumed = finish(place.start("train", "--resume", "--out", "run", SLOW_S="0", DROPOUT="0"), tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert place.record()["state"] == place.record(fewer)["state"] == "complete"
    assert place.left() == []


def test_what_would_fail_again_is_not_tried_again(tmp_path: Path) -> None:
    """A loss that is no number: the same weights and data would end there again."""
    place = Place(tmp_path)
    quick = ("--train-samples", 32, "--epochs", 1, "--checkpoint-steps", 1, "--learning-rate", "1e30")
    model = ("--model", "mine.py:net", "--batch-size", 8, "--threads-per-worker", 1)
    done = finish(place.start("train", *model, *quick, "--max-restarts", 3, "--out", "run"), tmp_path)
    assert done.returncode == 1
    record = json.loads((place.run / "cells" / ALONE / "cell.json").read_text())
    assert record["error"]["kind"] == "LossNotFiniteError"
    assert record["warnings"] == []


def test_restarts_need_checkpoints() -> None:
    with pytest.raises(UsageError, match="max_restarts goes on from checkpoints: give epochs and checkpoint as well"):
        validated(StudySettings, {"max_restarts": 1, "epochs": 2})


def test_a_time_that_cannot_be_read_is_named() -> None:
    with pytest.raises(UsageError, match="a time such as 20s or 10min, or none"):
        validated(StudySettings, {"hang_timeout": "soon"})
    assert StudySettings(hang_timeout="none").hang_timeout_s is None
    assert StudySettings(hang_timeout="1.5min").hang_timeout_s == 90
