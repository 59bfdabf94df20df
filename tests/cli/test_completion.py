"""Shell completion, by the protocol of the shells and in a real bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from in_process import worldsize
from made_runs import make_run, usual_cells
from worldsize.cli.complete import presets, registered
from worldsize.config import preset_names
from worldsize.data import DATA_SETS
from worldsize.models import MODELS
from worldsize.strategies import STRATEGIES

COMMAND = (sys.executable, "-m", "worldsize")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    for run in ("runs/one", "runs/two", "mine"):
        make_run(folder / run, usual_cells(blocks=1))
    (folder / "runs" / "notes").mkdir()
    (folder / "stored.json").write_text("{}")
    (folder / "grid.toml").write_text("steps = 4\n")
    return folder


def completed(line: str, place: Path) -> list[str]:
    """What bash is told for a line, of which the last word, maybe empty, is being typed."""
    words = line.split(" ")
    asked = {"_WORLDSIZE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = worldsize(cwd=place, **asked)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_the_names_are_those_of_the_registries() -> None:
    assert registered("strategies") == tuple(STRATEGIES)
    assert registered("models") == tuple(MODELS)
    assert registered("data sets") == tuple(DATA_SETS)
    assert list(presets()) == preset_names()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("worldsize stu", ["study"]),
        ("worldsize train --strat", ["--strategy"]),
        ("worldsize train --strategy d", ["data-parallel", "ddp", "ddp-fp16", "ddp-bf16", "diloco"]),
        (
            "worldsize study --strategies single,d",
            [f"single,{name}" for name in ("data-parallel", "ddp", "ddp-fp16", "ddp-bf16", "diloco")],
        ),
        (
            "worldsize study --strategies ddp,d",
            [f"ddp,{name}" for name in ("data-parallel", "ddp-fp16", "ddp-bf16", "diloco")],
        ),
        ("worldsize verify --strategies buck", [name for name in STRATEGIES if name.startswith("bucketed")]),
        ("worldsize train --model ", ["resnet18", "vgg11", "torchvision:"]),
        ("worldsize sweep --data c", ["cifar10"]),
        ("worldsize study d", ["ddp-large-batch", "default", "dp-scaling"]),
        ("worldsize study g", ["grid.toml"]),
        ("worldsize train --precision ", ["fp32", "bf16"]),
        ("worldsize verify --precision ", ["fp64", "fp32", "bf16"]),
        ("worldsize study --launcher s", ["slurm"]),
        ("worldsize study --log wandb,", ["wandb,tensorboard", "wandb,mlflow"]),
        ("worldsize comm --collectives gather,all-", ["gather,all-reduce", "gather,all-gather", "gather,all-to-all"]),
        ("worldsize report ", ["mine", "runs/one", "runs/two"]),
        ("worldsize report runs/", ["runs/one", "runs/two"]),
        ("worldsize attach m", ["mine"]),
        ("worldsize compare runs/one ", ["mine", "runs/one", "runs/two", "stored.json"]),
        ("worldsize compare runs/one,runs/", ["runs/one,runs/two"]),
        ("worldsize train --resume --out runs/t", ["runs/two"]),
        ("worldsize train --out runs/t", []),
        ("worldsize report nowhere/", []),
    ],
)
def test_what_is_offered(line: str, words: list[str], place: Path) -> None:
    assert completed(line, place) == words


def test_zsh_is_told_the_same(place: Path) -> None:
    asked = {"_WORLDSIZE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "worldsize train --strategy d"}
    done = subprocess.run(COMMAND, cwd=place, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert [word for word in ("data-parallel", "ddp", "bucketed") if f'"{word}"' in done.stdout] == [
        "data-parallel",
        "ddp",
    ]


def test_nothing_heavy_is_loaded(place: Path) -> None:
    """A tab must be answered at once."""
    code = "import sys, worldsize.cli.complete as c; c.strategies('d'); c.study(''); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "polars", "worldsize.config"} & set(done.stdout.split())


@pytest.mark.parametrize(("shell", "file"), [("bash", ".bash_completions/worldsize.sh"), ("zsh", ".zfunc/_worldsize")])
def test_one_command_installs_it(shell: str, file: str, tmp_path: Path) -> None:
    """In the shell that runs it; here it is named, for none is above the tests."""
    found = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        [*COMMAND, "--install-completion", shell], env={**os.environ, **found}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "_WORLDSIZE_COMPLETE" in (tmp_path / file).read_text()
    assert (tmp_path / f".{shell}rc").exists()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing")
def test_a_real_bash_completes(place: Path, tmp_path: Path) -> None:
    program = tmp_path / "worldsize"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m worldsize "$@"\n')
    program.chmod(0o755)
    script = """
    source <(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 worldsize --show-completion bash)
    COMP_WORDS=(worldsize study --strategies single,al) COMP_CWORD=3
    $(complete -p worldsize | sed 's/.*-F \\([^ ]*\\) .*/\\1/') worldsize
    echo "${COMPREPLY[@]}"
    """
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=place, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert (done.stdout.split(), done.stderr) == (["single,all-reduce"], "")
