"""What a test may leave behind in this process and around it; the fixture in conftest.py fails a test that does."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

PATIENCE_S = 3.0
"""How long a child that was told to end may take."""
LONG_LIVED = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "worldsize.launch.server")
"""Helpers that are started once and end with this process: those of the standard library, and our warm server."""
NOT_OURS = ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR")
"""Variables that pytest sets, and torch when its optimizers are first used."""


@dataclass(frozen=True)
class Traces:
    """The state that tests share."""

    environment: dict[str, str]
    children: frozenset[psutil.Process]
    cores: frozenset[int]
    threads: int | None
    """Compute threads of torch; None while torch is not imported."""

    @classmethod
    def now(cls) -> "Traces":
        """The state at this moment."""
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
        torch: Any = sys.modules.get("torch")
        threads = None if torch is None else torch.get_num_threads()
        return cls(_environment(), frozenset(_children()), frozenset(cores), threads)

    def clean_up(self, *, children: bool = True) -> list[str]:
        """Put everything back to this state; returns what had to be put back, in words.

        Without `children`, processes are left alone: those of a browser that several tests share come and go.
        """
        left = [
            *(self._end_children() if children else ()),
            *self._restore_environment(),
            *self._restore_threads(),
            *_leave_process_group(),
        ]
        if self.cores and self.cores != os.sched_getaffinity(0):
            left.append(f"the affinity mask {sorted(os.sched_getaffinity(0))} instead of {sorted(self.cores)}")
            os.sched_setaffinity(0, self.cores)
        return left

    def _end_children(self) -> list[str]:
        _, alive = psutil.wait_procs([c for c in _children() if c not in self.children], timeout=PATIENCE_S)
        left = [f"process {child.pid}: {' '.join(_command(child)) or 'a zombie'}" for child in alive]
        for child in alive:
            child.kill()
        psutil.wait_procs(alive, timeout=PATIENCE_S)
        return left

    def _restore_environment(self) -> list[str]:
        now = _environment()
        names = sorted(
            name for name in now.keys() | self.environment.keys() if now.get(name) != self.environment.get(name)
        )
        for name in names:
            os.environ.pop(name, None)
            if name in self.environment:
                os.environ[name] = self.environment[name]
        return [f"the environment variable {name}" for name in names]

    def _restore_threads(self) -> list[str]:
        torch: Any = sys.modules.get("torch")
        if torch is None or self.threads in (None, torch.get_num_threads()):
            return []
        left = [f"{torch.get_num_threads()} torch threads instead of {self.threads}"]
        torch.set_num_threads(self.threads)
        return left


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NOT_OURS}


def _children() -> list[psutil.Process]:
    return [child for child in _descendants() if not any(name in " ".join(_command(child)) for name in LONG_LIVED)]


def _descendants() -> list[psutil.Process]:
    """Linux tells them in a small file for each thread; psutil would look at all processes, twice in each test."""
    found: list[psutil.Process] = []
    asked = [os.getpid()]
    try:
        while asked:
            tasks = list(Path(f"/proc/{asked.pop()}/task").glob("*/children"))
            if not tasks:  # not Linux, or built without them
                raise FileNotFoundError
            children = [int(word) for task in tasks for word in task.read_text().split()]
            found += [psutil.Process(child) for child in children]
            asked += children
    except (OSError, psutil.Error):  # or one of them, or a thread, has just ended
        found = psutil.Process().children(recursive=True)
    return found


def _command(process: psutil.Process) -> list[str]:
    try:
        command: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return command


def _leave_process_group() -> list[str]:
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return []
    dist.destroy_process_group()
    return ["an open process group"]
