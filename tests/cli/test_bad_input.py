"""Each mistake of the user ends with status 2 and one or two lines: what was given, what is allowed, what to do."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from made_runs import make_run, usual_cells
from worldsize.cli.app import main
from worldsize.config import Room
from worldsize.results.folder import load_run
from worldsize.strategies import STRATEGIES
from worldsize.study import run as study_run
from worldsize.study import verify as study_verify
from worldsize.training.probe import look

KNOWN_STRATEGIES = f"known: {', '.join(STRATEGIES)}"
SMALL = "--data synthetic:3x8x8:10:64 "
CIFAR_BYTES = 10_000 * 3073

FACTORIES = """
import torch
from torch import nn

def raises(classes=10, train=True):
    raise RuntimeError("no weights today")

def nothing(classes=10, train=True):
    return None

def three(train=True):
    return torch.zeros(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64), "more"

def floats(train=True):
    return torch.zeros(4, 3, 8, 8), torch.zeros(4)

def flat(classes):
    return nn.Linear(7, classes)

def narrow(classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, classes - 1))

def a_class(classes=10):
    return nn.Linear

not_callable = 5
"""


@dataclass
class Ended:
    """How a command ended."""

    status: object
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """A command in this process, in a folder of its own, with the look before the start in this process too.

    What that look says is sent on as it is from a process of its own: see test_end_to_end.py for that way.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # factories may add to it
    for module in (study_run, study_verify):
        monkeypatch.setattr(module, "probe", lambda settings, *_: look(settings, Room(cores=2)))
    monkeypatch.delenv("WORLDSIZE_DATA", raising=False)

    def run(line: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["worldsize", *line.split()])
        with pytest.raises(SystemExit) as caught:
            main()
        return Ended(caught.value.code, *capsys.readouterr())

    return run


