"""A job over several nodes: an agent on each, of which the first has the desk. No torch is imported here."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from worldsize.launch.hang import HangWatch
from worldsize.launch.job import Job
from worldsize.launch.local import GRACE_S, HUNG_GRACE_S, LAST_GASP_S, JobFailed
from worldsize.launch.secondary_errors import likeliest

ECHO_S = 3.0
"""How long the other nodes may take to say what they saw, once the first has failed."""


class Agent(Protocol):
    """One node's part of a job, wherever it runs: what launch/local.py does for this machine."""

    def send(self, turn: dict[str, Any]) -> None:
        """Give the agent a line."""

    def receive(self, idle: Callable[[], None] | None = None) -> list[Any]:
        """Wait for the agent's next replies. Raises JobFailed when it has ended."""

    def hang_up(self) -> None:
        """Tell the agent to end, without waiting for it."""

    def kill(self) -> None:
        """End the agent whatever it is doing."""


class SpreadJob:
    """A job that runs on several nodes; to its user it is like one that runs here (local.py)."""

    def __init__(self, job: Job, start: Callable[[Job, int], Agent]) -> None:
        """`start` starts the agent of one of the job's nodes. Raises JobFailed if the first cannot listen."""
        self.job = job
        self._hang = HangWatch(job)
        self._heard: queue.SimpleQueue[list[Any] | JobFailed] = queue.SimpleQueue()
        self._agents: list[Agent] = []
        self._threads: list[threading.Thread] = []
        try:
            first = start(job, 0)
            [where] = first.receive()
            self._agents.append(first)
            for node in range(1, len(job.nodes)):
                self._agents.append(start(job, node))
                self._agents[node].send(where)
        except BaseException:
            self.close()
            raise
        self._listen()

    def send(self, turn: dict[str, Any]) -> None:
        """Give the workers their next turn; a job that has already failed says so on `receive`."""
        self._agents[0].send(turn)

    def receive(self, idle: Callable[[], None] | None = None, every_s: float = 0.25) -> list[Any]:
        """Wait for the replies of all ranks; call `idle` meanwhile. Raises JobFailed if the job ended instead."""
        self._hang.begin()
        while True:
            try:
                heard = self._heard.get(timeout=every_s)
            except queue.Empty:
                hanging = self._hang.look(None)
                if hanging:
                    self.close(HUNG_GRACE_S)
                    raise JobFailed(hanging) from None
                if idle:
                    idle()
                continue
            if isinstance(heard, JobFailed):
                raise JobFailed(likeliest([failed.error for failed in self._all_failures(heard)]))
            return heard

    def close(self, grace_s: float = GRACE_S) -> None:
        """End the job: nothing of it runs when this returns."""
        for agent in self._agents:
            agent.hang_up()
        self._listen()  # the end of an agent is seen only while somebody listens to it
        deadline = time.monotonic() + grace_s
        for agent, thread in zip(self._agents, self._threads, strict=True):
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                agent.kill()
                thread.join(LAST_GASP_S)

    def _listen(self) -> None:
        for agent in self._agents[len(self._threads) :]:
            self._threads.append(threading.Thread(target=self._follow, args=(agent,), daemon=True))
            self._threads[-1].start()

    def _follow(self, agent: Agent) -> None:
        """Pass on what an agent says, until it ends."""
        while True:
            try:
                self._heard.put(agent.receive())
            except JobFailed as failed:
                self._heard.put(failed)
                return

    def _all_failures(self, first: JobFailed) -> list[JobFailed]:
        """What all nodes say, the first to fail first: the others end by the lost connection, or are ended."""
        failures = [first]
        deadline = time.monotonic() + ECHO_S
        with contextlib.suppress(queue.Empty):
            while len(failures) < len(self._agents):
                heard = self._heard.get(timeout=max(0.0, deadline - time.monotonic()))
                failures += [heard] if isinstance(heard, JobFailed) else []
        self.close()
        return failures
