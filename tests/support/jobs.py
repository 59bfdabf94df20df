"""Start jobs of real processes whose entries live in this folder."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from worldsize.launch.environment import worker_environment
from worldsize.launch.job import Job
from worldsize.launch.local import LocalJob

HERE = Path(__file__).parent


def environment() -> dict[str, str]:
    """The variables that a study gives its workers, and the way to the modules in this folder."""
    path = dict.fromkeys([str(HERE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    return {**worker_environment(), "PYTHONPATH": os.pathsep.join(filter(None, path))}


def start(
    entry: str, processes: int, folder: Path, /, *, variables: dict[str, str] | None = None, **payload: object
) -> LocalJob:
    """A job that calls `entry` with the payload in each of its processes."""
    return LocalJob(
        Job(
            entry=entry,
            payload=payload,
            processes=processes,
            folder=folder,
            environment={**environment(), **(variables or {})},
        )
    )


def family(pid: int) -> list[psutil.Process]:
    """A process and all of its descendants."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that still run; one that has ended and that nobody has asked about (a zombie) does not."""
    return [process for process in processes if not _ended(process)]


def wait_until(condition: Callable[[], bool], patience_s: float = 30.0) -> bool:
    """Wait for something that no event tells of; returns whether it came true in time."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
