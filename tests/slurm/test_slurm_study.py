"""Studies on a real Slurm: submitted, followed, failed, cancelled, stopped before the time limit and queued again."""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from select import select

import pytest

from commands import LONG_S, finish, processes_of, start, wait_until
from slurm_here import Slurm
from worldsize.launch.slurm.files import ending, submitted
from worldsize.launch.slurm.state import state_of
from worldsize.results.files import cell_folder
from worldsize.results.folder import Run, load_run

MODEL = """
import os, pathlib, time
from torch import nn

class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.AvgPool2d(4), nn.Flatten(), nn.LazyLinear(classes))
        self.forwards = 0

    def forward(self, images):
        if self.training and os.environ.get("WORLD_SIZE") == "2":
            self.forwards += 1
            if os.environ.get("RANK") == os.environ.get("RAISES_ON"):
                raise ValueError("a shape that does not fit")
            while self.forwards > 4 and pathlib.Path("wait").exists():  # the first touches the lazy weights
                time.sleep(0.05)
        return super().forward(images)

def net(classes):
    return Net(classes)
"""
SLURM = ("--launcher", "slurm", "--time", 60)
TINY = ("--model", "mine.py:net", "--data", "synthetic:3x8x8:10:64", "--threads-per-worker", 1)
STUDY = ("study", *TINY, "--batch-sizes", 4, "--epochs", 1, "--baseline", "single")
DDP = "ddp-w2-b4"
SINGLE = "single-w1-b4"


@pytest.fixture
def place(tmp_path: Path, slurm: Slurm) -> Iterator[Path]:
    """A folder with a user's model; when the jobs have ended, nothing runs in it."""
    (tmp_path / "mine.py").write_text(MODEL)
    yield tmp_path
    slurm.clear()
    assert not processes_of(tmp_path)


