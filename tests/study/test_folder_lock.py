"""One study at a time in a folder, by a lock that nobody has to remove."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from worldsize.errors import OutputError, UsageError
from worldsize.study.folder_lock import hold_folder

HOLD = """
import sys
from pathlib import Path
from worldsize.study.folder_lock import hold_folder
with hold_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_that_another_process_has_is_refused_until_that_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match=f"process {holder.pid} runs a study in it"), hold_folder(folder):
            pass
        assert folder.exists(), "it is not ours to remove"
        holder.kill()
    with hold_folder(folder):
        assert list(folder.iterdir()) == []


def test_nothing_is_left_of_a_folder_in_which_nothing_was_written(tmp_path: Path) -> None:
    with hold_folder(tmp_path / "runs" / "mine"):
        assert (tmp_path / "runs" / "mine").is_dir()
    assert list(tmp_path.iterdir()) == []
    with hold_folder(tmp_path / "mine"):
        (tmp_path / "mine" / "study.json").touch()
    assert (tmp_path / "mine" / "study.json").exists()


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    cell = tmp_path / "cells" / "one"
    cell.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    (cell / f".cell.json.{ended.pid}").touch()
    (cell / f".cell.json.{os.getppid()}").touch()
    (cell / ".mine").touch()
    with hold_folder(tmp_path):
        assert {path.name for path in cell.iterdir()} == {f".cell.json.{os.getppid()}", ".mine"}


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write in"), hold_folder(tmp_path / "file" / "run"):
        pass


def test_what_a_worker_was_writing_when_the_study_ended_it_is_gone_with_the_study(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    with hold_folder(tmp_path):
        (tmp_path / f".checkpoint.json.{ended.pid}").touch()
        (tmp_path / "study.json").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]
    with suppress(KeyboardInterrupt), hold_folder(tmp_path):
        (tmp_path / f".checkpoint.json.{ended.pid}").touch()
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]