def refused(ended: Ended) -> str:
    """The message of a mistake, without the name of the command."""
    assert ended.status == 2
    assert ended.out == ""
    assert "Traceback" not in ended.err
    assert ended.err.startswith("worldsize: ")
    assert len(ended.err.splitlines()) in (1, 2)
    return ended.err.removeprefix("worldsize: ")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("study --strategies ddp,magic", ["unknown strategy 'magic'", KNOWN_STRATEGIES, "file.py:name"]),
        ("study --strategies ddp,fsdp --optimizer muon", ["muon was given", "fsdp keeps shards", "give sgd"]),
        ("verify --strategies fsdp --leave-out initial-weights", ["initial-weights was given", "another strategy"]),
        ("train --strategy magic", ["unknown strategy 'magic'", KNOWN_STRATEGIES]),
        ("train --strategy no.such:Strategy", ["strategy module 'no.such' was not found"]),
        (f"train --model lenet {SMALL}", ["unknown model 'lenet'", "known: resnet18, vgg11", "file.py:name"]),
        ("train --data mnist", ["unknown data set 'mnist'", "known: digits, cifar10, synthetic", "file.py:name"]),
        ("train --data digits:3x3", ["unknown data set 'digits:3x3'", "known: digits, cifar10, synthetic"]),
        ("train --data synthetic:3x8", ["'synthetic:3x8' was given", "synthetic[:CxHxW[:CLASSES[:SAMPLES]]]"]),
        ("study fast", ["unknown preset 'fast'", "known: batch-sweep, ddp-large-batch, default", ".toml"]),
        ("train --precision fp64", ["--precision: 'fp64' was given", "'fp32' or 'bf16'"]),
        ("train --backend mpi", ["--backend: 'mpi' was given", "'auto', 'gloo' or 'nccl'"]),
        ("train --loader quick", ["--loader: 'quick' was given", "'batched' or 'per-sample'"]),
        ("train --log comet", ["--log: 'comet' was given", "'wandb', 'tensorboard' or 'mlflow'"]),
        ("study --baseline none", ["--baseline: 'none' was given", "'single', 'wrapped' or 'both'"]),
        ("study default --batch-sizes 0", ["--batch-sizes: 0 was given", "at least 1"]),
        ("train --world-size 0", ["--world-size: 0 was given", "at least 1"]),
        ("study --world-sizes 2,0", ["--world-sizes: 0 was given", "at least 1"]),
        ("study --world-sizes a,b", ["--world-sizes: 'a,b' was given", "whole numbers separated by commas"]),
        ("study --world-sizes 1.5", ["--world-sizes: '1.5' was given", "whole numbers separated by commas"]),
        ("study --world-sizes ,", ["--world-sizes: () was given", "at least 1"]),
        ("study --strategies ,", ["--strategies: () was given", "at least 1"]),
        ("train --batch-size 0", ["--batch-size: 0 was given", "at least 1"]),
        ("train --batch-size -4", ["--batch-size: -4 was given", "at least 1"]),
        ("study --batch-sizes 32,-1", ["--batch-sizes: -1 was given", "at least 1"]),
        ("study --batch-sizes x", ["--batch-sizes: 'x' was given", "whole numbers separated by commas"]),
        (f"train --batch-size 65 {SMALL}", ["batch size 65 was given", "64 training samples", "at most 64"]),
        (f"study --strategies ddp --world-sizes 1,2 --batch-sizes 33 {SMALL}", ["each of 2 worker(s)", "at most 32"]),
        (f"train --strategy ddp --world-size 100 {SMALL}", ["world size 100 was given", "only 64", "at most 64"]),
        (f"train --strategy single --world-size 2 {SMALL}", ["single", "world size", "1"]),
        ("train --steps 3 --epochs 1", ["epochs and steps exclude each other"]),
        ("study --steps 3 --epochs 1", ["epochs and steps exclude each other"]),
        ("train --steps 0", ["--steps: 0 was given", "at least 1"]),
        ("train --steps many", ["--steps: 'many' was given; a whole number is allowed"]),
        ("train --batch-size 1.5", ["--batch-size: '1.5' was given; a whole number is allowed"]),
        ("train --learning-rate fast", ["--learning-rate: 'fast' was given; a number is allowed"]),
        ("study --epochs 2 --seeds 0,0", ["--seeds: '0,0' was given; a whole number is allowed"]),
        ("study --epochs 2 --seeds abc", ["--seeds: 'abc' was given; a whole number is allowed"]),
        ("train --epochs -1", ["--epochs: -1 was given", "at least 1"]),
        ("train --seed -1", ["--seed: -1 was given", "at least 0"]),
        ("train --learning-rate 0", ["--learning-rate: 0.0 was given", "more than 0"]),
        ("train --threads-per-worker 0", ["--threads-per-worker: 0 was given", "at least 1"]),
        ("study --target-interval wide", ["--target-interval: 'wide' was given", "3% or 0.03"]),
        ("study --target-interval 100%", ["--target-interval: 100% was given", "less than 100%"]),
        ("study --epochs 2 --target-accuracy 0", ["--target-accuracy: 0% was given", "more than 0%"]),
        ("study --epochs 2 --target-accuracy 1.2", ["--target-accuracy: '1.2' was given", "did you mean 1.2%?"]),
        ("study --epochs 2 --target-accuracy -1", ["--target-accuracy: -100% was given", "more than 0%"]),
        ("study --epochs 2 --target-accuracy nan", ["--target-accuracy: nan was given", "finite"]),
        ("study --epochs 2 --target-accuracy abc", ["--target-accuracy: 'abc' was given", "3% or 0.03"]),
        ("study --target-accuracy 0.8", ["--target-accuracy belongs to the training of whole epochs", "give epochs"]),
        ("study --epochs 2 --evaluate end --target-accuracy 0.8", ["after each epoch", "evaluate is end"]),
        ("study --epochs 2 --seeds 0", ["--seeds: 0 was given", "at least 1"]),
        ("study --epochs 2 --seeds -1", ["--seeds: -1 was given", "at least 1"]),
        ("study --epochs 2 --seeds 101", ["--seeds: 101 was given", "at most 100"]),
        ("study --steps 2 --seeds 3", ["seeds belongs to the training of whole epochs", "give epochs"]),
        ("study batch-sweep --epochs 2 --seeds 3", ["seeds belongs to the training of whole epochs", "no sweep"]),
        (f"study --epochs 2 --seeds 2 --seed {2**63 - 1}", ["--seeds: 2 were given", "below 2^63"]),
        ("verify --strategies ddp,magic", ["unknown strategy 'magic'", KNOWN_STRATEGIES]),
        (f"verify --strategies single --world-sizes 2 {SMALL}", ["strategy single runs at world size 1 only"]),
        ("verify --precision fp16", ["--precision: 'fp16' was given", "'fp64', 'fp32' or 'bf16'"]),
        ("verify --steps 0", ["--steps: 0 was given", "at least 1"]),
        (f"verify --world-sizes 2 --batch-size 33 {SMALL}", ["each of 2 worker(s)", "at most 32"]),
        (f"verify --world-sizes 1 --strategies single --out file {SMALL}", ["cannot write", "file", "--out"]),
        ("comm --budget soon", ["--budget: 'soon' was given", "a time such as 20s or 2min is allowed"]),
        ("comm --budget 20", ["--budget: '20' was given", "a time such as 20s or 2min is allowed"]),
        ("comm --budget 0s", ["--budget: '0s' was given", "a time above 0"]),
        ("comm --budget 0", ["--budget: '0' was given", "a time such as 20s"]),
        ("comm --budget 500ms", ["--budget: '500ms' was given", "2.56 s or more", "--budget 6s", "--top"]),
        ("comm --hosts 2 --link 1mbit", ["--budget: '20s' was given", "s or more", "--top or fewer --collectives"]),
        ("comm --hosts 2 --link-latency 1s --budget 30s", ["--budget: '30s' was given", "s or more"]),
        ("comm --samples 0", ["--samples: 0 was given", "at least 1"]),
        ("comm --collectives all-reduce,shout", ["--collectives: 'shout' was given", "all-gather"]),
        ("comm --collectives ,", ["--collectives: () was given", "at least 1"]),
        ("train --resume", ["--resume needs --out"]),
        ("study --resume", ["--resume needs --out"]),
        ("train --resume --out empty", ["empty/study.json is missing", "not a worldsize run folder"]),
        ("study --resume --out missing", ["missing/study.json is missing", "not a worldsize run folder"]),
        ("study missing.toml", ["no such study file: missing.toml"]),
        ("report batch_sizes", ["batch_sizes/study.json is missing: batch_sizes is not a worldsize run folder"]),
        ("report missing", ["missing/study.json is missing", "not a worldsize run folder"]),
        ("report empty", ["empty/study.json is missing", "not a worldsize run folder"]),
        ("report file", ["cannot read file/study.json", "Give the folder of a run", "worldsize audit FILE"]),
        ("study --batch-sizes 4 --global-batch 8", ["--batch-sizes and --global-batch exclude each other"]),
        ("train --out file", ["file is not an empty folder", "--out"]),
        ("train --out file/below", ["cannot write in", "file", "--out"]),
        ("study --out used", ["used is not an empty folder", "--out"]),
    ],
)
def test_a_mistake_in_a_flag(command: Command, tmp_path: Path, line: str, told: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "work.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    message = refused(command(line))
    for text in told:
        assert text in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "used"], "nothing was begun"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("study --frobnicate", ["--frobnicate"]),
        ("train --strategies ddp", ["--strategies"]),
        ("frobnicate", ["frobnicate"]),
        ("report", ["RUN"]),
        ("train extra", ["extra"]),
    ],
)
def test_what_is_no_flag_at_all(command: Command, line: str, told: list[str]) -> None:
    """These are answered by typer, with the usage of the command."""
    ended = command(line)
    assert (ended.status, ended.out) == (2, "")
    assert "Traceback" not in ended.err
    assert "--help" in ended.err
    for text in told:
        assert text.lower() in ended.err.lower()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("batchsizes = [4]\n", ["mine.toml: unknown key 'batchsizes'", "did you mean 'batch_sizes'?"]),
        ("steps = = 3\n", ["mine.toml cannot be read as a TOML study", "line 1"]),
        ('steps = "many"\n', ["mine.toml: steps: 'many' was given", "a whole number"]),
        ("world_sizes = [1, 0]\n", ["mine.toml: world_sizes: 0 was given", "at least 1"]),
        ("strategies = 3\n", ["mine.toml: strategies: 3 was given", "a list"]),
        ("batch_sizes = 4\nglobal_batch = 8\n", ["mine.toml: batch_sizes and global_batch exclude each other"]),
        ("steps = 3\nepochs = 1\n", ["mine.toml: epochs and steps exclude each other"]),
        ("[study]\nsteps = 3\n", ["mine.toml: unknown key 'study'", "the flags of `worldsize study --help`"]),
    ],
)
def test_a_mistake_in_a_study_file(command: Command, content: str, told: list[str]) -> None:
    Path("mine.toml").write_text(content)
    message = refused(command("study mine.toml"))
    for text in told:
        assert text in message