def ends(process: "subprocess.Popen[str]") -> "subprocess.CompletedProcess[str]":
    """Wait for a command's end; the job that it follows may go on."""
    out, err = process.communicate(timeout=LONG_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def speaks(process: "subprocess.Popen[str]") -> bool:
    """Whether a command has said something: before it has, Ctrl-C ends it while it loads, without a word."""
    assert process.stderr is not None
    return bool(select([process.stderr], [], [], 0)[0])


def steps(run: Path, cell: str, rank: int = 0) -> list[int]:
    file = cell_folder(run, cell) / f"rank{rank}.jsonl"
    return [json.loads(line)["step"] for line in file.read_text().splitlines()] if file.exists() else []


def states(run: Run) -> dict[str, str]:
    return {name: cell.record.state for name, cell in run.cells.items()}


def becomes(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_a_study_over_two_nodes_ends_as_one_that_runs_here(place: Path, slurm: Slurm) -> None:
    train = ("train", *TINY, "--batch-size", 4, "--world-size", 2)
    done = ends(start(*train, *SLURM, "--out", "run", "--json", cwd=place, **slurm.variables))

    assert done.returncode == 0, done.stderr
    run = load_run(place / "run")
    assert states(run) == {DDP: "complete"}
    assert [rank.host for rank in run.cells[DDP].record.ranks] == ["n1", "n2"]
    assert steps(place / "run", DDP) == steps(place / "run", DDP, rank=1) == list(range(8))
    assert json.loads(done.stdout)["cells"][DDP]["state"] == "complete"
    [job] = submitted(place / "run")
    assert (job.nodes, job.time_min) == (2, 60)
    assert run.study.provenance.command[-2:] == ("--out", "run")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", slurm.variables["SLURM_CONF"])
        assert state_of(job.job_id).name == "COMPLETED"
    again = ends(start("attach", "run", cwd=place, **slurm.variables))
    assert again.returncode == 0
    assert f"job {job.job_id}: has ended" in again.stderr
    assert f"✓ done  {DDP}" in again.stderr
    assert "report: run/report/index.html" in again.stdout
    refused = ends(start(*train, *SLURM, "--out", "run", cwd=place, **slurm.variables))
    assert refused.returncode == 2
    assert "holds a study already" in refused.stderr


def test_an_exception_on_one_rank_is_the_reason_in_the_row(place: Path, slurm: Slurm) -> None:
    train = ("train", *TINY, "--batch-size", 4, "--world-size", 2, *SLURM, "--out", "run")
    done = ends(start(*train, cwd=place, RAISES_ON="1", **slurm.variables))

    assert done.returncode == 1
    record = load_run(place / "run").cells[DDP].record
    assert record.error is not None
    assert (record.state, record.error.kind, record.error.rank) == ("failed", "ValueError", 1)
    assert f"✗ failed  {DDP}: " in done.stderr
    assert "a shape that does not fit" in done.stdout + done.stderr
    end = ending(place / "run", submitted(place / "run")[0].job_id)
    assert end is not None
    assert end.exit_status == 1


def test_a_job_outlives_its_login_shell_and_is_cancelled(place: Path, slurm: Slurm) -> None:
    (place / "wait").touch()
    run = place / "run"
    grid = ("--strategies", "single,ddp", "--world-sizes", "1,2")
    shell = start(*STUDY, *grid, *SLURM, "--out", "run", cwd=place, **slurm.variables)
    wait_until(lambda: bool(submitted(run)), shell)
    shell.send_signal(signal.SIGHUP)
    assert ends(shell).returncode == -signal.SIGHUP

    attached = start("attach", "run", cwd=place, **slurm.variables)
    wait_until(lambda: len(steps(run, DDP)) >= 1, attached)
    other = start("attach", "run", cwd=place, **slurm.variables)
    twice = ends(start(*STUDY, *grid, *SLURM, "--resume", "--out", "run", cwd=place, **slurm.variables))
    assert twice.returncode == 2
    assert "has not ended: running on n[1-2]" in twice.stderr
    wait_until(lambda: speaks(other), other)
    other.send_signal(signal.SIGINT)
    detached = ends(other)
    assert detached.returncode == 130
    assert "worldsize attach run" in detached.stderr
    assert slurm.states() == ["RUNNING"]

    slurm.run("scancel", submitted(run)[0].job_id)
    done = finish(attached, place)
    assert done.returncode == 1
    assert "was cancelled" in done.stderr
    typed = (*STUDY, *grid, *SLURM, "--out", "run", "--resume")
    assert done.stderr.endswith(f"Go on with: worldsize {shlex.join(map(str, typed))}\n")
    assert f"– stopped  {DDP}" in done.stderr
    assert states(load_run(run))[DDP] == "interrupted"
    assert steps(run, SINGLE) == list(range(16)), "its epoch is kept"
    assert steps(run, DDP), "steps shorter than 20 ms are written up to a second later"


def test_a_job_that_nears_its_time_limit_is_queued_again_and_goes_on(place: Path, slurm: Slurm) -> None:
    (place / "wait").touch()
    run = place / "run"
    train = ("train", *TINY, "--batch-size", 4, "--world-size", 2, "--checkpoint-steps", 1)
    shell = start(*train, *SLURM, "--out", "run", cwd=place, **slurm.variables)
    wait_until(lambda: len(steps(run, DDP)) >= 1, shell)
    [job] = submitted(run)
    # Its limit is moved to where the warning, 120 s ahead of it, is due.
    slurm.run("scontrol", "update", f"JobId={job.job_id}", f"TimeLimit={minutes_run(slurm, job.job_id) + 2}")
    wait_until(lambda: "RUNNING" not in slurm.states(), shell)
    before = len(steps(run, DDP))
    assert states(load_run(run)) == {DDP: "interrupted"}
    (place / "wait").unlink()
    slurm.run("scontrol", "update", f"JobId={job.job_id}", "TimeLimit=60")

    done = ends(shell)
    assert done.returncode == 0, done.stderr
    found = load_run(run)
    assert states(found) == {DDP: "complete"}
    assert found.cells[DDP].step_columns("rank", "step").filter(rank=0)["step"].to_list() == list(range(8))
    assert len(found.study.sessions) == 1
    assert steps(run, DDP)[:before] == list(range(before))
    assert [each.job_id for each in submitted(run)] == [job.job_id]


def test_a_job_that_loses_a_node_is_queued_again_and_goes_on(place: Path, slurm: Slurm) -> None:
    (place / "wait").touch()
    run = place / "run"
    train = ("train", *TINY, "--batch-size", 4, "--world-size", 2, "--checkpoint-steps", 1)
    shell = start(*train, *SLURM, "--out", "run", cwd=place, **slurm.variables)
    wait_until(lambda: len(steps(run, DDP)) >= 2, shell)
    # Slurm takes it for lost, until its daemon reports again.
    slurm.run("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
    wait_until(lambda: slurm.states() == ["PENDING"], shell)
    before = steps(run, DDP)
    (place / "wait").unlink()

    done = ends(shell)
    assert done.returncode == 0, done.stderr
    assert "pending" in done.stderr.partition("running on")[2]
    found = load_run(run)
    assert states(found) == {DDP: "complete"}
    assert found.cells[DDP].step_columns("rank", "step").filter(rank=0)["step"].to_list() == list(range(8))
    assert steps(run, DDP)[: len(before)] == before


def minutes_run(slurm: Slurm, job_id: str) -> int:
    """How long a job has run, in whole minutes."""
    told = slurm.run("squeue", "--noheader", f"--jobs={job_id}", "--format=%M").strip()
    return int(told.rpartition(":")[0] or 0)


def test_the_printed_script_runs_by_itself(place: Path, slurm: Slurm) -> None:
    train = ("train", *TINY, "--batch-size", 4, "--world-size", 2, "--out", "run", *SLURM, "--workers-per-node", 2)
    shown = ends(start(*train, "--print-script", cwd=place, **slurm.variables))
    (place / "job.sh").write_text(shown.stdout)
    slurm.run("sbatch", f"--chdir={place}", place / "job.sh")
    becomes(lambda: not slurm.states())

    [log] = place.glob("worldsize-*.log")
    assert "report: run/report/index.html" in log.read_text()
    found = load_run(place / "run")
    assert states(found) == {DDP: "complete"}
    assert [rank.host for rank in found.cells[DDP].record.ranks] == ["n1", "n1"]
    unknown = ends(start("attach", "run", cwd=place, **slurm.variables))
    assert unknown.returncode == 2
    assert "no job was submitted for run" in unknown.stderr


def test_the_printed_script_is_queued_again_before_its_time_limit(place: Path, slurm: Slurm) -> None:
    (place / "wait").touch()
    run = place / "run"
    train = ("train", *TINY, "--batch-size", 4, "--world-size", 2, "--checkpoint-steps", 1, "--out", "run", *SLURM)
    shown = ends(start(*train, "--workers-per-node", 2, "--print-script", cwd=place, **slurm.variables))
    (place / "job.sh").write_text(shown.stdout)
    job_id = slurm.run("sbatch", "--parsable", f"--chdir={place}", place / "job.sh").strip()
    becomes(lambda: len(steps(run, DDP)) >= 1)
    slurm.run("scontrol", "update", f"JobId={job_id}", f"TimeLimit={minutes_run(slurm, job_id) + 2}")
    becomes(lambda: slurm.states() == ["PENDING"])
    assert states(load_run(run)) == {DDP: "interrupted"}
    before = steps(run, DDP)
    (place / "wait").unlink()
    slurm.run("scontrol", "update", f"JobId={job_id}", "TimeLimit=60")

    becomes(lambda: not slurm.states())
    found = load_run(run)
    assert states(found) == {DDP: "complete"}
    assert len(found.study.sessions) == 1
    assert steps(run, DDP)[: len(before)] == before
    [log] = place.glob("worldsize-*.log")
    assert f"– stopped  {DDP}" in log.read_text(), "the log of both starts is one"


def test_what_slurm_refuses_is_said_in_plain_words_and_leaves_no_folder(place: Path, slurm: Slurm) -> None:
    grid = ("--strategies", "ddp", "--world-sizes", 2, "--launcher", "slurm", "--out", "run")
    refused = ends(start(*STUDY, *grid, "--time", 5, "--partition", "nope", cwd=place, **slurm.variables))
    assert refused.returncode == 2
    assert refused.stderr == "worldsize: Slurm did not take the job: Invalid partition name specified\n"
    assert not (place / "run").exists()


def test_without_slurm_a_study_is_not_submitted_and_its_script_can_still_be_seen(tmp_path: Path) -> None:
    grid = ("--strategies", "ddp", "--world-sizes", "1,4", "--launcher", "slurm", "--out", "a run")
    empty = {"PATH": str(tmp_path)}
    told = ends(start(*STUDY, *grid, "--time", 5, cwd=tmp_path, **empty))
    assert told.returncode == 2
    assert told.stderr.startswith("worldsize: --launcher slurm: there is no command sbatch here\n")

    shown = ends(start(*STUDY, *grid, "--time", "1-12", "--partition", "big", "--print-script", cwd=tmp_path, **empty))
    assert shown.returncode == 0
    wanted = {"--nodes=4", "--time=2160", "--partition=big", "--exclusive", "--signal=B:USR2@120", "--requeue"}
    assert wanted <= {line.removeprefix("#SBATCH ") for line in shown.stdout.splitlines()}
    assert "--print-script" not in shown.stdout
    subprocess.run(["/bin/bash", "-n"], input=shown.stdout, text=True, check=True, env=os.environ)
    assert not list(tmp_path.iterdir())
