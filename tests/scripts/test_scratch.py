"""The folder that a script works in: all that was there can be read, and nothing of it is written to."""

import subprocess
import sys
from pathlib import Path

from worldsize.scripts.scratch import MAX_IN_A_FOLDER, mirror

WRITES = """
import os, pathlib, sys, torch
from worldsize.scripts.scratch import enter_scratch
enter_scratch(pathlib.Path(sys.argv[1]), 0, first=True)
assert open("notes.txt").read() == "old"
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
    (place / "weights/last.pt").write_text("precious")
    (place / "weights/model.safetensors").write_text("precious")
    return place


def test_what_a_script_writes_stays_apart(tmp_path: Path) -> None:
    here, target = folder(tmp_path / "here"), tmp_path / "cell" / "outputs"
    target.parent.mkdir()
    command = [sys.executable, "-c", WRITES, str(target)]
    subprocess.run(command, cwd=here, check=True, timeout=300)

    assert (here / "notes.txt").read_text() == (here / "log.txt").read_text() == "old"
    assert (here / "weights/last.pt").read_text() == (here / "weights/model.safetensors").read_text() == "precious"
    assert (here / "weights/kept.bin").read_text() == "abc"
    assert (here / "gone.txt").read_text() == "there"
    assert not (here / "weights/further.txt").exists()
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
    mirror(here, target)

    assert {each.name for each in target.iterdir()} == {"notes.txt", "log.txt", "gone.txt", "weights", "many"}
    assert (target / "many").is_symlink()
    assert not (target / "weights").is_symlink()
    assert (target / "weights/kept.bin").is_symlink()
    assert not (target / "weights/model.safetensors").is_symlink()