def test_flags_win_over_the_file_also_for_the_protocol(command: Command) -> None:
    """A file with steps and the flag --epochs are no contradiction; the mistake here is the batch size."""
    Path("mine.toml").write_text('steps = 3\ndata = "synthetic:3x8x8:10:64"\nbatch_sizes = [4]\n')
    message = refused(command("study mine.toml --epochs 1 --batch-sizes 65"))
    assert message.startswith("batch size 65 was given")


@pytest.mark.parametrize(
    ("flag", "told"),
    [
        ("--model missing.py:net", ["no such model file: missing.py"]),
        ("--model mine.py:missing", ["mine.py defines no 'missing'", "raises, nothing"]),
        ("--model mine.py:raises", ["model factory mine.py:raises raised RuntimeError: no weights today", "mine.py:6"]),
        ("--model mine.py:nothing", ["mine.py:nothing returned None", "allowed: a torch.nn.Module"]),
        ("--model mine.py:a_class", ["mine.py:a_class returned the class Linear", "allowed: a torch.nn.Module"]),
        ("--model mine.py:not_callable", ["mine.py:not_callable is of type int", "a function or a class"]),
        ("--model mine.py:flat", ["mine.py:flat: its forward on float32 inputs of 2×3×8×8 raised RuntimeError"]),
        ("--model mine.py:narrow", ["mine.py:narrow: its output for 2 samples is a tensor of 2×9", "2×10"]),
        ("--model broken.py:net", ["importing broken.py raised SyntaxError", "broken.py:1"]),
        ("--model stopped.py:net", ["importing stopped.py raised SystemExit"]),
        ("--model no_such_module:net", ["model module 'no_such_module' was not found"]),
        ("--model mine.py:a:b", ["'mine.py:a:b' was given", "package.module:name or file.py:name"]),
        ("--model torchvision:nope", ["torchvision"]),
        ("--strategy missing.py:Mine", ["no such strategy file: missing.py"]),
        ("--strategy mine.py:nothing", ["strategy 'mine.py:nothing' is not a class derived from", "Strategy"]),
        ("--data missing.py:images", ["no such data set file: missing.py"]),
        ("--data mine.py:missing", ["mine.py defines no 'missing'"]),
        ("--data mine.py:raises", ["data set factory mine.py:raises raised RuntimeError: no weights today"]),
        ("--data mine.py:nothing", ["mine.py:nothing returned None", "map-style torch Dataset or a pair"]),
        ("--data mine.py:three", ["mine.py:three returned a tuple of", "str", "a pair (inputs, labels)"]),
        ("--data mine.py:floats", ["mine.py:floats", "labels must be integers"]),
        ("--data broken.py:images", ["importing broken.py raised SyntaxError", "broken.py:1"]),
    ],
)
def test_a_mistake_in_a_factory(command: Command, flag: str, told: list[str]) -> None:
    Path("mine.py").write_text(FACTORIES)
    Path("broken.py").write_text("def net(:\n")
    Path("stopped.py").write_text("raise SystemExit(3)\n")
    data = "" if flag.startswith("--data") else SMALL
    message = refused(command(f"train {flag} {data}"))
    for text in told:
        assert text in message


