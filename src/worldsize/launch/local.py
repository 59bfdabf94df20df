"""Start a job on this machine, or one node's part of it, and steer it.

No torch is imported here: agent and workers are processes of their own.
"""

import contextlib
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from worldsize.launch.hang import HangWatch
from worldsize.launch.job import Job
from worldsize.results.files import write_whole
from worldsize.results.records import ErrorRecord

GRACE_S = 10.0
"""How long an agent may take to end its workers before it is killed."""
HUNG_GRACE_S = 2.0
"""The same where a rank hangs; one that is stopped does not hear it."""
LAST_GASP_S = 1.0
"""How long the kernel may take to end the workers of a killed agent; it does so behind our back."""


class JobFailed(Exception):  # noqa: N818 - the failure of a job is data: it becomes a row
    """The job ended before it replied; `error` says why."""

    def __init__(self, error: ErrorRecord) -> None:
        super().__init__(error.message)
        self.error = error


class LocalJob:
    """A job that runs on this machine, under an agent of its own."""

    def __init__(self, job: Job, node: int = 0, through: Sequence[str] = ()) -> None:
        """`node` is which of the job's nodes the agent is for, `through` a command that starts it there."""
        self.job = job
        if node == 0:
            write_whole(job.file, job.model_dump_json(indent=2) + "\n")
            for rank in range(job.processes):
                job.error_file(rank).unlink(missing_ok=True)
        # A job on several nodes is watched where all of it is steered (spread.py).
        self._hang = None if job.spread else HangWatch(job)
        self._log = (job.folder / (f"agent{node}.log" if node else "agent.log")).open("ab")
        # Started through a command, its parent is none of ours: it then asks who it is.
        parent = 0 if through else os.getpid()
        self._agent = subprocess.Popen(
            [*through, sys.executable, "-m", "worldsize.launch.agent", str(job.file), str(parent), str(node)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **job.environment},
            # Ctrl-C of a terminal goes to the whole foreground group; the parent alone decides what it means.
            start_new_session=True,
        )
        assert self._agent.stdout is not None
        os.set_blocking(self._agent.stdout.fileno(), False)
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Process id of the agent."""
        return self._agent.pid

    def send(self, turn: dict[str, Any]) -> None:
        """Give the workers their next turn; a job that has already failed says so on `receive`."""
        assert self._agent.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._agent.stdin.write(json.dumps(turn).encode() + b"\n")
            self._agent.stdin.flush()

    def receive(self, idle: Callable[[], None] | None = None, every_s: float = 0.25) -> list[Any]:
        """Wait for the replies of all ranks; call `idle` meanwhile. Raises JobFailed if the job ended instead."""
        assert self._agent.stdout is not None
        if self._hang:
            self._hang.begin()
        with selectors.DefaultSelector() as selector:
            selector.register(self._agent.stdout, selectors.EVENT_READ)
            while True:
                line, newline, rest = self._buffer.partition(b"\n")
                if newline:
                    self._buffer = rest
                    return self._replies(json.loads(line))
                if selector.select(every_s):
                    chunk = self._agent.stdout.read()
                    if not chunk:
                        raise JobFailed(self._silent_end())
                    self._buffer += chunk
                    continue
                hanging = self._hang.look(self._agent.pid) if self._hang else None
                if hanging:
                    self.close(HUNG_GRACE_S)
                    raise JobFailed(hanging)
                if idle:
                    idle()

    def _replies(self, message: dict[str, Any]) -> list[Any]:
        if "failure" in message:
            self.close()
            raise JobFailed(ErrorRecord.model_validate(message["failure"]))
        replies: list[Any] = message["replies"]
        return replies

    def _silent_end(self) -> ErrorRecord:
        self.close()
        return ErrorRecord(
            kind="WorkerError",
            message=f"the agent ended with status {self._agent.returncode} and without a word; see {self._log.name}",
        )

    def close(self, grace_s: float = GRACE_S) -> None:
        """End the job: nothing of it runs when this returns."""
        assert self._agent.stdout is not None
        self.hang_up()
        try:
            self._agent.wait(grace_s)
        except subprocess.TimeoutExpired:
            workers = psutil.Process(self._agent.pid).children(recursive=True)
            self.kill()
            self._agent.wait()
            psutil.wait_procs(workers, timeout=LAST_GASP_S)
        self._agent.stdout.close()
        self._log.close()

    def hang_up(self) -> None:
        """Tell the agent to end, without waiting for it."""
        assert self._agent.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._agent.stdin.close()

    def kill(self) -> None:
        """End the agent whatever it is doing; its workers go with it, see lifeline.py."""
        self._agent.kill()
