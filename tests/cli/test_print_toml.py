"""`worldsize study … --print-toml`: a file that gives the same settings again, and explains every key."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from worldsize.config import StudySettings, preset_names, read_study, validated

CELLS = """
steps = 8
[[cells]]
strategy = "single"
world_size = 1
batch_size = 16
[[cells]]
strategy = "ddp"
world_size = 2
batch_size = 16
label = "linear"
lr_scaling = "linear"
"""


def printed(*line: str, cwd: Path) -> str:
    command = [sys.executable, "-m", "worldsize", "study", *line, "--print-toml"]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(cwd.glob("runs")), "nothing is run"
    return done.stdout


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_comes_back_as_it_was(tmp_path: Path, preset: str) -> None:
    (tmp_path / "study.toml").write_text(printed(preset, cwd=tmp_path))
    again = validated(StudySettings, read_study(str(tmp_path / "study.toml")))
    assert again == validated(StudySettings, read_study(preset))


def test_flags_are_keys_of_the_file(tmp_path: Path) -> None:
    flags = ("--strategies", "single,ddp", "--world-sizes", "1,2", "--budget", "2min", "--target-interval", "3%")
    more = ("--memory-limit", "3GiB", "--data-dir", 'a "folder"', "--nesterov", "--log", "tensorboard")
    keys = tomllib.loads(printed(*flags, *more, cwd=tmp_path))
    assert keys["strategies"] == ["single", "ddp"]
    assert keys["target_interval"] == 0.03
    (tmp_path / "study.toml").write_text(printed(*flags, *more, cwd=tmp_path))
    again = validated(StudySettings, read_study(str(tmp_path / "study.toml")))
    assert again.world_sizes == (1, 2)
    assert again.data_dir == Path('a "folder"')
    assert again.memory_limit_bytes == 3 * 2**30
    assert again.nesterov
    assert again.log == ("tensorboard",)


def test_cells_named_one_by_one_stay_so(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(CELLS)
    (tmp_path / "again.toml").write_text(printed("mine.toml", cwd=tmp_path))
    first, again = (validated(StudySettings, read_study(str(tmp_path / name))) for name in ("mine.toml", "again.toml"))
    assert again == first
    assert [cell.label for cell in again.cells] == ["", "linear"]


def test_every_flag_of_the_settings_is_explained_and_its_default_is_one(tmp_path: Path) -> None:
    """A default that is taken out of its comment changes nothing."""
    lines = printed(cwd=tmp_path).splitlines()
    named = {line.lstrip("# ").partition(" =")[0] for line in lines if " =" in line}
    assert {"model", "strategies", "budget", "weight_decay", "hosts", "log"} <= named
    pairs = [line.removeprefix("# ").partition(" = ") for line in lines if " = " in line]
    fields = StudySettings.model_fields
    taken = "\n".join(f"{key} = {value}" for key, _, value in pairs if key in fields)
    assert StudySettings.model_validate(tomllib.loads(taken)) == StudySettings()
