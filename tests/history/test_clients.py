"""A study with all clients, as a user types it; what they wrote is read back and is what the run folder has."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
from worldsize.results.folder import Run, load_run

pytestmark = pytest.mark.timeout(500)  # a database is made and several processes start, on a machine that may be busy

KEY = "0123456789abcdef0123456789abcdef01234567"
CELLS = ("single-w1-b4", "ddp-w2-b4")
MODEL = """
from torch import nn

def net(classes):
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.LazyLinear(classes))
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run folder of a study of two cells, of several blocks each and with steps aside."""
    folder = tmp_path_factory.mktemp("logged")
    (folder / "mine.py").write_text(MODEL)
    grid = ("--strategies", "single,ddp", "--world-sizes", "1,2", "--baseline", "single", "--batch-sizes", 4)
    steps = ("--steps", 4, "--block-steps", 2, "--warmup-steps", 1, "--evaluate", "end")
    data = ("--model", "mine.py:net", "--data", "synthetic:3x8x8:10:64", "--threads-per-worker", 1)
    clients = ("--log", "wandb,tensorboard,mlflow")
    done = worldsize("study", *data, *grid, *steps, *clients, "--out", "run", cwd=folder, WANDB_API_KEY=KEY)
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


def summary(run: Run, cell: str) -> dict[str, float]:
    found = run.cells[cell].record.summary
    assert found is not None
    return {
        "summary/step_s": found.step_s.value,
        "summary/samples_per_s": found.samples_per_s.value,
        "summary/forward_s": found.parts_s["forward_s"],
        "summary/timed_steps": found.timed_steps,
    }


def test_the_history_has_every_step_and_the_evaluation(logged: Run) -> None:
    """What the clients are compared with is not empty."""
    for name in CELLS:
        numbers = stored(logged.cells[name])
        assert list(numbers) == [0, 1, 2, 3, 4]
        assert [row["timed"] for row in numbers.values()] == [0, 1, 1, 1, 1]
        assert numbers[4].keys() >= {"loss", "accuracy", "epoch", "step_s", "samples_per_s", "test_accuracy"}
    assert logged.cells["ddp-w2-b4"].unsynchronised.height, "there are steps aside that must not be in it"


@pytest.mark.parametrize("name", CELLS)
def test_wandb_has_it_offline(logged: Run, name: str) -> None:
    records = wandb_records(logged.folder)[name]
    same(wandb_numbers(records), stored(logged.cells[name]))
    settings = wandb_config(records)
    assert (settings["strategy"], settings["batch_size"]) == (name.split("-")[0], 4)
    assert (settings["study"], settings["session"]) == ("run", 0)
    [run] = [record.run for record in records if record.HasField("run")]
    assert (run.project, run.run_group) == ("worldsize", "run")
    written = wandb_summary(records)
    assert written["state"] == "complete"
    for key, value in summary(logged, name).items():
        assert written[key] == pytest.approx(value)


@pytest.mark.parametrize("name", CELLS)
def test_tensorboard_has_it_in_single_precision(logged: Run, name: str) -> None:
    numbers, found, texts = tensorboard_numbers(logged.folder, name)
    same(numbers, stored(logged.cells[name]), rtol=1e-6)
    for key, value in summary(logged, name).items():
        assert found[key] == pytest.approx(value, rel=1e-6)
    assert json.loads(texts["settings"].strip("`\n"))["strategy"] == name.split("-")[0]
    assert "complete" in texts["state"]


def test_mlflow_has_it_in_its_local_database(logged: Run) -> None:
    runs = mlflow_runs(logged.folder, "run")
    assert sorted(runs) == sorted(CELLS)
    for name in CELLS:
        run, numbers = runs[name]
        same(numbers, stored(logged.cells[name]))
        assert run.info.status == "FINISHED"
        assert run.data.tags["state"] == "complete"
        assert run.data.params["strategy"] == name.split("-")[0]
        assert "data_dir" not in run.data.params, "it was not set"
        for key, value in summary(logged, name).items():
            assert run.data.metrics[key] == pytest.approx(value)


def test_no_key_is_in_the_results(logged: Run) -> None:
    """And the key did not make W&B go online: that is asked for by WANDB_MODE."""
    files = [path for path in logged.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert all(path.name.startswith("offline-run-") for path in (logged.folder / "wandb").iterdir())


def test_clients_load_no_torch(tmp_path: Path) -> None:
    """The process of a command needs none, and neither does a client of it."""
    code = "import sys\n" + "\n".join(f"import worldsize.history.{name}" for name in ("wandb", "tensorboard", "mlflow"))
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
    from worldsize.history.wandb import mode

    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert mode() == expected


def test_a_missing_package_and_an_unknown_name_are_told_before_anything_starts(tmp_path: Path) -> None:
    """The package is hidden by an import hook, as in an installation without the extra."""
    hidden = "import importlib.util as u, sys\nreal = u.find_spec\n"
    hidden += "u.find_spec = lambda name, *rest: None if name == 'wandb' else real(name, *rest)\n"
    hidden += (
        "from worldsize.cli.app import main\nsys.argv = ['worldsize', 'train', '--out', 'run', '--log', NAMES]\nmain()"
    )

    def told(names: str) -> Any:
        code = hidden.replace("NAMES", repr(names))
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)

    missing, unknown = told("tensorboard,wandb"), told("tensorboard,comet")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr == "worldsize: --log wandb needs the package wandb: pip install 'worldsize[wandb]'\n"
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("worldsize: log.1: 'comet' was given; ")
    assert all(name in unknown.stderr for name in ("wandb", "tensorboard", "mlflow"))
    assert not (tmp_path / "run").exists()