def cifar10(folder: Path, *, files: int, size: int = CIFAR_BYTES, label: int = 0) -> None:
    folder.mkdir()
    for number in range(1, files + 1):
        content = np.zeros(size, np.uint8)
        content[-3073:-3072] = label
        (folder / f"data_batch_{number}.bin").write_bytes(content.tobytes())


def test_cifar10_that_is_not_in_its_folder(command: Command) -> None:
    Path("empty").mkdir()
    for folder in ("empty", "missing"):
        message = refused(command(f"train --data cifar10 --data-dir {folder}"))
        assert f"cifar10 is not in {folder}" in message
        assert "cifar-10-batches-bin" in message
        assert "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz" in message
    Path("empty/data_batch_1").write_bytes(b"a pickle")
    assert "pickles, which worldsize never loads" in refused(command("train --data cifar10 --data-dir empty"))


def test_cifar10_that_is_truncated(command: Command) -> None:
    cifar10(Path("cut"), files=1, size=3073 * 5)
    message = refused(command("train --data cifar10 --data-dir cut"))
    assert "data_batch_1.bin has 15,365 bytes; 30,730,000 are expected" in message
    assert "again" in message


def test_cifar10_that_is_corrupt(command: Command) -> None:
    cifar10(Path("wrong"), files=1, label=200)
    message = refused(command("train --data cifar10 --data-dir wrong"))
    assert "data_batch_1.bin is corrupt: record 9999 has the label 200; 0 to 9 are allowed" in message


