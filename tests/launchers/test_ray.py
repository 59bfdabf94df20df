"""`--launcher ray` on a real cluster of two nodes: where workers are put, and what a user is told."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commands import finish, processes_of, start, wait_until, worker, worldsize
from jobs import wait_until as comes_true
from ray_nodes import QUIET, RayNodes
from same_study import DATA, MODEL
from worldsize.launch.job import Job
from worldsize.launch.warm import SERVER
from worldsize.results.files import cell_folder
from worldsize.results.folder import Cell, Run, load_run

needs_private_mounts = pytest.mark.skipif(
    subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0,
    reason="no private mounts here: they need root",
)
CELL = "all-reduce-w2-b4"
TRAIN = ("train", *DATA, "--strategy", "all-reduce", "--world-size", 2, "--batch-size", 4, "--out", "run")
FEW = ("--steps", 2)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODEL)
    return tmp_path


def job(run: Path, cell: str = CELL) -> Job:
    return Job.model_validate_json((cell_folder(run, cell) / "job" / "job.json").read_bytes())


def cell(place: Path) -> Cell:
    return load_run(place / "run").cells[CELL]


def on(cluster: RayNodes) -> tuple[str, ...]:
    return ("--launcher", "ray", "--address", cluster.address)


def test_spread_workers_are_on_two_nodes_and_a_cell_of_one_on_the_first(studies: Any) -> None:
    run: Run = studies("ray")
    nodes = job(run.folder).nodes
    assert [node.processes for node in nodes] == [1, 1]
    assert len({node.name for node in nodes}) == 2
    assert len(run.cells[CELL].record.ranks) == 2
    assert job(run.folder, "single-w1-b8").nodes == ()
    assert not list(run.folder.rglob(".seen-*"))


def test_packed_workers_share_a_node_and_what_one_of_them_raises_is_a_row(place: Path, ray: RayNodes) -> None:
    (place / "raise").touch()
    done = worldsize(*TRAIN, *FEW, *on(ray), cwd=place, **QUIET)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert job(place / "run").nodes == (), "one node needs no others"
    error = cell(place).record.error
    assert error is not None
    assert (error.rank, error.message) == (1, "ValueError: a shape that does not fit")
    assert comes_true(lambda: not ray.seats())


def test_a_study_without_world_sizes_has_a_worker_on_each_node(place: Path, ray: RayNodes) -> None:
    study = ("study", *DATA, "--strategies", "single,all-reduce", "--batch-sizes", 4, "--baseline", "single")
    done = worldsize(*study, *FEW, *on(ray), "--out", "run", cwd=place, **QUIET)
    assert done.returncode == 0, done.stderr
    assert load_run(place / "run").study.plan == ["single-w1-b4", CELL]
    assert len(job(place / "run").nodes) == 2


def test_a_cluster_without_room_is_told_with_what_it_has(place: Path, ray: RayNodes) -> None:
    wide = ("--strategy", "all-reduce", "--world-size", 5, "--batch-size", 4)
    done = worldsize("train", *DATA, *wide, *on(ray), "--out", "run", cwd=place, **QUIET)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "worldsize: Ray found no room for 5 worker(s) with 1 CPU each within 15 s",
        "The cluster has 2 node(s) with 2 CPU(s), 2 CPU(s); 4 CPU(s) are free.",
    ]
    assert not (place / "run").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no.such.host.invalid:6379", "rubbish"])
def test_where_there_is_no_cluster_a_line_says_so(place: Path, address: str) -> None:
    done = worldsize(*TRAIN, "--launcher", "ray", "--address", address, cwd=place, **QUIET)
    assert (done.returncode, done.stdout) == (2, "")
    first, hint = done.stderr.splitlines()
    assert first.startswith(f"worldsize: no Ray cluster at {address}: ")
    assert "ray start --head" in hint


@pytest.mark.parametrize("private", [".", "out"])
@needs_private_mounts
def test_a_node_that_does_not_see_the_folder_is_named(place: Path, ray: RayNodes, private: str) -> None:
    """The command has a file system of its own where it runs, or where it writes to."""
    (place / "out").mkdir()
    own = 'own=$(cat mine.py); mount -t tmpfs none "$0"; cd "$PWD"; echo "$own" > mine.py; exec "$@"'
    command = [sys.executable, "-m", "worldsize", *map(str, TRAIN[:-1]), "out/run", *on(ray)]
    command = ["unshare", "--mount", "sh", "-c", own, private, *command]
    done = subprocess.run(command, cwd=place, env=os.environ | QUIET, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    first, hint = done.stderr.splitlines()[-2:]
    where = place if private == "." else f"out/run/cells/{CELL}/job"
    assert re.fullmatch(rf"worldsize: node \S+ \(\S+\) of the Ray cluster does not see the folder {where}", first)
    assert "a file system that all nodes share" in hint
    assert not list(place.rglob(".seen-*"))


def started(place: Path, cluster: RayNodes, *flags: str) -> "subprocess.Popen[str]":
    """A training over both nodes that would take long, in its first steps."""
    (place / "slow").touch()
    training = start(*TRAIN, "--epochs", 99, *on(cluster), *flags, cwd=place, **QUIET)
    file = cell_folder(place / "run", CELL) / "rank1.jsonl"
    wait_until(lambda: file.exists() and file.read_bytes().count(b"\n") >= 3, training)
    return training


def test_a_command_that_is_killed_takes_everything_with_it(place: Path, ray: RayNodes) -> None:
    training = started(place, ray, "--arrangement", "spread")
    assert len(ray.seats()) == 2
    training.kill()
    training.communicate()
    assert comes_true(lambda: not processes_of(place)), processes_of(place)
    assert comes_true(lambda: not ray.seats())
    steps = [json.loads(line) for line in (cell_folder(place / "run", CELL) / "rank1.jsonl").read_text().splitlines()]
    assert len(steps) >= 3, "what was measured is kept"


def test_ctrl_c_ends_it_in_order(place: Path, ray: RayNodes) -> None:
    training = started(place, ray)
    training.send_signal(signal.SIGINT)
    stopped = finish(training, place)
    assert stopped.returncode == 130, stopped.stderr
    assert "worldsize: stopped; " in stopped.stderr
    assert cell(place).record.state == "interrupted"


def test_a_node_that_is_lost_is_a_row_and_a_killed_worker_is_another(
    place: Path, ray: RayNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVER, "")  # a server of its own on each node, as a user's: the seat is its parent
    training = started(place, ray, "--arrangement", "spread")
    seat_of_rank_1 = worker(place, rank=1).parent().parent().parent()  # of its agent, and of the server
    seat_of_rank_1.kill()
    done = finish(training, place)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    error = cell(place).record.error
    assert error is not None
    assert error.message.startswith(f"node {job(place / 'run').nodes[1].name} ")
    assert "was lost" in error.message
