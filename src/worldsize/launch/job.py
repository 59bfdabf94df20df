"""A job: what to start in how many processes. It is written to a file, which agent and workers read."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from worldsize.config import Hosts


class Node(BaseModel):
    """A machine that takes part in a job, and how many of its processes it takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """As its owner calls it: a host, a place in a cluster."""
    address: str
    """Where the other nodes reach it: a name or a number of the network that carries the messages."""
    processes: int


class Job(BaseModel):
    """Call `entry(payload, turns)` in each of `processes` new processes that can talk to each other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entry: str
    """`module:function`; launch knows nothing else of what it starts."""
    payload: dict[str, Any]
    processes: int
    folder: Path
    """Where the job's file, the logs and the error files of its workers go."""
    environment: dict[str, str] = {}
    """Variables that agent and workers get on top of those of the parent."""
    hosts: Hosts | None = None
    """Emulated hosts to put the workers on, one each; None runs them on this machine's own loopback."""

    hang_timeout_s: float | None = None
    """How long the ranks may begin nothing before the job counts as hanging (launch/hang.py); None is for ever."""

    start_method: Literal["fork", "spawn"] = "fork"
    """Workers are forked from their agent where that is safe, or are new interpreters (child.py)."""

    nodes: tuple[Node, ...] = ()
    """Where the processes run, in the order of their ranks; all on this machine where it is empty."""

    @property
    def spread(self) -> bool:
        """Whether it runs on several nodes."""
        return len(self.nodes) > 1

    @property
    def file(self) -> Path:
        """The file that agent and workers read the job from."""
        return self.folder / "job.json"

    def error_file(self, rank: int) -> Path:
        """Where a failing worker says why."""
        return self.folder / f"rank{rank}.error.json"

    def pulse_file(self, rank: int) -> Path:
        """Where a worker counts what it begins."""
        return self.folder / f"rank{rank}.pulse"

    def stack_file(self, rank: int) -> Path:
        """Where a worker leaves its stack when it is asked."""
        return self.folder / f"rank{rank}.stack"
