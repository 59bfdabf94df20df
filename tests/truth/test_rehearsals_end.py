"""Rehearsals as commands: what they print, and what is left of them, whatever else this machine does (needs root)."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import psutil
import pytest

from commands import finish, processes_of, start
from commands import worldsize as command
from repeated import Repeated
from replayable import replayable
from rights import needs_rights
from soak_watch import networks

pytestmark = needs_rights


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return replayable(tmp_path_factory.mktemp("made"))


@pytest.mark.quiet  # a rehearsal whose cores are busy fails, and says so
def test_a_slow_link_slows_the_messages(source: Path, tmp_path: Path) -> None:
    """448 kB over 10 Mbit/s take more than 0.3 s, whatever the machine."""
    place = tmp_path
    how = ("--hosts", 2, "--link", "1gbit", "--slow-link", "1:10mbit", "--strategies", "all-reduce", "--steps", 2)

    def measure() -> CompletedProcess[str]:
        nonlocal place
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        place.mkdir()
        return command("rehearse", source, *how, "--out", "run", "--json", cwd=place)

    def holds(found: CompletedProcess[str]) -> None:
        assert found.returncode == 0, found.stderr
        assert found.stderr.startswith("Rehearsal of made on 2 emulated hosts with links of 1gbit. Real:")
        told = json.loads(found.stdout)
        [row] = [row for row in told["results"] if row["world_size"] == 2]
        assert row["step_s"] > 0.3
        assert [each["cell"] for each in told["rehearsal"]] == ["single-w1-b32", "all-reduce-w2-b32"]
        assert [each["host"] for each in told["links"]] == [0, 1]
        assert told["study"]["settings"]["slow_link"] == ["1:10mbit"]
        resumed = command("study", "--resume", "--out", "run", cwd=place)
        assert resumed.returncode == 0, resumed.stderr

    Repeated(measure).check(holds)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_it_is_killed(source: Path, tmp_path: Path, how: signal.Signals) -> None:
    process = start("rehearse", source, "--hosts", 3, "--budget", "300s", "--out", "run", cwd=tmp_path)
    _wait_for(lambda: any((tmp_path / "run").glob("cells/*-w3-*/rank0.jsonl")), process)
    family = psutil.Process(process.pid).children(recursive=True)
    made = networks(*(each.pid for each in family)) - networks(os.getpid())
    assert len(made) >= 4, "the switch and three hosts of each cell"
    os.kill(process.pid, how)
    if how is signal.SIGINT:
        assert finish(process, tmp_path).returncode == 130
    else:
        process.communicate()
    _wait_for(lambda: not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in family))
    _wait_for(lambda: not processes_of(tmp_path))
    _wait_for(lambda: not networks() & made)


def _wait_for(condition: Any, process: "subprocess.Popen[str] | None" = None, patience_s: float = 90) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
