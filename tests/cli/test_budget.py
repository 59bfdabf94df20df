"""A budget of time on the command line: kept, and refused where it is too small or cannot be read."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import worldsize as by_itself
from in_process import worldsize
from tiny import MODEL

TINY = ("--model", "tiny_model.py:net", "--data", "digits", "--batch-sizes", 16, "--threads-per-worker", 1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "tiny_model.py").write_text(MODEL)
    return tmp_path


@pytest.mark.quiet
def test_a_study_ends_with_its_budget_and_launches_its_cells_anew(place: Path) -> None:
    """The precision asked for cannot be had, so that only the time ends it; a machine may be slower than ours.

    Beside three others of its kind a cell was launched once or twice.
    """
    begin = time.monotonic()
    grid = ("--strategies", "single,ddp", "--world-sizes", "1,2", "--baseline", "single", "--target-interval", "0.0001")
    done = by_itself("study", *TINY, *grid, "--budget", "25s", "--out", "run", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    assert 15 < time.monotonic() - begin < 75
    assert "the answer comes within about" in done.stderr
    content = json.loads(done.stdout)
    assert content["cells"]["ddp-w2-b16"]["ended_by"] == "budget"
    for name, cell in content["cells"].items():
        assert cell["launches"] >= 3, name
        lines = (place / "run" / "cells" / name / "rank0.jsonl").read_text().splitlines()
        steps = [json.loads(line) for line in lines]
        assert sorted({step["launch"] for step in steps}) == list(range(cell["launches"]))
        numbers = [step["step"] for step in steps if step["synchronised"]]
        assert len(set(numbers)) == len(numbers), "a launch does not use the numbers of the one before"
    assert content["decided"] in (True, False)


def test_a_budget_that_is_too_small_is_refused(place: Path) -> None:
    grid = ("--strategies", "single,ddp", "--world-sizes", "1,2")
    done = worldsize("study", *TINY, *grid, "--budget", "2s", "--out", "run", cwd=place)
    assert done.returncode == 2
    told = done.stderr.strip().splitlines()[-2:]
    assert told[0].startswith(
        "worldsize: a budget of 2s is too short: launching 4 cell(s) and one step of each take about"
    )
    assert told[1].startswith("Give --budget ")
    assert not (place / "run" / "cells").exists()


@pytest.mark.parametrize(
    ("budget", "told"),
    [("soon", "a time such as 90s or 5min"), ("0s", "nothing can be measured in no time"), ("90", "a time such as")],
)
def test_a_budget_that_cannot_be_is_refused(place: Path, budget: str, told: str) -> None:
    done = worldsize("study", *TINY, "--budget", budget, "--out", "run", cwd=place)
    assert done.returncode == 2
    assert told in done.stderr
    assert "budget: " in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2


def test_epochs_have_no_budget(place: Path) -> None:
    done = worldsize("study", *TINY, "--budget", "60s", "--epochs", 1, "--out", "run", cwd=place)
    assert done.returncode == 2
    assert "budget and epochs exclude each other" in done.stderr


DEEP = """
from torch import nn


def net(classes):
    layers = (nn.Conv2d(64, 64, 3, padding=1) for _ in range(40))
    return nn.Sequential(nn.Conv2d(3, 64, 1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))
"""
"""9 GFLOP a sample: of 32 samples a step takes seconds on two cores."""


@pytest.mark.parametrize("launcher", [(), ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")])
def test_a_batch_that_is_not_given_is_made_often_enough(tmp_path: Path, launcher: tuple[str, ...]) -> None:
    (tmp_path / "deep.py").write_text(DEEP)
    what = ("--model", "deep.py:net", "--data", "synthetic:3x32x32:10:200", "--learning-rate", "0.001")
    grid = ("--strategies", "single,ddp", "--world-sizes", "1,2", "--budget", "30s", "--out", "run")
    command = [sys.executable, *launcher, "-m", "worldsize", "study", *what, *grid]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    study = json.loads((tmp_path / "run" / "study.json").read_text())
    (batch,) = study["settings"]["batch_sizes"]
    assert batch in (1, 2, 4, 8, 16)
    (told,) = [each["message"] for each in study["warnings"] if each["code"] == "smaller-batch"]
    assert told.startswith(f"b = {batch}: with the usual 32 a step would take at least ")
    assert {f"single-w1-b{batch}", f"ddp-w2-b{batch}"} <= set(study["plan"])
