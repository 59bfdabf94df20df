"""What sits on a node of a Ray cluster for the length of a study: an actor that starts this node's processes.

These are the agents of its jobs, and the program that runs a person's commands. Ray ends the actor with the command
that made it, however that one ended; what it has started ends with it, see parent_death.py.
"""

import asyncio
import contextlib
import dataclasses
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from worldsize.launch.job import Job
from worldsize.launch.local import GRACE_S, LAST_GASP_S, JobFailed, LocalJob
from worldsize.launch.ray.program import LocalProgram
from worldsize.launch.warm import WARM, ask
from worldsize.measure.cores import usable_cores
from worldsize.measure.machine import allowed_cores
from worldsize.results.records import ErrorRecord

RAYS_OWN = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV")
"""Variables that Ray sets in its workers, besides RAY_…: ours would compute in one thread, or wait for a debugger."""

Heard = list[Any] | dict[str, Any]
"""Replies, of a job those of all ranks; or the record of an error."""


class Local(Protocol):
    """A process that is started here: an agent (LocalJob) or a program."""

    def send(self, turn: dict[str, Any]) -> None:
        """Give it a line."""

    def receive(self) -> list[Any]:
        """Wait for its next replies. Raises JobFailed when it has ended."""

    def hang_up(self) -> None:
        """Tell it to end."""

    def kill(self) -> None:
        """End it whatever it is doing."""


class WorkerActor:
    """An asynchronous actor: while one call waits for replies, another ends what was to give them.

    What goes to and fro is made of numbers, texts, lists and dicts.
    """

    def __init__(self) -> None:
        self._started: dict[int, _Followed] = {}
        _be_no_helper_of_ray()

    async def enter(self, folder: str, variables: dict[str, str]) -> dict[str, Any] | None:
        """Go to the folder of the command, with its variables; returns the `Cores`, or None where there is no such."""
        os.environ.update(variables)
        try:
            os.chdir(folder)
        except OSError:
            return None
        return dataclasses.asdict(usable_cores(allowed_cores()))

    async def read(self, file: str) -> str | None:
        """What is in a file that the command has written; None where it is not to be seen."""
        try:
            return Path(file).read_text()
        except OSError:
            return None

    async def ask(self, module: str, question: str) -> tuple[int, str, str]:
        """Run a module with the question as its input; its exit status, and what it wrote to stdout and stderr."""
        WARM.get()
        return await asyncio.to_thread(_ask, module, question)

    async def start(self, number: int, job: str, node: int) -> None:
        """Start the agent of one of a job's nodes, which is called by this number from now on."""
        wanted = Job.model_validate_json(job)
        WARM.get(wanted.environment)  # begun here: it ends with the thread that starts it, and this one stays
        await self._follow(number, lambda: LocalJob(wanted, node))

    async def run(self, number: int, module: str, argument: str, variables: dict[str, str]) -> None:
        """Run a module as a program with these variables, which is called by this number from now on."""
        await self._follow(number, lambda: LocalProgram(module, argument, variables))

    async def _follow(self, number: int, start: Callable[[], Local]) -> None:
        self._started[number] = followed = _Followed(start)
        await followed.started

    async def send(self, number: int, turn: dict[str, Any]) -> None:
        """Give a process a line."""
        if local := self._started[number].local:
            local.send(turn)

    async def receive(self, number: int) -> Heard:
        """Wait for a process' next replies, or for its end."""
        return await self._started[number].heard.get()

    async def hang_up(self, number: int) -> None:
        """Tell a process to end."""
        if local := self._started[number].local:
            local.hang_up()

    async def kill(self, number: int) -> None:
        """End a process whatever it is doing."""
        if local := self._started[number].local:
            local.kill()

    async def close(self, number: int) -> None:
        """End a process: nothing of it runs when this returns."""
        await self.hang_up(number)
        thread = self._started[number].thread
        await asyncio.to_thread(thread.join, GRACE_S)
        if thread.is_alive():
            await self.kill(number)
            await asyncio.to_thread(thread.join, LAST_GASP_S)


class _Followed:
    """A process, and the thread that started it, which must live as long as the process (parent_death.py)."""

    def __init__(self, start: Callable[[], Local]) -> None:
        self._start = start
        self._loop = asyncio.get_running_loop()
        self.local: Local | None = None
        self.started: asyncio.Future[None] = self._loop.create_future()
        self.heard: asyncio.Queue[Heard] = asyncio.Queue()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        try:
            self.local = self._start()
        except JobFailed as failed:
            said = f"the process cannot be started: {failed.error.message}"
            self._tell(failed.error.model_copy(update={"message": said}))
        self._loop.call_soon_threadsafe(self.started.set_result, None)
        while self.local:
            try:
                self._tell(self.local.receive())
            except JobFailed as failed:
                self._tell(failed.error)
                return

    def _tell(self, what: list[Any] | ErrorRecord) -> None:
        heard = what if isinstance(what, list) else what.model_dump()
        self._loop.call_soon_threadsafe(self.heard.put_nowait, heard)


def _ask(module: str, question: str) -> tuple[int, str, str]:
    with tempfile.NamedTemporaryFile(mode="r", prefix="worldsize-") as printed:
        status, said = ask(WARM.get(), f"{module}:main", question, Path(printed.name))
        return status, said, printed.read()


def _be_no_helper_of_ray() -> None:
    """Take off what Ray gives its workers and what our processes would inherit.

    Its variables, and the low priority that keeps a raylet responsive (RAY_worker_niceness is 15) where we may.
    """
    raylet = int(os.environ.get("RAY_RAYLET_PID", os.getppid()))
    for name in [name for name in os.environ if name in RAYS_OWN or name.startswith("RAY_")]:
        del os.environ[name]
    with contextlib.suppress(OSError):
        # A thread inherits it from the one that starts it, and so does a process.
        for task in Path("/proc/self/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(task.name), os.getpriority(os.PRIO_PROCESS, raylet))
