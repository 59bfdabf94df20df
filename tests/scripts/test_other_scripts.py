"""What a study of a script says of scripts that it cannot time, that end, and that are stopped."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from commands import LONG_S, finish, processes_of, start, wait_until
from in_process import worldsize
from user_scripts import BRIEF, codes, put, run_of, studied
from worldsize.results.folder import Run, load_run

GAN = """
other = torch.nn.Linear(4, 1)
second = torch.optim.Adam(other.parameters())
while True:
    step()
    other(torch.ones(6, 4)).sum().backward()
    second.step()
    second.zero_grad()
"""


FORKS = """
import multiprocessing
def work():
    for _ in range(20): step()
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
"""
FAILING = {
    "none": ("model(torch.ones(6, 4)).sum().backward()", "none.py ended without a step of an optimizer"),
    "usage": (
        "sys.stderr.write('usage: no such data\\n'); sys.exit(2)",
        "left with status 2 after 0 steps: usage: no such data",
    ),
    # Its loader's processes stand still between turns, and Python waits for them at its end.
    "loaders": (
        "loader = torch.utils.data.DataLoader(torch.ones(15, 4), 3, num_workers=2, persistent_workers=True)\n"
        "for batch in loader: step()\nsys.exit(3)",
        "left with status 3 after 5 steps",
    ),
    "raises": ("step(); raise ValueError('shapes differ')", "ValueError: shapes differ"),
    "three": ("step(); step(); step()", "three.py ended by itself after 3 steps, too few to time any"),
    "forks": (FORKS, "forks.py ended without a step of an optimizer"),  # a process that a script starts is not held
}


def together(folder: Path, scripts: list[str], *more: object) -> "subprocess.CompletedProcess[str]":
    """A study of several scripts, which take turns."""
    named = [word for script in scripts for word in ("--script", script)]
    return worldsize("study", *named, "--world-sizes", "1", "--out", "run", *BRIEF, *more, cwd=folder)


def test_what_cannot_be_timed_is_a_row_with_its_reason(tmp_path: Path) -> None:
    for name, (code, _) in FAILING.items():
        put(tmp_path, code, f"{name}.py")
    done = together(tmp_path, [f"{name}.py" for name in FAILING])

    assert done.returncode == 1, done.stderr
    cells = load_run(tmp_path / "run").cells
    for name, (_, told) in FAILING.items():
        error = cells[f"{name}-w1"].record.error
        assert error is not None
        assert told in error.message
        assert f"{name}-w1" in " ".join(done.stderr.split())


def test_two_workers_that_know_nothing_of_each_other(tmp_path: Path) -> None:
    put(tmp_path, "while True: step()")
    done = studied(tmp_path, "train.py")

    told = " ".join((done.stdout + done.stderr).split())
    assert "train.py was started in 2 processes and has no process group" in told
    assert (tmp_path / "run/cells/train-w1/cell.json").exists()
    assert json.loads((tmp_path / "run/cells/train-w1/cell.json").read_text())["state"] == "complete"


def test_a_script_that_ends_within_a_block_is_timed_as_far_as_it_goes(tmp_path: Path) -> None:
    put(tmp_path, "for _ in range(12): step()")
    flags = ("--world-sizes", "1", "--steps", 20, "--block-steps", 12, "--threads-per-worker", 1, "--out", "run")
    [cell] = run_of(tmp_path, worldsize("study", "--script", "train.py", *flags, cwd=tmp_path)).cells.values()

    assert cell.record.state == "complete"
    assert cell.record.launches >= 3, "7 steps of each are timed: one begins, three warm up, one leads"
    assert "ran-to-its-end" in codes(cell)


FIRST = """
many = iter(torch.utils.data.DataLoader(torch.ones(10**6, 4), batch_size=3))
while True:
    batches = [next(many) for _ in range(4)]
    for batch in batches:
        (model(batch).sum() / 4).backward()
    optimizer.step()
"""
AVERAGED = """
import copy
average, loader = copy.deepcopy(model).requires_grad_(False), torch.utils.data.DataLoader(torch.ones(60, 4), 3)
for number in range(10**6):
    step()
    if number % 5 == 0:
        with torch.no_grad():
            for batch in loader:
                average(batch)
                time.sleep(0.01)
"""
IN_A_THREAD = """
import threading
def work():
    while True: step()
