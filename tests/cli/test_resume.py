"""A training that is killed and goes on ends, to the last bit, where one ends that was never stopped."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from commands import finish, processes_of, start, wait_until
from in_process import worldsize
from worldsize.analysis.cells import analyse_cell
from worldsize.analysis.steps import world_steps
from worldsize.results.checkpoints import checkpoint_folder, find_checkpoint
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run

MODEL = """
import os, time
from torch import nn

class Net(nn.Sequential):
    def forward(self, images):
        if self.training:
            time.sleep(float(os.environ.get("SLOW_S", "0")))
        return super().forward(images)

def net(classes):
    print("a user's own words")
    return Net(
        nn.AvgPool2d(4), nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Dropout(0.3), nn.Flatten(), nn.Linear(8 * 8 * 8, classes),
    )
"""
EPOCH, EPOCHS, EVERY = 8, 3, 3
"""Steps of an epoch with two workers; epochs; steps between two checkpoints within an epoch."""
SLOW_S = "0.15"
GRID = ("--strategies", "single,ddp", "--world-sizes", "1,2", "--baseline", "single", "--batch-sizes", 8)
DATA = ("--model", "mine.py:net", "--train-samples", 16 * EPOCH, "--test-samples", 30, "--threads-per-worker", 1)
RECIPE = ("--lr-schedule", "cosine", "--lr-warmup-epochs", 0.5, "--momentum", 0.9, "--epochs", EPOCHS)
STUDY = ("study", *GRID, *DATA, *RECIPE, "--checkpoint", "--checkpoint-steps", EVERY, "--json")
CELLS = {"single-w1-b8": 1, "ddp-w2-b8": 2}


def lines(run: Path, cell: str, rank: int = 0) -> list[dict[str, Any]]:
    file = cell_folder(run, cell) / f"rank{rank}.jsonl"
    whole = file.read_text().rpartition("\n")[0].splitlines() if file.exists() else []
    return [json.loads(line) for line in whole]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two runs of the same study: `whole` was never stopped, `stopped` was killed, resumed, ended, and resumed."""
    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / "mine.py").write_text(MODEL)
    whole = worldsize(*STUDY, "--out", "whole", cwd=folder)
    assert whole.returncode == 0, whole.stderr
    # A kill in the second epoch of ddp, which has a checkpoint after its third step …
    killed = start(*STUDY, "--out", "stopped", cwd=folder, SLOW_S=SLOW_S)
    wait_until(lambda: len(lines(folder / "stopped", "ddp-w2-b8")) >= EPOCH + EVERY + 1, killed)
    killed.kill()
    killed.communicate()
    wait_until_gone(folder)
    shutil.copytree(folder / "stopped", folder / "killed")
    # … and an end in good order in its third epoch, before its next one.
    ended = start("study", "--resume", "--out", "stopped", "--json", cwd=folder, SLOW_S=SLOW_S)
    wait_until(lambda: lines(folder / "stopped", "ddp-w2-b8")[-1]["step"] >= 2 * EPOCH + 1, ended)
    ended.send_signal(signal.SIGTERM)
    assert finish(ended, folder).returncode == 130
    last = worldsize("study", "--resume", "--out", "stopped", "--json", cwd=folder)
    assert last.returncode == 0, last.stderr
    yield folder
    assert not processes_of(folder)


def wait_until_gone(folder: Path) -> None:
    """The workers of a parent that was killed end by themselves."""
    for process in processes_of(folder):
        process.wait(60)


def trained(run: Path, cell: str) -> dict[int, list[tuple[int, float]]]:
    """The loss of each step, by rank, as the analysis reads them."""
    steps = load_run(run).cells[cell].steps
    return {rank: steps.filter(steps["rank"] == rank).select("step", "loss").rows() for rank in range(CELLS[cell])}


def saved(run: Path, cell: str) -> dict[str, Any]:
    """Everything in the checkpoint of a cell, by the names of its parts."""
    folder = checkpoint_folder(cell_folder(run, cell))
    assert {path.name for path in folder.iterdir()} == {
        "checkpoint.json",
        *(part.name for parts in record(run, cell).parts for part in parts),
    }
    return {path.name: torch.load(path, weights_only=True) for path in sorted(folder.glob("*.pt"))}


def record(run: Path, cell: str) -> Any:
    found = find_checkpoint(checkpoint_folder(cell_folder(run, cell)))
    assert found is not None
    return found


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.stride() == b.stride()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@pytest.mark.parametrize("cell", CELLS)
def test_every_loss_and_the_last_weights_are_those_of_a_training_that_was_never_stopped(place: Path, cell: str) -> None:
    whole, stopped = trained(place / "whole", cell), trained(place / "stopped", cell)
    steps = EPOCHS * EPOCH * 2 // CELLS[cell]
    assert [step for step, _ in whole[0]] == list(range(steps))
    assert stopped == whole
    assert same(saved(place / "stopped", cell), saved(place / "whole", cell))


