"""What is left of studies of commands when some of their processes are killed at random moments: nothing may be.

Not a measurement of time: it may run beside other work.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from common import keep, say
from worldsize.commands.processes import end_all, marked
from worldsize.hook.marks import FOLDER_VARIABLE

KILLS = 50
PARTS = 2
"""Processes of commands that are killed in each study before the study is."""
SEED = 11
PATIENCE_S = 30.0
"""How long what belongs together may take to follow one that was killed."""
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
"""Those that end a study."""
MARKER = "WORLDSIZE_KILLS"
SCRIPT = Path(__file__).parent / "clock" / "loader_processes.py"
STUDY = ("study", "--world-sizes", "1,2", "--budget", "120s", "--out", "run", "train.py")


class Victim:
    """One study, and all processes that it has started."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        shutil.copy(SCRIPT, folder / "train.py")
        self.marker = f"{MARKER}={folder}"
        self.study = subprocess.Popen(
            [sys.executable, "-m", "worldsize", *STUDY],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, MARKER: str(folder)},
        )

    def launches(self) -> dict[str, list[psutil.Process]]:
        """Folder of each launch of a command → its processes."""
        found: dict[str, list[psutil.Process]] = {}
        for pid in marked(self.marker):
            try:
                process = psutil.Process(pid)
                launch = process.environ().get(FOLDER_VARIABLE)
            except psutil.Error:
                continue
            if launch:
                found.setdefault(launch, []).append(process)
        return found

    def any_stopped(self) -> bool:
        """Whether a command is stopped: then there are several."""
        return any(_is(each, psutil.STATUS_STOPPED) for found in self.launches().values() for each in found)


def _is(process: psutil.Process, status: str) -> bool:
    try:
        return bool(process.status() == status)
    except psutil.Error:
        return False


def _wait(condition: Callable[[], bool], patience_s: float) -> bool:
    until_s = time.monotonic() + patience_s
    while not (met := condition()) and time.monotonic() < until_s:
        time.sleep(0.1)
    return met


def run(data_dir: str | None) -> None:
    """Kill, and count what is left."""
    drawn, killed, left = random.Random(SEED), dict[str, int](), list[str]()
    with tempfile.TemporaryDirectory(prefix="worldsize-") as folder:
        number = 0
        while sum(killed.values()) < KILLS and number < KILLS:
            number += 1
            victim = Victim(Path(folder) / f"study{number}")
            try:
                left += _kill(victim, drawn, killed)
            finally:
                end_all(victim.marker)
            say(f"  {sum(killed.values())} killed in {number} studies, left: {len(left)}")
    print(f"kills: {sum(killed.values())} in {number} studies: {killed}; left, stopped or alive: {left or 'nothing'}")
    keep("kills", {"killed": killed, "studies": number, "left": left})


def _kill(victim: Victim, drawn: random.Random, killed: dict[str, int]) -> list[str]:
    """Kill parts of commands, then the study; returns what was left of each."""
    if not _wait(victim.any_stopped, 150):
        return ["a study that stopped no command"]
    left: list[str] = []
    for _ in range(PARTS):
        time.sleep(drawn.uniform(0, 3))
        if victim.study.poll() is None and (launches := victim.launches()):
            left += _kill_part(*drawn.choice(sorted(launches.items())), drawn, killed)
    time.sleep(drawn.uniform(0, 3))
    number = drawn.choice(SIGNALS)
    if victim.study.poll() is None:
        name = f"study, {number.name}"
        killed[name] = killed.get(name, 0) + 1
        victim.study.send_signal(number)
    if not _wait(lambda: victim.study.poll() is not None and not marked(victim.marker), PATIENCE_S):
        left += [f"{_words(pid)} after the study, {number.name}" for pid in marked(victim.marker)]
    return left


def _kill_part(launch: str, processes: list[psutil.Process], drawn: random.Random, killed: dict[str, int]) -> list[str]:
    process = drawn.choice(processes)
    name = _kind(process)
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return []
    killed[name] = killed.get(name, 0) + 1
    marker = f"{FOLDER_VARIABLE}={launch}"
    if _wait(lambda: not marked(marker), PATIENCE_S):
        return []
    return [f"{_words(pid)} after {name}" for pid in marked(marker)]


def _kind(process: psutil.Process) -> str:
    words = _words(process.pid)
    try:
        parent = _words(process.ppid())
    except psutil.Error:
        parent = ""
    if "keeper.py" in words or "distributed.run" in words:
        return "keeper" if "keeper.py" in words else "launcher"
    return "loader" if "train.py" in parent and "distributed.run" not in parent else "rank"


def _words(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline()[:6])
    except psutil.Error:
        return "a process that has just ended"


if __name__ == "__main__":
    run(None)