threading.Thread(target=work).start()
"""
ENDLESS = {
    "fetched": FIRST,
    "averaged": AVERAGED,
    "threads": IN_A_THREAD,
    "gan": GAN,
    "ends": "for _ in range(14): step()",
    "mine/loop": "from mine.rest import REST\nassert sys.argv[1:] == ['--rate', 'a b']\nwhile True: step(REST)",
}


class Several(NamedTuple):
    """A study of several scripts, and what its command wrote."""

    said: Any
    run: Run


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Several:
    folder = tmp_path_factory.mktemp("several")
    (folder / "mine").mkdir()
    (folder / "mine" / "__init__.py").touch()
    (folder / "mine" / "rest.py").write_text("REST = 0.001\n")
    for name, code in ENDLESS.items():
        put(folder, code, f"{name}.py")
    files = [f"{name}.py" for name in ENDLESS if "/" not in name]
    done = together(folder, [*files, "-m mine.loop --rate 'a b'"], "--json")
    return Several(json.loads(done.stdout), run_of(folder, done))


def test_a_script_that_ends_by_itself_is_started_again(several: Several) -> None:
    cell = several.run.cells["ends-w1"]
    assert cell.record.launches > 1
    assert "ran-to-its-end" in codes(cell)
    assert cell.step_columns("timed")["timed"].sum() >= 16


def test_micro_batches_that_are_fetched_first_are_all_counted(several: Several) -> None:
    assert several.run.cells["fetched-w1"].record.batch_size == 12


def test_an_average_of_the_weights_is_evaluated_beside_the_steps(several: Several) -> None:
    cell = several.run.cells["averaged-w1"]
    assert cell.record.batch_size == 6
    steps = cell.step_columns("timed", "step_s")
    long = steps["step_s"].to_numpy() > 0.2
    assert long.any()
    assert not (long & steps["timed"].to_numpy()).any()


def test_a_thread_of_the_script_may_train(several: Several) -> None:
    assert several.run.cells["threads-w1"].record.batch_size == 6


def test_of_two_optimizers_the_first_counts(several: Several) -> None:
    cell = several.run.cells["gan-w1"]
    [told] = [each.message for each in cell.record.warnings if each.code == "several-optimizers"]
    assert told == "2 optimizers stepped; a step is one of the first that did. The others: Adam."
    assert cell.record.batch_size == 6


def test_a_module_and_its_arguments(several: Several) -> None:
    assert "loop-w1" in several.run.cells
    code = several.run.study.provenance.user_code
    assert code is not None
    names = {"mine/__init__.py", "mine/loop.py", "mine/rest.py"}
    assert {file.name for file in code.files} == {*names, *(f"{name}.py" for name in ENDLESS)}


def test_several_take_turns(several: Several) -> None:
    assert several.said["gate"] == []
    begun = [several.run.cells[name].step_columns("start_ns")["start_ns"].to_numpy() for name in ("gan-w1", "loop-w1")]
    assert begun[0].min() < begun[1].max()
    assert begun[1].min() < begun[0].max(), "their blocks lie between each other"


def test_an_interrupted_study_of_two_workers_goes_on(tmp_path: Path) -> None:
    code = "torch.distributed.init_process_group('gloo')\nassert open('there.txt').read() == 'x'\n"
    put(tmp_path, f"{code}while True: step(0.02)")
    (tmp_path / "there.txt").write_text("x")
    flags = ("--world-sizes", "2", "--steps", 300, "--block-steps", 10, "--threads-per-worker", 1, "--out", "run")
    study = start("study", "--script", "train.py", *flags, cwd=tmp_path)
    wait_until(lambda: (tmp_path / "run/cells/train-w2/rank1.jsonl").exists(), study)
    study.send_signal(signal.SIGINT)
    assert finish(study, tmp_path).returncode == 130
    again = worldsize("study", "--resume", "--out", "run", cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr


LOADER = """
signal = __import__("signal")
signal.signal(signal.SIGTERM, lambda *_: None)
for batch in torch.utils.data.DataLoader(torch.ones(10**6, 4), batch_size=3, num_workers=2):
    step()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_stopped_loaders_do_not_outlive_the_command(tmp_path: Path, number: int) -> None:
    put(tmp_path, LOADER)
    study = start(
        "study", "--script", "train.py", "--world-sizes", "1", "--budget", "60s", "--out", "run", cwd=tmp_path
    )
    wait_until(lambda: (tmp_path / "run/cells/train-w1/rank0.jsonl").exists(), study)
    study.send_signal(number)
    study.communicate(timeout=LONG_S)
    until = time.monotonic() + 45
    while (left := processes_of(tmp_path)) and time.monotonic() < until:
        time.sleep(0.2)
    assert not left


@pytest.mark.quiet  # beside other tests an interval of 51 % held 0
@pytest.mark.parametrize(
    ("old_s", "new_s", "status", "told"),
    [(0.03, 0.045, 3, "gate at 5 %: failed: new-w1 takes"), (0.03, 0.03, 0, "gate at 5 %: passed")],
)
def test_the_gate_between_old_and_new(tmp_path: Path, old_s: float, new_s: float, status: int, told: str) -> None:
    put(tmp_path, f"while True: step({old_s})", "old.py")
    put(tmp_path, f"while True: step({new_s})", "new.py")
    two = ("--script", "old.py", "--script", "new.py", "--fail-above", "5%")
    twelve = ("--steps", 48, "--block-steps", 4, "--threads-per-worker", 1)  # four blocks say too little of each other
    done = worldsize("study", *two, "--world-sizes", "1", "--out", "run", *twelve, cwd=tmp_path)

    assert done.returncode == status, done.stdout + done.stderr
    assert told in done.stdout
    pages = [(tmp_path / "run" / "report" / name).read_text() for name in ("index.html", "summary.md")]
    assert all(told.partition("%: ")[2] in page for page in pages), "who reads the page sees it as well"


def test_a_signal_to_the_command_leaves_no_process(tmp_path: Path) -> None:
    put(tmp_path, "while True: step()")
    study = start(
        "study", "--script", "train.py", "--world-sizes", "1", "--budget", "60s", "--out", "run", cwd=tmp_path
    )
    wait_until(lambda: (tmp_path / "run/cells/train-w1/rank0.jsonl").exists(), study)
    os.kill(study.pid, signal.SIGINT)
    done = finish(study, tmp_path)
    assert done.returncode == 130
    assert "Go on with --resume" in done.stderr