def test_what_was_run_twice_is_on_disk_and_counts_once(place: Path) -> None:
    """The first session went beyond its checkpoint; nothing of it is thrown away, and nothing of it is used."""
    written = lines(place / "stopped", "ddp-w2-b8")
    first = [step["step"] for step in written if step["session"] == 0]
    later = [step["step"] for step in written if step["session"] > 0]
    begin = record(place / "killed", "ddp-w2-b8").step
    assert max(first) >= begin
    assert min(later) == begin, "it goes on at its checkpoint, in the middle of the epoch"
    cell = load_run(place / "stopped").cells["ddp-w2-b8"]
    timed = world_steps(cell)
    assert timed["step"].n_unique() == timed.height
    assert all(step < begin for step in timed.filter(timed["session"] == 0)["step"])
    assert analyse_cell(cell).losses["step"].to_list() == list(range(EPOCHS * EPOCH))
    spans = cell.spans
    assert spans.height == 2 * EPOCHS * EPOCH


@pytest.mark.parametrize("cell", CELLS)
def test_each_epoch_was_evaluated_once(place: Path, cell: str) -> None:
    whole, stopped = (load_run(place / run).cells[cell].record for run in ("whole", "stopped"))
    assert [each.epoch for each in stopped.evaluations] == list(range(EPOCHS))
    assert stopped.evaluations == whole.evaluations
    assert (stopped.state, stopped.ended_by) == ("complete", "epochs")


def test_epochs_go_on(place: Path) -> None:
    by_step = {each["step"]: each["epoch"] for each in lines(place / "stopped", "ddp-w2-b8")}
    assert by_step == {step: step // EPOCH for step in range(EPOCHS * EPOCH)}


def test_a_kill_leaves_a_whole_checkpoint(place: Path) -> None:
    folder = checkpoint_folder(cell_folder(place / "killed", "ddp-w2-b8"))
    found = record(place / "killed", "ddp-w2-b8")
    assert (found.epoch, found.epoch_step % EVERY) == (1, 0), "in the second epoch, but not at its start"
    assert found.step == EPOCH + found.epoch_step > EPOCH
    assert all((folder / part.name).stat().st_size == part.size_bytes for parts in found.parts for part in parts)


def torchrun(folder: Path, *arguments: object, **variables: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, "-m", "worldsize", *arguments]
    return subprocess.Popen(
        [*map(str, command), "--out", "torchrun"],
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_under_torchrun_a_training_goes_on_as_well(place: Path) -> None:
    run, cell = place / "torchrun", "ddp-w2-b8"
    ended = torchrun(place, "train", *DATA, *RECIPE, "--batch-size", 8, "--strategy", "ddp", SLOW_S=SLOW_S)
    wait_until(lambda: len(lines(run, cell)) > EPOCH, ended)
    ended.terminate()
    finish(ended, place)
    resumed = finish(torchrun(place, "train", "--resume", "--json"), place)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["cells"][cell]["state"] == "complete", "what a model prints is not on stdout"
    assert next(each["step"] for each in lines(run, cell) if each["session"] == 1) % EPOCH == 0
    assert trained(run, cell) == trained(place / "whole", cell)
    assert load_run(run).cells[cell].record.state == "complete"


def test_a_damaged_checkpoint_is_refused_before_anything_is_started(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "killed", tmp_path / "run")
    (tmp_path / "mine.py").write_text(MODEL)
    [file] = checkpoint_folder(cell_folder(tmp_path / "run", "ddp-w2-b8")).glob("rank1-*.pt")
    size = file.stat().st_size
    file.write_bytes(file.read_bytes()[:1000])
    before = (tmp_path / "run" / "study.json").read_bytes()
    done = worldsize("study", "--resume", "--out", "run", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    folder = "run/cells/ddp-w2-b8/checkpoint"
    why = f"it is not what checkpoint.json says (1000 bytes of {size})"
    assert done.stderr.splitlines() == [
        f"worldsize: cannot go on from {folder}/{file.name}: {why}",
        f"Remove {folder} to train this cell from its start with --resume, or give another --out.",
    ]
    assert (tmp_path / "run" / "study.json").read_bytes() == before


def test_the_weights_load_in_plain_torch(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three lines of docs/training.md, as they stand there."""
    cell = "cells/ddp-w2-b8"
    shutil.copytree(place / "whole" / cell, tmp_path / "runs" / "mine" / cell)
    model = nn.Sequential(
        nn.AvgPool2d(4), nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Dropout(0.3), nn.Flatten(), nn.Linear(8 * 8 * 8, 10),
    )  # fmt: skip
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    three = textwrap.dedent("".join(re.findall(r"^    (?:\[file\]|model).*\n", text, re.MULTILINE)))
    assert three.count("\n") == 3
    monkeypatch.chdir(tmp_path)
    exec(three, {"Path": Path, "torch": torch, "mymodel": SimpleNamespace(make=lambda classes: model)})
    [weights] = [part for name, part in saved(place / "whole", "ddp-w2-b8").items() if name.startswith("model-")]
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