def test_cifar10_of_which_a_file_is_missing(command: Command) -> None:
    cifar10(Path("part"), files=1)
    message = refused(command("train --data cifar10 --data-dir part"))
    assert "data_batch_2.bin is missing" in message


def test_a_folder_that_holds_another_study(command: Command, tmp_path: Path) -> None:
    make_run(tmp_path / "old", usual_cells(blocks=1))
    before = (tmp_path / "old" / "study.json").read_bytes()
    message = refused(command("train --out old"))
    assert "old holds a study already" in message
    assert "--resume" in message
    message = refused(command(f"study --resume --out old --seed 7 {SMALL}"))
    assert "old holds a study with other settings: data, seed" in message
    message = refused(command("study dp-scaling --resume --out old"))
    assert "old holds a study with other settings: " in message, "a preset is not dropped in silence"
    assert "strategies" in message
    assert (tmp_path / "old" / "study.json").read_bytes() == before
    assert len(load_run(tmp_path / "old").cells) == len(usual_cells())


def test_a_damaged_run_folder(command: Command, tmp_path: Path) -> None:
    make_run(tmp_path / "old", usual_cells(blocks=1))
    with (tmp_path / "old" / "cells" / "ddp-w2-b32" / "rank0.jsonl").open("a") as file:
        file.write("garbage\n")
    ended = command("report old")
    assert ended.status == 4
    assert "holds lines that are not step records" in " ".join(ended.out.split())
    (tmp_path / "old" / "study.json").write_text("{}")
    assert "study.json is not a valid StudyRecord" in refused(command("report old"))
    assert "study.json is not a valid StudyRecord" in refused(command("study --resume --out old"))
