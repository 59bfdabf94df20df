"""The parts of the Slurm launcher that need no Slurm: times, states in words, what is followed."""

import io
import stat
import sys
from pathlib import Path

import pytest
from rich.console import Console

from fake_cells import findings
from worldsize.cli import follow
from worldsize.cli.follow import Follower
from worldsize.cli.submit import command_in_job, readable
from worldsize.config import LaunchSettings, StudySettings, chosen_world_sizes
from worldsize.errors import OutputError, UsageError
from worldsize.launch.slurm.cluster import SlurmCluster
from worldsize.launch.slurm.files import JobEnd, SubmittedJob, add_submission, submissions_file, submitted
from worldsize.launch.slurm.state import JobState, state_of
from worldsize.launch.slurm.submit import Request, minutes, script, signal_delay_s
from worldsize.results.rank_files import GrowingFile
from worldsize.study.plan import make_plan
from worldsize.study.probe import room_of


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("90", 90), ("90:30", 91), ("1:30:00", 90), ("1-0", 1440), ("1-6:30", 1830), ("2-6:30:01", 3271), ("0:01", 1)],
)
def test_a_time_is_read_as_slurm_reads_it(text: str, wanted: int) -> None:
    assert minutes(text) == wanted


@pytest.mark.parametrize("text", ["", "an hour", "1h", "1:2:3:4", "-5", "0", "0:00", "1-"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--time"):
        minutes(text)


def test_a_short_job_is_told_shortly_before_its_end() -> None:
    assert [signal_delay_s(limit) for limit in (1, 4, 8, 600)] == [15, 60, 120, 120]


def request(launch: LaunchSettings, run: Path = Path("run"), largest_world: int | None = 5) -> Request:
    return Request(("worldsize", "study", "--out", str(run)), run, launch, largest_world)


def test_as_many_nodes_as_the_workers_need() -> None:
    slurm = {"launcher": "slurm", "time": "5"}
    assert request(LaunchSettings.model_validate(slurm)).nodes == 5
    assert request(LaunchSettings.model_validate(slurm | {"workers_per_node": 2})).nodes == 3
    assert request(LaunchSettings.model_validate(slurm | {"workers_per_node": 2, "nodes": 4})).nodes == 4


def test_without_world_sizes_the_nodes_that_were_asked_for_or_one() -> None:
    for flags, nodes in (({}, 1), ({"workers_per_node": 2}, 1), ({"nodes": 8, "workers_per_node": 2}, 8)):
        launch = LaunchSettings.model_validate({"launcher": "slurm", "time": "5", **flags})
        assert request(launch, largest_world=None).nodes == nodes


def test_the_default_study_of_eight_nodes_has_all_of_their_workers(
    commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(commands / "scontrol", '[ "$2" = hostnames ] && seq 8 || echo "NodeAddr=10.0.0.$3"')
    monkeypatch.setenv("SLURM_JOB_NODELIST", "[1-8]")
    cluster = SlurmCluster(workers_per_node=2)
    sizes = chosen_world_sizes(StudySettings(), room_of(cluster), 0)
    cells = make_plan(StudySettings(), findings(samples=1000, most=16, world_sizes=sizes), (0, 1), cluster)
    planned = [cell.settings.world_size for cell in cells if cell.settings.strategy == "ddp"]
    assert planned == [1, 2, 4, 8, 16]


def test_a_job_without_a_time_limit_is_refused() -> None:
    with pytest.raises(UsageError, match="needs --time"):
        request(LaunchSettings(launcher="slurm")).parameters(signal="USR2")


def test_the_printed_script_goes_on_where_something_is_and_stops_before_its_limit() -> None:
    launch = LaunchSettings(launcher="slurm", time="5")
    lines = script(request(launch, Path("my run; rm"))).splitlines()
    [command] = [line for line in lines if line.startswith("worldsize study")]
    assert command == "worldsize study --out 'my run; rm' $([ -e 'my run; rm/study.json' ] && echo --resume) &"
    assert "#SBATCH --signal=B:USR2@75" in lines
    assert "#SBATCH --open-mode=append" in lines
    assert any(line.startswith("trap ") and line.endswith(" USR2") for line in lines)


def test_the_job_runs_what_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    here = (sys.executable, "-m", "worldsize")
    typed = ["study", "tiny", "--json", "--resume", "--nodes", "2"]
    assert command_in_job(typed, Path("runs/x")) == (*here, "study", "tiny", "--nodes", "2", "--out", "runs/x")
    assert command_in_job(["train", "--out=a"], Path("a")) == (*here, "train", "--out=a")


def test_submissions_are_kept_and_a_damaged_record_is_said(tmp_path: Path) -> None:
    assert submitted(tmp_path) == []
    jobs = [
        SubmittedJob(job_id=str(number), submitted="", command=("worldsize",), nodes=1, time_min=5) for number in (7, 8)
    ]
    for job in jobs:
        add_submission(tmp_path, job)
    assert submitted(tmp_path) == jobs
    submissions_file(tmp_path).write_text('{"jobs": [{"job_id": "--all"}]}')
    with pytest.raises(OutputError, match=r"submissions\.json"):
        submitted(tmp_path)


def test_a_link_in_place_of_their_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "slurm").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="is a link"):
        submitted(tmp_path / "run")


def test_what_a_job_said_at_its_end_does_not_steer_the_terminal() -> None:
    end = readable(JobEnd(job_id="1", exit_status=1, message="a\x1b[2Jb\nc"))
    assert end is not None
    assert end.message == "a [2Jb\nc"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose commands stand for Slurm's."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    for name in ("squeue", "sacct"):
        write(tmp_path / name, "exit 1")
    return tmp_path


def write(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("told", "wanted", "ended"),
    [
        ("echo 'PENDING|Resources|'", "pending (Resources)", False),
        ("echo 'RUNNING|None|n[1-2]'", "running on n[1-2]", False),
        ("echo 'CANCELLED|None|n1'", "was cancelled", True),
        ("echo 'NODE_FAIL|NodeDown|n1'", "lost a node that failed", True),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", "is no longer known to Slurm", True),
        (
            "echo 'Unable to contact slurm controller' >&2; exit 1",
            "unreachable (Unable to contact slurm controller)",
            False,
        ),
    ],
)
def test_states_in_words(commands: Path, told: str, wanted: str, ended: bool) -> None:
    write(commands / "squeue", told)
    state = state_of("12")
    assert (str(state), state.ended) == (wanted, ended)


def test_a_job_that_left_the_queue_is_looked_up_in_the_accounts(commands: Path) -> None:
    write(commands / "squeue", "exit 0")
    write(commands / "sacct", "echo 'CANCELLED by 0'")
    assert state_of("12").name == "CANCELLED"


def test_nodes_of_a_job_with_their_addresses(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(commands / "scontrol", '[ "$2" = hostnames ] && echo "a\nb" || echo "NodeName=$3 NodeAddr=10.0.0.$3 Port=1"')
    monkeypatch.setenv("SLURM_JOB_NODELIST", "[a-b]")
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "4")
    nodes = SlurmCluster().nodes
    assert [(node.name, node.address, node.processes) for node in nodes] == [
        ("a", "10.0.0.a", 4),
        ("b", "10.0.0.b", 4),
    ]
    assert [node.processes for node in SlurmCluster(workers_per_node=2).share_out(3)] == [2, 1]


def test_lines_are_counted_as_they_come(tmp_path: Path) -> None:
    file = tmp_path / "rank0.jsonl"
    lines = GrowingFile(file)
    assert lines.skip() == 0
    file.write_text("{}\n{}\n{")
    assert lines.skip() == 2
    with file.open("a") as more:
        more.write("}\n")
    assert (list(lines.new_lines()), lines.lines) == ([b"{}"], 3)
    file.write_text("{}\n")
    assert lines.skip() == 1


def test_a_state_is_told_once_and_a_node_that_failed_is_believed_when_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "ASK_EVERY_S", 0.0)
    monkeypatch.setattr(follow, "EVERY_S", 0.0)
    names = ["PENDING", "PENDING", "RUNNING", "NODE_FAIL", "PENDING", "UNREACHABLE", "NODE_FAIL", "NODE_FAIL"]
    states = iter(names)
    told = io.StringIO()
    follower = Follower(tmp_path, "12", Console(file=told), lambda job_id: JobState(next(states)))
    assert follower.follow().name == "NODE_FAIL"
    assert told.getvalue().splitlines() == [
        "job 12: pending",
        "job 12: running",
        "job 12: pending",
        "job 12: unreachable",
        "job 12: lost a node that failed",
    ]
    assert next(states, None) is None
