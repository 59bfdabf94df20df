"""Advice for a study that ran on the nodes of a cluster: cores are those of a node, and commands go to the nodes."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from advised import SINGLE, evidence, exchanging, found, study
from made_runs import MadeCell
from worldsize.analysis.advice import advise
from worldsize.analysis.advice.rule import on_one_host
from worldsize.analysis.commands import launched_as
from worldsize.analysis.study import analyse
from worldsize.cli.app import app
from worldsize.config import LaunchSettings
from worldsize.results.folder import load_run, write_cell, write_study
from worldsize.results.records import RankPlace

SLURM = ("--launcher", "slurm", "--nodes", "2", "--workers-per-node=2", "--time", "2:00:00", "--partition", "big one")
TYPED = ("/x/worldsize/__main__.py", "study", "--steps", "18", *SLURM, "--out", "runs/x")
FOUR = exchanging(exposed=0.02, world_size=4, oversubscribed=True)


def on_nodes(cell: MadeCell, each: int, cores: int) -> Callable[[Path], None]:
    """Put so many ranks of a cell on each node, on so many cores."""

    def change(folder: Path) -> None:
        record = load_run(folder).cells[cell.id].record
        assert record.placement is not None
        own = tuple((rank % each % cores,) for rank in range(cell.world_size))
        record.placement = record.placement.model_copy(update={"cores": own})
        record.ranks = [RankPlace(host=f"n{rank // each}", cores=own[rank]) for rank in range(cell.world_size)]
        write_cell(folder, record)

    return change


def test_threads_take_turns_on_the_cores_of_a_node(tmp_path: Path) -> None:
    """Not on those of the machine where the command was typed: it has two."""
    crowded = replace(FOUR, threads=3)
    settings: dict[str, Any] = {"changes": [on_nodes(crowded, 2, 4)], "threads_per_worker": 3}
    analysis = study(tmp_path, [replace(SINGLE, threads=3), crowded], **settings)
    cell = next(each for each in analysis.cells if each.world_size == 4)
    assert on_one_host(cell) == 2
    advice = found(analysis, "oversubscribed")
    assert advice is not None
    assert advice.finding == "ddp with 4 workers at b = 32 runs 6 threads on 2 cores of one node."
    assert evidence(advice)["Cores of one node"] == "2"
    assert "--threads-per-worker 1 " in str(advice.command), "of two cores each of two workers gets one"


def test_more_workers_than_cores_on_a_node_want_more_nodes(tmp_path: Path) -> None:
    advice = found(study(tmp_path, [SINGLE, FOUR], changes=[on_nodes(FOUR, 2, 1)]), "oversubscribed")
    assert advice is not None
    assert advice.next_step == "Use more nodes, with at most 1 worker on each."
    assert advice.command is None


@pytest.mark.parametrize("name", ["study", "train"])
def test_a_command_goes_to_the_nodes_of_the_study(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seen: list[LaunchSettings] = []
    monkeypatch.setattr("worldsize.cli.run.run_and_show", lambda values, out, launch, **_: seen.append(launch))
    command = str(launched_as(TYPED, f"worldsize {name} --steps 30"))
    assert command.startswith(f"worldsize {name} --steps 30 --launcher slurm --nodes 2 --workers-per-node 2 ")
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    wanted = {"launcher": "slurm", "nodes": 2, "workers_per_node": 2, "time": "2:00:00", "partition": "big one"}
    assert seen == [LaunchSettings.model_validate(wanted)]


def test_what_runs_on_one_machine_alone_is_no_command_for_nodes() -> None:
    for command in ("worldsize comm --world-size 4", "worldsize sweep --batch-size 8"):
        assert launched_as(TYPED, command) is None
        assert launched_as(("worldsize", "study"), command) == command
    assert launched_as(TYPED, None) is None


@pytest.mark.parametrize("flag", [("--master-ip", "10.0.0.1"), ("--master-ip=10.0.0.1",)])
def test_a_study_that_was_started_by_hand_gets_no_command_for_this_machine_alone(flag: tuple[str, ...]) -> None:
    typed = ("worldsize", "study", *flag, "--num-nodes", "2", "--rank", "0")
    assert launched_as(typed, "worldsize study --world-sizes 1,2") is None
    assert launched_as(typed, "worldsize comm --world-size 2") is None
    assert launched_as(typed, "worldsize train --world-size 1") == "worldsize train --world-size 1"


STANDALONE = ("torchrun", "--standalone", "--nproc-per-node", "2", "-m", "--")
TWO_NODES = ("torchrun", "--nnodes", "2", "--nproc-per-node", "4", "--rdzv-endpoint", "a:29400", "-m", "--")


@pytest.mark.parametrize(
    ("words", "command", "wanted"),
    [
        (STANDALONE, "worldsize study --world-sizes 1,2 --steps 9", f"{' '.join(STANDALONE)} {{}}"),
        (STANDALONE, "worldsize train --steps 9", f"{' '.join(STANDALONE)} {{}}"),
        (STANDALONE, "worldsize study --world-sizes 1,4", "torchrun --standalone --nproc-per-node 4 -m -- {}"),
        (STANDALONE, "worldsize study --world-sizes 1,2,4", "{}"),
        (STANDALONE, "worldsize sweep --world-size 2", "{}"),
        (TWO_NODES, "worldsize study --world-sizes 1,8", f"{' '.join(TWO_NODES)} {{}}"),
        (TWO_NODES, "worldsize train --world-size 1", "{}"),
        (TWO_NODES, "worldsize study --world-sizes 8,16", None),
        (TWO_NODES, "worldsize study --world-sizes 1,3", None),
        (TWO_NODES, "worldsize comm --world-size 8", None),
    ],
)
def test_a_study_under_torchrun_gets_a_command_for_torchrun(
    words: tuple[str, ...], command: str, wanted: str | None
) -> None:
    """With as many workers as the command has; what torchrun cannot start is plain on one node, none on several."""
    found = launched_as(("worldsize", "study"), command, words)
    assert found == (None if wanted is None else wanted.format(command))


@pytest.mark.parametrize(
    "typed",
    [
        (),
        ("worldsize", "study", "--nodes"),
        ("mine.py", "--launcher", "own", "--nodes", "2"),
        ("worldsize", "study", "--launcher", "local"),
    ],
)
def test_flags_that_say_nothing_of_nodes_change_no_command(typed: tuple[str, ...]) -> None:
    assert launched_as(typed, "worldsize study") == "worldsize study"


def test_the_advice_of_a_study_has_its_launcher(tmp_path: Path) -> None:
    study(tmp_path, [SINGLE, FOUR])
    record = load_run(tmp_path).study
    record.provenance = record.provenance.model_copy(update={"command": TYPED})
    write_study(tmp_path, record)
    commands = [advice.command for advice in advise(analyse(load_run(tmp_path))) if advice.command]
    assert commands
    assert all(" --launcher slurm --nodes 2 " in command for command in commands)
