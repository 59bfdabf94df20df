"""Start a job on this machine, or one node's part of it, and steer it.

No torch is imported here: agent and workers are processes of their own, forked from a warm server (warm.py).
"""

import json
import queue
from collections.abc import Callable, Sequence
from typing import Any

import psutil

from worldsize.launch.hang import HangWatch
from worldsize.launch.job import Job
from worldsize.launch.warm import WARM, ServerLostError
from worldsize.results.files import write_whole
from worldsize.results.records import ErrorRecord

GRACE_S = 10.0
"""How long an agent may take to end its workers before it is killed."""
HUNG_GRACE_S = 2.0
"""The same where a rank hangs."""
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
        """`node` is which of the job's nodes the agent is for, `through` a command that starts it there.

        Raises JobFailed where there is no room for another process.
        """
        self.job = job
        if node == 0:
            write_whole(job.file, job.model_dump_json(indent=2) + "\n")
            for rank in range(job.processes):
                job.error_file(rank).unlink(missing_ok=True)
        # A job on several nodes is watched where all of it is steered (spread.py).
        self._hang = None if job.spread else HangWatch(job)
        self._log = job.folder / (f"agent{node}.log" if node else "agent.log")
        try:
            self._agent = WARM.get(job.environment, through).start(
                "worldsize.launch.agent:main",
                str(job.file),
                str(node),
                title=f"worldsize agent {job.folder}",
                environment=job.environment,
                log=self._log,
            )
        except (ServerLostError, OSError) as error:
            raise _failed(error) from None

    @property
    def pid(self) -> int:
        """Process id of the agent."""
        return self._agent.wait_for_pid()

    def send(self, turn: dict[str, Any]) -> None:
        """Give the workers their next turn; a job that has already failed says so on `receive`."""
        self._agent.send(json.dumps(turn))

    def receive(self, idle: Callable[[], None] | None = None, every_s: float = 0.25) -> list[Any]:
        """Wait for the replies of all ranks; call `idle` meanwhile. Raises JobFailed if the job ended instead."""
        if self._hang:
            self._hang.begin()
        while True:
            try:
                line = self._agent.get(every_s)
            except queue.Empty:
                hanging = self._hang.look(self._agent.pid) if self._hang else None
                if hanging:
                    self.close(HUNG_GRACE_S)
                    raise JobFailed(hanging) from None
                if idle:
                    idle()
            except (ServerLostError, OSError) as error:
                raise _failed(error) from None
            else:
                if line is None:
                    raise JobFailed(self._silent_end())
                return self._replies(json.loads(line))

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
            message=f"the agent ended with status {self._agent.status} and without a word; see {self._log}",
        )

    def close(self, grace_s: float = GRACE_S) -> None:
        """End the job: nothing of it runs when this returns."""
        self.hang_up()
        try:
            self._agent.wait(grace_s)
        except queue.Empty:
            workers = self._workers()
            self.kill()
            self._agent.wait()
            psutil.wait_procs(workers, timeout=LAST_GASP_S)

    def _workers(self) -> list[psutil.Process]:
        """What the agent has started, where it is on this machine; nothing of one that does not run yet."""
        if not self._agent.pid or not self._hang:
            return []
        try:
            found: list[psutil.Process] = psutil.Process(self._agent.pid).children(recursive=True)
        except psutil.Error:
            return []
        return found

    def hang_up(self) -> None:
        """Tell the agent to end, without waiting for it."""
        self._agent.hang_up()

    def kill(self) -> None:
        """End the agent whatever it is doing; its workers go with it, see parent_death.py."""
        self._agent.kill()


def _failed(error: Exception) -> JobFailed:
    """The end of a job that no agent tells of."""
    return JobFailed(ErrorRecord(kind=type(error).__name__, message=str(error)))
