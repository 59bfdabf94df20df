"""Where jobs run: this machine, or several nodes that a cluster's scheduler has given."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from worldsize.launch.job import Job, Node
from worldsize.launch.local import LocalJob
from worldsize.launch.warm import WARM, ServerLostError, ask
from worldsize.measure.cores import Cores, usable_cores
from worldsize.measure.machine import allowed_cores


class Talking(Protocol):
    """Something that was started, here or on a node: it is told what to do, and replies."""

    def send(self, turn: dict[str, Any]) -> None:
        """Say what comes next: to the workers of a job their next turn."""

    def receive(self, idle: Callable[[], None] | None = None) -> list[Any]:
        """Wait for the replies, of a job those of all ranks; call `idle` meanwhile. Raises JobFailed where it ended."""

    def close(self) -> None:
        """End it: nothing of it runs when this returns."""


class Running(Talking, Protocol):
    """A job that was started."""

    job: Job


class Cluster(Protocol):
    """Nodes that are alike, and a way to start jobs on them."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes and how many workers each takes, in the order in which they are filled; empty for this machine."""

    @property
    def cores(self) -> Cores:
        """The cores of one node that its workers may use."""

    @property
    def here(self) -> bool:
        """Whether what it starts on its first node is on this machine, and below this process, which can watch it."""

    def share_out(self, processes: int) -> tuple[Node, ...]:
        """The nodes that so many processes take, and how many each; empty where one is enough."""

    def start(self, job: Job) -> Running:
        """Start a job on its nodes, or on the first where it names none. Raises JobFailed."""

    def ask(self, module: str, question: str) -> tuple[int, str]:
        """Run a module on the first node; its exit status, and what it printed."""

    def prefix(self, node: Node) -> tuple[str, ...]:
        """Return the words before a command that run it on a node. Raises UsageError where there are none."""

    def program(self, module: str, argument: str, folder: Path) -> Talking | None:
        """Run a module as a program on the first node, which uses a folder; None where that node is this machine.

        Raises UsageError where the node does not see the folder, WorkerError where it is lost.
        """


class ThisMachine:
    """One node, which is here."""

    nodes: tuple[Node, ...] = ()
    here = True

    @property
    def cores(self) -> Cores:
        """The cores that this process may use."""
        return usable_cores(allowed_cores())

    def share_out(self, processes: int) -> tuple[Node, ...]:
        """All of them run here."""
        return ()

    def start(self, job: Job) -> Running:
        """Start a job here."""
        return LocalJob(job)

    def prefix(self, node: Node) -> tuple[str, ...]:
        """None are needed: a command starts here."""
        return ()

    def program(self, module: str, argument: str, folder: Path) -> Talking | None:
        """None is needed: this process is there."""
        return None

    def ask(self, module: str, question: str) -> tuple[int, str]:
        """Ask a process of its own; what it says besides goes where our errors do."""
        try:
            return ask(WARM.get(), f"{module}:main", question)
        except ServerLostError:  # a new one, once: what the question itself ends would end that as well
            return ask(WARM.get(), f"{module}:main", question)


def share_out(nodes: Sequence[Node], processes: int, *, evenly: bool = False) -> tuple[Node, ...]:
    """The nodes that so many processes need, one filled after the other, or as evenly as can be.

    Empty for one node: it runs a job by itself. There must be room for all.
    """
    rooms = [node.processes for node in nodes]
    assert processes <= sum(rooms)
    taken = [0] * len(nodes)
    while sum(taken) < processes:
        open_ones = [number for number, room in enumerate(rooms) if taken[number] < room]
        taken[min(open_ones, key=lambda number: (taken[number], number)) if evenly else open_ones[0]] += 1
    used = tuple(node.model_copy(update={"processes": n}) for node, n in zip(nodes, taken, strict=True) if n)
    return used if len(used) > 1 else ()
