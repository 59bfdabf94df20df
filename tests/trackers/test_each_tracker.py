"""A study with all clients, as a user types it; what they wrote is read back and is what the run folder has."""

import json
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from commands import worldsize
from histories import (
    Numbers,
    mlflow_runs,
    stored,
    tensorboard_numbers,
    wandb_config,
    wandb_numbers,
    wandb_records,
    wandb_summary,
)
from worldsize import trackers
from worldsize.config import StudySettings
from worldsize.errors import UsageError
from worldsize.results.folder import Run, load_run
from worldsize.study.run import run_study

KEY = "0123456789abcdef0123456789abcdef01234567"
CELL = "ddp-w2-b4"
MODEL = """
from torch import nn

def net(classes):
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.LazyLinear(classes))
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run folder of a training of two epochs on two workers."""
    folder = tmp_path_factory.mktemp("logged")
    (folder / "mine.py").write_text(MODEL)
    what = ("--model", "mine.py:net", "--data", "synthetic:3x8x8:10:64", "--batch-size", 4, "--threads-per-worker", 1)
    ddp = ("--strategy", "ddp", "--world-size", 2, "--epochs", 2, "--log", "wandb,tensorboard,mlflow")
    done = worldsize("train", *what, *ddp, "--out", "run", cwd=folder, WANDB_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert "switched off" not in done.stdout
    assert not [line for line in done.stderr.splitlines() if "mlflow" in line or "wandb" in line], "clients are quiet"
    return load_run(folder / "run")


def same(found: Numbers, wanted: Numbers, rtol: float = 0.0) -> None:
    assert list(found) == sorted(wanted)
    for step, values in wanted.items():
        assert found[step].keys() == values.keys()
        for name, value in values.items():
            np.testing.assert_allclose(found[step][name], value, rtol=rtol or 1e-12, err_msg=f"{name} at {step}")


def summary(run: Run) -> dict[str, float]:
    found = run.cells[CELL].record.summary
    assert found is not None
    return {
        "summary/step_s": found.step_s.value,
        "summary/samples_per_s": found.samples_per_s.value,
        "summary/forward_s": found.parts_s["forward_s"],
        "summary/timed_steps": found.timed_steps,
    }


def test_the_history_has_every_step_and_each_evaluation(logged: Run) -> None:
    """What the clients are compared with is not empty."""
    numbers = stored(logged.cells[CELL])
    assert list(numbers) == list(range(16))
    assert [row["epoch"] for row in numbers.values()] == [0] * 8 + [1] * 8
    assert [row["timed"] for row in numbers.values()] == [0] * 8 + [1] * 8
    assert all(row.keys() >= {"loss", "accuracy", "step_s", "samples_per_s"} for row in numbers.values())
    assert [step for step, row in numbers.items() if "test_accuracy" in row] == [7, 15]


def test_wandb_has_it_offline(logged: Run) -> None:
    [(name, records)] = wandb_records(logged.folder).items()
    assert name == CELL
    same(wandb_numbers(records), stored(logged.cells[CELL]))
    settings = wandb_config(records)
    assert (settings["strategy"], settings["batch_size"], settings["global_batch"]) == ("ddp", 4, 8)
    assert (settings["study"], settings["session"]) == ("run", 0)
    [run] = [record.run for record in records if record.HasField("run")]
    assert (run.project, run.run_group) == ("worldsize", "run")
    written = wandb_summary(records)
    assert written["state"] == "complete"
    for key, value in summary(logged).items():
        assert written[key] == pytest.approx(value)


def test_tensorboard_has_it_in_single_precision(logged: Run) -> None:
    numbers, found, texts = tensorboard_numbers(logged.folder, CELL)
    same(numbers, stored(logged.cells[CELL]), rtol=1e-6)
    for key, value in summary(logged).items():
        assert found[key] == pytest.approx(value, rel=1e-6)
    assert json.loads(texts["settings"].strip("`\n"))["strategy"] == "ddp"
    assert "complete" in texts["state"]


def test_mlflow_has_it_in_its_local_database(logged: Run) -> None:
    [(name, (run, numbers))] = mlflow_runs(logged.folder, "run").items()
    assert name == CELL
    same(numbers, stored(logged.cells[CELL]))
    assert run.info.status == "FINISHED"
    assert run.data.tags["state"] == "complete"
    assert run.data.params["strategy"] == "ddp"
    assert "data_dir" not in run.data.params, "it was not set"
    for key, value in summary(logged).items():
        assert run.data.metrics[key] == pytest.approx(value)


def test_no_key_is_in_the_results(logged: Run) -> None:
    """And the key did not make W&B go online: that is asked for by WANDB_MODE."""
    files = [path for path in logged.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert all(path.name.startswith("offline-run-") for path in (logged.folder / "wandb").iterdir())


def test_clients_load_no_torch(tmp_path: Path) -> None:
    """The process of a command needs none, and neither does a client of it."""
    code = "import sys\n" + "\n".join(
        f"import worldsize.trackers.{name}" for name in ("wandb", "tensorboard", "mlflow")
    )
    code += "\nprint(sorted({'torch', 'tensorflow', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "offline"),
        ({"WANDB_API_KEY": KEY}, "offline"),
        ({"WANDB_MODE": "online"}, "offline"),
        ({"WANDB_MODE": "online", "WANDB_API_KEY": KEY}, "online"),
        ({"WANDB_MODE": "disabled"}, "disabled"),
    ],
)
def test_wandb_is_online_only_where_that_was_asked_for_and_can_be(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from worldsize.trackers.wandb import mode

    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert mode() == expected


def test_a_missing_package_is_told_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """W&B is hidden, as in an installation without its extra; a folder of its name is no package."""
    hidden = ModuleSpec("wandb", None, is_package=True)
    monkeypatch.setattr(trackers, "find_spec", lambda name: hidden if name == "wandb" else find_spec(name))
    with pytest.raises(UsageError) as caught:
        run_study(StudySettings(log=("tensorboard", "wandb")), tmp_path / "run")
    assert str(caught.value) == "--log wandb needs the package wandb: pip install 'worldsize[wandb]'"
    assert not (tmp_path / "run").exists()


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(UsageError, match="unknown name 'comet' for --log; known: wandb, tensorboard, mlflow"):
        trackers.check_trackers(("comet",))
