"""The command line in processes of its own, as a user types it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

LONG_S = 400.0
"""Nothing here takes as long on a machine that does other things as well."""

TYPED = (shutil.which("env") or "env", "--default-signal=HUP,INT,QUIT")
"""As an interactive shell starts it: where the tests run under nohup, or in the background, these are ignored."""


def start(*args: object, cwd: Path, **variables: str) -> "subprocess.Popen[str]":
    """Start `worldsize ARGS` in a folder, with further environment variables."""
    return subprocess.Popen(
        [*TYPED, sys.executable, "-m", "worldsize", *map(str, args)],
        cwd=cwd,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]", cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Wait for a command's end; no process that knows its folder may be left."""
    try:
        out, err = process.communicate(timeout=LONG_S)
    except BaseException:
        process.send_signal(signal.SIGTERM)
        process.wait(LONG_S)
        raise
    left = processes_of(cwd)
    assert not left, f"left behind: {left}"
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def worldsize(*args: object, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run `worldsize ARGS` in a folder to its end."""
    return finish(start(*args, cwd=cwd, **variables), cwd)


def processes_of(folder: Path) -> list[psutil.Process]:
    """Processes that work in a folder or name it on their command line: agents and workers do both."""
    found = []
    for process in psutil.process_iter():
        try:
            knows = str(folder) in " ".join(process.cmdline()) or Path(process.cwd()).is_relative_to(folder)
            if knows and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def worker(folder: Path, rank: int, cell: str = "") -> psutil.Process:
    """The worker of this rank among the processes of a folder; of this cell, where several run."""
    titles = {process: " ".join(process.cmdline()) for process in processes_of(folder)}
    [found] = [
        each for each, title in titles.items() if title.startswith(f"worldsize worker rank {rank} ") and cell in title
    ]
    return found


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Wait for something that a command will bring about."""
    until = time.monotonic() + LONG_S
    while not condition():
        assert process.poll() is None, f"it ended first: {process.communicate()}"
        assert time.monotonic() < until
        time.sleep(0.05)
