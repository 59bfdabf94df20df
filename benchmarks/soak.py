"""What is left of a study whose processes are killed at random moments: every written step, every finished cell.

Not a measurement of time: it may run beside other work.
"""

import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from common import keep, say
from soak_watch import Losses, family, networks, steps_of

KILLS = 50
SEED = 6
MAX_LINES, MAX_PAUSE_S = 16, 9.0
"""Three kills in four come when a random number of steps, up to so many, has been written since the one before; the
others within so long, whatever is being done: starting, evaluating, saving, reporting."""
SHARES = {"worker": 6, "agent": 2, "server": 1, "parent": 1}
PATIENCE_S = 60.0
"""How long processes may take to follow one that was killed."""
MODEL = """
import os, time
from torch import nn

class Net(nn.Sequential):
    def forward(self, images):
        if self.training:
            time.sleep(float(os.environ.get("SLOW_S", "0")))
        return super().forward(images)

def net(classes):
    return Net(nn.AvgPool2d(8), nn.Flatten(), nn.Dropout(0.2), nn.Linear(48, classes))
"""
STUDY = (
    *("--model", "mine.py:net", "--strategies", "single,all-reduce", "--world-sizes", "1,2"),
    *("--baseline", "single", "--batch-sizes", "8", "--train-samples", "128", "--test-samples", "20"),
    *("--epochs", "4", "--checkpoint", "--checkpoint-steps", "2", "--threads-per-worker", "1", "--hosts", "auto"),
    *("--max-restarts", "20", "--hang-timeout", "60s"),
)
SLOW_S = "0.15"


class Soak:
    """One study after the other in a folder, until enough was killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "mine.py").write_text(MODEL)
        self.random = random.Random(SEED)
        self.killed = {"worker": 0, "agent": 0, "server": 0, "parent": 0}
        self.starts = self.studies = 0
        self.problems: list[str] = []
        self.networks = networks()

    @property
    def kills(self) -> int:
        """How many processes were killed so far."""
        return sum(self.killed.values())

    def run(self) -> None:
        """Kill until it is enough, then let the last study come to its end."""
        self._start("whole", slow_s="0").wait()
        whole = steps_of(self.folder / "whole")
        while self.kills < KILLS:
            self.studies += 1
            run = self.folder / f"run{self.studies}"
            losses = Losses(run)
            while not losses.complete():
                self._session(run, losses)
            if steps_of(run) != whole:
                self._note([f"{run.name}: its losses are not those of a study that was never disturbed"])

    def _session(self, run: Path, losses: Losses) -> None:
        """Start or resume, kill now and then, and look at what is left when the command has ended."""
        process = self._start(run.name)
        self.starts += 1
        before = self.kills
        while self.kills < KILLS and self._pause(process, losses):
            self._compare(run, losses)
            self._kill(process)
        process.wait()
        self._look(run, losses, f"kill {self.kills}" if self.kills > before else f"start {self.starts}")

    def _start(self, name: str, slow_s: str = SLOW_S) -> "subprocess.Popen[bytes]":
        begun = (self.folder / name / "study.json").exists()
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "worldsize", "study", *(("--resume",) if begun else STUDY), "--out", name],
                cwd=self.folder,
                env={**os.environ, "SLOW_S": slow_s},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _pause(self, process: "subprocess.Popen[bytes]", losses: Losses) -> bool:
        """Wait for a random moment; whether the command still runs then."""
        lines, until = math.inf, time.monotonic() + self.random.uniform(0, MAX_PAUSE_S)
        if self.random.random() < 0.75:
            lines, until = losses.lines() + self.random.randint(1, MAX_LINES), math.inf
        while process.poll() is None:
            if losses.lines() >= lines or time.monotonic() >= until:
                return True
            time.sleep(0.05)
        return False

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill one of the processes that are there: mostly a worker, sometimes an agent, the server or the parent."""
        here = family(process.pid)
        if process.poll() is not None:
            return
        kind = self.random.choices(list(here), [SHARES[kind] for kind in here])[0]
        victim = self.random.choice(here[kind])
        try:
            victim.kill()
        except psutil.NoSuchProcess:
            return
        self.killed[kind] += 1
        say(f"  {self.kills} of {KILLS}: {kind} {victim.pid}")

    def _look(self, run: Path, losses: Losses, when: str) -> None:
        """Nothing that was written may be gone, and nothing may be left."""
        until = time.monotonic() + PATIENCE_S
        while (left := self._left()) and time.monotonic() < until:
            time.sleep(0.1)
        self._note(f"{run.name}, {when}: {problem}" for problem in left)
        self._compare(run, losses)

    def _compare(self, run: Path, losses: Losses) -> None:
        """Is all there that was there? Then remember what is there now."""
        self._note(f"{run.name}, after kill {self.kills}: {problem}" for problem in losses.problems())
        losses.see()

    def _note(self, problems: Iterable[str]) -> None:
        for problem in problems:
            self.problems.append(problem)
            say(f"  lost: {problem}")

    def _left(self) -> list[str]:
        """Processes that know the folder, and networks that were not there before."""
        names = []
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and Path(process.cwd()).is_relative_to(self.folder):
                    names.append(f"process {process.pid} is left: {' '.join(process.cmdline())}")
            except (psutil.Error, OSError):
                continue
        found = len(networks() - self.networks)
        return names + ([f"{found} network namespace(s) are left"] if found else [])


def run(data_dir: str | None) -> None:
    """Run the soak, print survived and lost, and keep the result."""
    say("")
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder).resolve())
        soak.run()
    lost = len(soak.problems)
    print(f"soak: {soak.kills} processes killed in {soak.starts} starts of {soak.studies} studies: {lost} lost")
    for problem in soak.problems:
        print(f"  {problem}")
    result: dict[str, Any] = {
        "kills": soak.kills,
        "killed": soak.killed,
        "starts": soak.starts,
        "studies": soak.studies,
        "seed": SEED,
        "survived": soak.kills - lost,
        "lost": soak.problems,
    }
    keep("soak", result)
