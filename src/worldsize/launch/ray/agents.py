"""The agents of a job on a Ray cluster, as the command sees them: calls to actors (worker_actor.py)."""

import itertools
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayError

from worldsize.launch.job import Job, Node
from worldsize.launch.local import JobFailed
from worldsize.launch.ray.connection import first_line
from worldsize.results.records import ErrorRecord

_numbers = itertools.count()


class RayAgent:
    """One node's part of a job (an Agent of launch/spread.py), or a job that runs on this node alone."""

    def __init__(self, seat: Any, node: Node, job: Job, number: int = 0) -> None:
        """`number` is which of the job's nodes this is. Raises JobFailed if the node is lost."""
        self.job = job
        self._seat, self._node = seat, node
        self._name = next(_numbers)
        self._wait_for(seat.start.remote(self._name, job.model_dump_json(), number))

    def send(self, turn: dict[str, Any]) -> None:
        """Give the agent a line; one that has ended says so on `receive`."""
        self._seat.send.remote(self._name, turn)

    def receive(self, idle: Callable[[], None] | None = None) -> list[Any]:
        """Wait for the agent's next replies; call `idle` meanwhile. Raises JobFailed when it has ended."""
        heard = self._wait_for(self._seat.receive.remote(self._name), idle)
        if isinstance(heard, dict):
            raise JobFailed(ErrorRecord.model_validate(heard))
        replies: list[Any] = heard
        return replies

    def hang_up(self) -> None:
        """Tell the agent to end, without waiting for it."""
        self._seat.hang_up.remote(self._name)

    def kill(self) -> None:
        """End the agent whatever it is doing."""
        self._seat.kill.remote(self._name)

    def close(self) -> None:
        """End the agent: nothing of it runs when this returns, or its node is lost."""
        try:
            self._wait_for(self._seat.close.remote(self._name))
        except JobFailed:
            return

    def _wait_for(self, answer: Any, idle: Callable[[], None] | None = None, every_s: float = 0.25) -> Any:
        try:
            while idle and not ray.wait([answer], timeout=every_s)[0]:
                idle()
            return ray.get(answer)
        except RayError as error:
            message = f"node {self._node.name} ({self._node.address}) was lost: {first_line(error)}"
            raise JobFailed(ErrorRecord(kind="WorkerError", message=message)) from None
