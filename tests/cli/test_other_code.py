"""Edits to a user's own files between two commands: noticed by --resume, by `compare` and by the workers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commands import LONG_S
from in_process import worldsize
from worldsize.results.folder import load_run

MODEL = """
from torch import nn
from blocks import hidden

def net(classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, hidden()), nn.ReLU(), nn.Linear(hidden(), classes))
"""
BLOCKS = "def hidden():\n    return 8\n"
DATA = """
import torch

def images(train=True):
    generator = torch.Generator().manual_seed(int(train))
    return torch.rand(64, 3, 32, 32, generator=generator), torch.arange(64) % 10
"""
STRATEGY = "from worldsize.strategies import Single\n\nclass Mine(Single):\n    pass\n"
FILES = {"mine/__init__.py": "", "mine/model.py": MODEL.replace("blocks", "mine.blocks"), "mine/blocks.py": BLOCKS}
FILES |= {"net.py": MODEL, "blocks.py": BLOCKS, "images.py": DATA, "lab/__init__.py": "", "lab/strategy.py": STRATEGY}
RECIPE = ("--world-sizes", 1, "--batch-sizes", 8, "--steps", 4, "--warmup-steps", 1, "--evaluate", "never")
STUDY = (
    "study",
    *RECIPE,
    "--threads-per-worker",
    1,
    "--target-interval",
    0,
    "--block-steps",
    2,
    "--baseline",
    "single",
)
OWN = ("--model", "net.py:net", "--data", "images.py:images", "--strategies", "single,lab.strategy:Mine")
PACKAGE = ("--model", "mine.model:net", "--data", "images:images", "--strategies", "single")
KINDS = {
    "model": (OWN, "net.py", MODEL.replace("nn.ReLU", "nn.Tanh")),
    "what the model imports": (OWN, "blocks.py", BLOCKS.replace("8", "16")),
    "data": (OWN, "images.py", DATA.replace("% 10", "% 9")),
    "strategy": (OWN, "lab/strategy.py", STRATEGY + "\n# faster\n"),
    "a module of a package": (PACKAGE, "mine/blocks.py", BLOCKS.replace("8", "16")),
}
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two studies that are complete: `own`, of single files, and `package`."""
    folder = tmp_path_factory.mktemp("code")
    write(folder, FILES)
    for line in ("init -q", "add .", "commit -qm first"):
        subprocess.run([*GIT, *line.split()], cwd=folder, check=True)
    for name, arguments in (("own", OWN), ("package", PACKAGE)):
        done = worldsize(*STUDY, *arguments, "--out", name, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)


def tree(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def own_code(run: Path) -> Any:
    return json.loads((run / "study.json").read_text())["provenance"]["user_code"]


def test_all_files_are_in_the_records_with_their_commit(place: Path) -> None:
    own, package = own_code(place / "own"), own_code(place / "package")
    assert [file["name"] for file in own["files"]] == [
        *("blocks.py", "images.py", "lab/__init__.py", "lab/strategy.py", "net.py"),
    ]
    assert [file["name"] for file in package["files"]] == [
        *("images.py", "mine/__init__.py", "mine/blocks.py", "mine/model.py"),
    ]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=place, check=True, capture_output=True, text=True)
    assert [each["commit"] for each in own["repositories"]] == [head.stdout.strip()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_resume_with_other_code_is_refused_and_changes_nothing(place: Path, kind: str) -> None:
    arguments, name, content = KINDS[kind]
    run = "own" if arguments is OWN else "package"
    before = tree(place / run)
    write(place, {name: content})
    done = worldsize("study", "--resume", "--out", run, cwd=place)
    write(place, FILES)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"worldsize: {run} was measured with other code of yours: {name} has changed since",
        "Put it back, measure everything again with --resume --anew, or give another --out.",
    ]
    assert tree(place / run) == before


def test_with_the_same_code_it_is_resumed(place: Path) -> None:
    write(place, FILES)
    sessions = len(load_run(place / "own").study.sessions)
    done = worldsize("study", "--resume", "--out", "own", cwd=place)
    assert done.returncode == 0, done.stderr
    assert len(load_run(place / "own").study.sessions) == sessions + 1
    assert not (place / "own" / "earlier").exists()


