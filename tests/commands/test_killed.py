"""Whatever ends a study of commands, nothing of them is left, stopped or alive."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from worldsize.commands.processes import marked

TRAIN = """
import os, time, torch
from torch.utils.data import DataLoader
W = int(os.environ.get("WORLD_SIZE", 1))
if W > 1:
    torch.distributed.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
if W > 1:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    for batch in DataLoader(torch.ones(4000, 4), 8, num_workers=1):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.005)
"""
COMMAND = (sys.executable, "-m", "worldsize", "study", "--world-sizes", "1,2", "--budget", "120s", "--out", "run")
PATIENCE_S = 20.0


def begun(folder: Path) -> "subprocess.Popen[bytes]":
    """A study that is about to run for two minutes."""
    (folder / "train.py").write_text(TRAIN)
    return subprocess.Popen(
        [*COMMAND, "train.py"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "WORLDSIZE_TEST": str(folder)},
    )


def of_study(folder: Path) -> set[int]:
    """All processes of a study, and of what it has started."""
    return marked(f"WORLDSIZE_TEST={folder}")


def wait_for_stopped(folder: Path) -> None:
    """Until a process of a command is stopped: then there are such that go on, too."""
    until_s = time.monotonic() + 150
    while time.monotonic() < until_s:
        states = (_status(pid) for pid in of_study(folder))
        if psutil.STATUS_STOPPED in states:
            return
        time.sleep(0.05)
    pytest.fail("no command was stopped in time")


def _status(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return ""


def left(folder: Path) -> set[int]:
    """What is left of a study some seconds after it was killed."""
    until_s = time.monotonic() + PATIENCE_S
    while (found := of_study(folder)) and time.monotonic() < until_s:
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_study_leaves_nothing_stopped_or_alive(tmp_path: Path, number: signal.Signals) -> None:
    study = begun(tmp_path)
    try:
        wait_for_stopped(tmp_path)
        time.sleep(random.Random(number).uniform(0, 2))
        study.send_signal(number)
        study.wait(PATIENCE_S)
        assert not left(tmp_path)
    finally:
        for pid in of_study(tmp_path):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("which", ["keeper.py", "torch.distributed.run", "train.py"])
def test_a_killed_part_of_a_command_ends_its_cell_and_nothing_is_left(tmp_path: Path, which: str) -> None:
    study = begun(tmp_path)
    try:
        wait_for_stopped(tmp_path)
        time.sleep(1.0)
        found = [pid for pid in of_study(tmp_path) if which in " ".join(_words(pid))]
        assert found, f"no process runs {which}"
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        time.sleep(2.0)
        study.send_signal(signal.SIGTERM)
        study.wait(60)
        assert not left(tmp_path)
    finally:
        for pid in of_study(tmp_path):
            os.kill(pid, signal.SIGKILL)


def _words(pid: int) -> list[str]:
    try:
        return [str(word) for word in psutil.Process(pid).cmdline()]
    except psutil.Error:
        return []
