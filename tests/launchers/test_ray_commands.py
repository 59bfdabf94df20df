"""`--launcher ray -- COMMAND` on a real cluster: a person's command runs on one node, below Ray's actor there."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from commands import finish, processes_of, start, wait_until, worldsize
from jobs import wait_until as comes_true
from ray_nodes import QUIET, RayNodes
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run

needs_private_mounts = pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0,
    reason="no private mounts here: they need root",
)
SCRIPT = """
import os, pathlib, time
import psutil, torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
above = [each.name() for each in psutil.Process().parents()]
pathlib.Path(f"above{dist.get_rank()}").write_text(" ".join([*above, os.environ.get("MINE", "")]))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.ones(6, 4)).sum().backward()
    time.sleep(0.005)
    optimizer.step()
    optimizer.zero_grad()
"""
LAUNCHED = ("--", "torchrun", "--standalone", "--nproc-per-node", "{n}", "train.py")
STUDY = ("study", "--world-sizes", "1,2", "--block-steps", 4, "--hang-timeout", "5min")
BRIEF, LONG = ("--steps", 12), ("--steps", 100_000, "--target-interval", 0)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def on(cluster: RayNodes, out: str = "run") -> tuple[str, ...]:
    return ("--launcher", "ray", "--address", cluster.address, "--out", out)


def test_one_and_two_workers_are_timed_below_the_actor_of_one_node(place: Path, ray: RayNodes) -> None:
    flags = (*STUDY, *BRIEF, "--keep-outputs", *on(ray))
    done = worldsize(*flags, *LAUNCHED, cwd=place, MINE="of the shell", **QUIET)
    assert done.returncode == 0, done.stderr
    cells = load_run(place / "run").cells
    assert {name: cell.record.state for name, cell in cells.items()} == {"train-w1": "complete", "train-w2": "complete"}
    for workers, cell in enumerate(cells.values(), start=1):
        assert cell.record.summary is not None
        assert cell.record.summary.step_s.value > 0.005
        assert len(cell.record.ranks) == workers
        assert cell.record.conditions == [], "of this machine, which need not be theirs"
        for rank in range(workers):
            above = (cell.folder / "outputs" / f"above{rank}").read_text()
            assert "ray::WorkerActor" in above
            assert above.endswith(" of the shell")
    assert not (place / "above0").exists(), "it wrote to a layer"
    assert "scaled speed-up" in done.stdout.lower()
    assert comes_true(lambda: not ray.seats())


def started(place: Path, cluster: RayNodes) -> "subprocess.Popen[str]":
    """A study that would take long: one of its commands has its turn, the other one is stopped."""
    study = start(*STUDY, *LONG, *on(cluster), *LAUNCHED, cwd=place, **QUIET)
    files = [cell_folder(place / "run", name) / "rank0.jsonl" for name in ("train-w1", "train-w2")]
    wait_until(lambda: all(file.exists() and file.read_bytes().count(b"\n") > 8 for file in files), study)
    return study


def of_commands(place: Path) -> list[psutil.Process]:
    return [each for each in processes_of(place) if "train.py" in each.cmdline() and "--out" not in each.cmdline()]


def test_a_study_that_is_killed_leaves_nothing_running_or_stopped(place: Path, ray: RayNodes) -> None:
    study = started(place, ray)
    assert len(ray.seats()) == 1
    commands = of_commands(place)
    assert len(commands) == 5, "torchrun with one worker, and with two"
    study.kill()
    study.communicate()
    assert comes_true(lambda: not processes_of(place)), processes_of(place)
    assert comes_true(lambda: not ray.seats())
    assert not psutil.wait_procs(commands, timeout=10)[1]
    lines = (cell_folder(place / "run", "train-w2") / "rank1.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) > 8, "what was measured is kept"


def test_ctrl_c_ends_it_in_order(place: Path, ray: RayNodes) -> None:
    study = started(place, ray)
    study.send_signal(signal.SIGINT)
    stopped = finish(study, place)
    assert stopped.returncode == 130, stopped.stderr
    assert "worldsize: stopped; what was measured is in run" in stopped.stderr
    assert {cell.record.state for cell in load_run(place / "run").cells.values()} == {"interrupted"}
    assert comes_true(lambda: not ray.seats())


@pytest.mark.parametrize("which", ["program", "actor"])
def test_what_runs_the_commands_is_lost_and_its_cells_say_so(place: Path, ray: RayNodes, which: str) -> None:
    study = started(place, ray)
    [actor] = ray.seats()
    [program] = [each for each in actor.children() if "worldsize.study.commands_on_node" in each.cmdline()]
    (program if which == "program" else actor).kill()
    done = finish(study, place)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    errors = [cell.record.error for cell in load_run(place / "run").cells.values()]
    told = "ended with status -9" if which == "program" else "was lost: "
    assert all(error is not None and told in error.message for error in errors)


@pytest.mark.parametrize("several", [("--nodes", 2), ("--arrangement", "spread")])
def test_workers_on_several_nodes_are_refused(place: Path, ray: RayNodes, several: tuple[object, ...]) -> None:
    done = worldsize(*STUDY, *BRIEF, *several, *on(ray), *LAUNCHED, cwd=place, **QUIET)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "worldsize: a command was given, and workers on 2 nodes: on Ray a command runs on one node",
        "Give --nodes 1, or leave --nodes and --arrangement out.",
    ]
    assert not (place / "run").exists()


@needs_private_mounts
def test_a_node_that_does_not_see_the_run_folder_is_named(place: Path, ray: RayNodes) -> None:
    (place / "out").mkdir()
    command = [sys.executable, "-m", "worldsize", *map(str, (*STUDY[:2], "1", *BRIEF)), *on(ray, "out/run"), *LAUNCHED]
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none out; exec "$@"', "sh", *command]
    done = subprocess.run(hidden, cwd=place, env=os.environ | QUIET, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    first, hint = done.stderr.splitlines()[-2:]
    where = re.escape(str(place / "out/run"))
    assert re.fullmatch(rf"worldsize: node \S+ \(\S+\) of the Ray cluster does not see the folder {where}", first)
    assert "a file system that all nodes share" in hint
