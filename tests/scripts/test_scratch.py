"""The folder that a script works in: all that was there can be read, and nothing of it is written to."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from user_scripts import content
from worldsize.scripts.scratch import MAX_IN_A_FOLDER, SMALL_BYTES, Mirror

WRITES = """
import os, pathlib, sys, torch
from worldsize.scripts.scratch import enter_scratch
enter_scratch(pathlib.Path(sys.argv[1]), "0-0", first=True)
assert pathlib.Path("large.bin").is_symlink()
descriptor = os.open("large.bin", os.O_WRONLY | os.O_TRUNC)
os.write(descriptor, b"new")
os.close(descriptor)
os.truncate("truncated.bin", 0)
os.chmod("mode.bin", 0o600)
torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), "weights/jit.bin")
os.system("echo more >> notes.txt")
assert open("notes.txt").read() == "oldmore\\n"
open("notes.txt", "w").write("new")
open("log.txt", "a").write(" more")
torch.save({"a": 1}, "weights/last.pt")
with open("weights/kept.bin", "r+b") as file:
    file.write(b"X")
pathlib.Path("weights/further.txt").write_text("made")
os.remove("gone.txt")
os.replace("log.txt", "log.old")
assert open("weights/kept.bin", "rb").read() == b"Xbc"
"""


def folder(place: Path) -> Path:
    (place / "weights").mkdir(parents=True)
    for name, text in {"notes.txt": "old", "log.txt": "old", "gone.txt": "there", "weights/kept.bin": "abc"}.items():
        (place / name).write_text(text)
    for name in ("large.bin", "truncated.bin", "mode.bin", "weights/jit.bin"):
        (place / name).write_bytes(b"x" * 2 * SMALL_BYTES)
    (place / "weights/last.pt").write_text("precious")
    (place / "weights/model.safetensors").write_text("precious")
    return place


def test_what_a_script_writes_stays_apart(tmp_path: Path) -> None:
    here, target = folder(tmp_path / "here"), tmp_path / "cell" / "outputs"
    target.parent.mkdir()
    before, mode = content(here), (here / "mode.bin").stat().st_mode
    command = [sys.executable, "-c", WRITES, str(target)]
    subprocess.run(command, cwd=here, check=True, timeout=300)

    assert content(here) == before
    assert (here / "mode.bin").stat().st_mode == mode
    assert (target / "log.old").read_text() == "old more"
    assert (target / "notes.txt").read_text() == "new"


def test_what_is_mirrored(tmp_path: Path) -> None:
    here, target = folder(tmp_path / "here"), tmp_path / "outputs"
    (here / ".git").mkdir()
    (here / "runs" / "old").mkdir(parents=True)
    (here / "mine").mkdir()
    (here / "mine" / "study.json").touch()
    (here / "many").mkdir()
    for number in range(MAX_IN_A_FOLDER + 1):
        (here / "many" / f"{number}.jpg").touch()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "best.bin").write_bytes(bytes(2 * SMALL_BYTES))
    (here / "store").symlink_to(tmp_path / "store")
    (here / "weights" / "above").symlink_to(here)
    Mirror(here, target).make()

    names = {"notes.txt", "log.txt", "gone.txt", "large.bin", "truncated.bin", "mode.bin", "weights", "many", "store"}
    assert {each.name for each in target.iterdir()} == names
    assert (target / "many").is_symlink()
    assert (target / "weights/above").is_symlink(), "else there is no end"
    assert not (target / "weights").is_symlink()
    assert not (target / "store").is_symlink(), "what is written there stays apart as well"
    assert (target / "store/best.bin").is_symlink()
    assert not (target / "weights/model.safetensors").is_symlink()


def test_a_folder_that_cannot_be_read_is_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = folder(tmp_path / "here")
    real = os.scandir

    def refusing(path: Any) -> Any:  # root may read anything
        if Path(path).name == "weights":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refusing)
    Mirror(here, tmp_path / "outputs").make()
    assert (tmp_path / "outputs" / "weights").is_symlink()