def test_anew_alone_is_a_mistake(place: Path) -> None:
    done = worldsize(*STUDY, *OWN, "--anew", "--out", "other", cwd=place)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "--anew was given without --resume" in done.stderr
    assert not (place / "other").exists()


def test_anew_measures_every_cell_again_and_keeps_what_was_there(place: Path) -> None:
    """Of two codes that differ in their weights no sample comes into one cell."""
    run = place / "own"
    old, cells = own_code(run), tree(run / "cells")
    write(place, {"blocks.py": BLOCKS.replace("8", "16")})
    done = worldsize("study", "--resume", "--anew", "--out", "own", "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    new = load_run(run)
    assert new.study.training[2].parameters == (3 * 32 * 32 + 1) * 16 + 17 * 10
    assert not new.study.sessions
    assert own_code(run) != old
    for cell in new.cells.values():
        assert set(cell.steps["session"]) == {0}
        assert cell.record.summary is not None
        assert cell.record.summary.timed_steps == 4
    earlier = run / "earlier" / "1"
    assert tree(earlier / "cells") == cells
    assert own_code(earlier) == old
    assert worldsize("report", earlier, cwd=place).returncode == 0
    compared = worldsize("compare", earlier, run, "--json", cwd=place)
    content = json.loads(compared.stdout)
    changed = {change["what"]: (change["area"], change["old"], change["new"]) for change in content["changes"]}
    digests = [{file["name"]: file["sha256"][:12] for file in each["files"]} for each in (old, own_code(run))]
    assert changed["blocks.py"] == ("code", digests[0]["blocks.py"], digests[1]["blocks.py"])
    assert changed["commit"] == (
        "code",
        *(each["repositories"][0]["commit"][:12] + dirty for each, dirty in ((old, ""), (own_code(run), "+dirty"))),
    )
    assert "net.py" not in changed
    write(place, FILES)


def test_the_commit_that_a_comparison_shows_is_the_users(place: Path) -> None:
    done = worldsize("compare", "package", "package", cwd=place)
    commit = own_code(place / "package")["repositories"][0]["commit"]
    text = " ".join(done.stdout.split())
    assert text.count(f"your code at commit {commit[:12]}") == 2
    assert text.count("worldsize 0.1.0") == 2
    report = (place / "package" / "report" / "summary.md").read_text()
    assert commit in report
    assert "mine/blocks.py (" in report


def test_an_edit_while_the_study_runs_ends_its_cells(tmp_path: Path) -> None:
    """The file changes after the look at it, when a worker imports it."""
    edit = (
        'import os\nif "RANK" in os.environ:\n    with open(__file__, "a") as file:\n        file.write("# more\\n")\n'
    )
    write(tmp_path, {**FILES, "net.py": edit + MODEL})
    done = worldsize(*STUDY, *PACKAGE, "--model", "net.py:net", "--out", "run", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    [cell] = load_run(tmp_path / "run").cells.values()
    assert cell.record.error is not None
    assert cell.record.error.message.startswith("net.py has changed since the study began")
    assert cell.steps.is_empty()


def torchrun(folder: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, "-m", "worldsize", *arguments]
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )


def test_under_torchrun_as_well(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    train = ("train", *("--model", "net.py:net", "--data", "images.py:images", "--strategy", "ddp"))
    done = torchrun(tmp_path, *train, "--steps", 4, "--batch-size", 8, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert [file["name"] for file in own_code(tmp_path / "run")["files"]] == ["blocks.py", "images.py", "net.py"]
    write(tmp_path, {"blocks.py": BLOCKS.replace("8", "16")})
    refused = torchrun(tmp_path, "train", "--resume", "--out", "run")
    assert refused.returncode != 0
    assert "run was measured with other code of yours: blocks.py has changed since" in refused.stderr
    anew = torchrun(tmp_path, "train", "--resume", "--anew", "--out", "run")
    assert anew.returncode == 0, anew.stderr
    [cell] = load_run(tmp_path / "run").cells.values()
    assert set(cell.steps["session"]) == {0}
    assert set(cell.steps["rank"]) == {0, 1}
    assert (tmp_path / "run" / "earlier" / "1" / "cells" / "ddp-w2-b8" / "cell.json").exists()
