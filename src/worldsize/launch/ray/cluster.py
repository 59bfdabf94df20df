"""A running Ray cluster as a Cluster: an actor on each node that has places for workers (worker_actor.py).

The agents of a job are, as the command sees them, calls to these actors.
"""

import itertools
import os
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from worldsize.config import LaunchSettings
from worldsize.errors import UsageError, WorkerError
from worldsize.launch import cluster
from worldsize.launch.cluster import Running, Talking
from worldsize.launch.job import Job, Node
from worldsize.launch.local import JobFailed
from worldsize.launch.ray.connection import connected, first_line
from worldsize.launch.ray.places import Place, gpus_of, has_gpus, places_for, rooms
from worldsize.launch.ray.wanted import Wanted
from worldsize.launch.ray.worker_actor import WorkerActor
from worldsize.launch.spread import SpreadJob
from worldsize.measure.cores import Cores
from worldsize.results.records import ErrorRecord

_numbers = itertools.count()
HANDED_ON = ("GLOO_", "GOMP_", "KMP_", "MKL_", "NCCL_", "OMP_", "PYTORCH_", "THP_", "TORCH_", "WORLDSIZE_")
"""Beginnings of the variables that the workers get from the command: on other launchers they inherit its own."""
HANDED_ON_TOO = ("PATH", "PYTHONPATH")
SEATED_WITHIN_S = 60.0
"""How long the processes on the nodes may take to start: they import what they need from a file system of others."""
LEFT_WITHIN_S = 5.0
"""How long Ray may take to end them."""


class RayProcess:
    """A process on a node, which the actor there has started."""

    def __init__(self, seat: "Taken", start: str, *what: Any) -> None:
        """`start` is the method of the actor that starts it, with `what`. Raises JobFailed if the node is lost."""
        self._seat, self._node = seat.actor, seat.node
        self._name = next(_numbers)
        self._asked: Any = None
        self._wait_for(getattr(self._seat, start).remote(self._name, *what))

    def send(self, turn: dict[str, Any]) -> None:
        """Give the process a line; one that has ended says so on `receive`."""
        self._seat.send.remote(self._name, turn)

    def receive(self, idle: Callable[[], None] | None = None) -> list[Any]:
        """Wait for its next replies; call `idle` meanwhile. Raises JobFailed when it has ended."""
        # What was asked for before an interruption brings the next reply; asked twice, that one would be lost.
        self._asked = self._asked or self._seat.receive.remote(self._name)
        heard = self._wait_for(self._asked, idle)
        self._asked = None
        if isinstance(heard, dict):
            raise JobFailed(ErrorRecord.model_validate(heard))
        replies: list[Any] = heard
        return replies

    def hang_up(self) -> None:
        """Tell the process to end, without waiting for it."""
        self._seat.hang_up.remote(self._name)

    def kill(self) -> None:
        """End the process whatever it is doing."""
        self._seat.kill.remote(self._name)

    def close(self) -> None:
        """End the process: nothing of it runs when this returns, or its node is lost."""
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


class RayAgent(RayProcess):
    """One node's part of a job (an Agent of launch/spread.py), or a job that runs on this node alone."""

    def __init__(self, seat: "Taken", job: Job, number: int = 0) -> None:
        """`number` is which of the job's nodes this is. Raises JobFailed if the node is lost."""
        self.job = job
        super().__init__(seat, "start", job.model_dump_json(), number)


@contextmanager
def ray_cluster(launch: LaunchSettings, largest_world: int | None) -> Iterator[cluster.Cluster]:
    """Places for up to `largest_world` workers, or for all of the nodes where it is None, held for this context.

    Raises UsageError where there is no cluster, no room, or a node without our code or our folder.
    """
    with connected(launch.address):
        if largest_world is None:
            wanted = Wanted.of_nodes(launch, rooms(), gpus=has_gpus())
        else:
            wanted = Wanted.by(launch, largest_world, gpus=has_gpus())
        with places_for(wanted) as places:
            seats: dict[str, Taken] = {}
            try:
                for place in places:
                    seats[place.node.name] = _take_seat(place, wanted)
                yield RayCluster(seats, evenly=launch.arrangement == "spread")
            finally:
                _leave(seats.values())


@dataclass
class Taken:
    """A node whose seat is taken."""

    node: Node
    actor: Any
    cores: Cores
    variables: dict[str, str]
    """Those that its actor has got."""
    sees_the_run: bool = field(default=False)
    """Whether the folder of a job was seen from there."""


class RayCluster:
    """The nodes on which Ray has placed the bundles."""

    here = False

    def __init__(self, seats: dict[str, Taken], *, evenly: bool) -> None:
        """`evenly`: whether a world smaller than the largest is spread, too."""
        self._seats, self._evenly = seats, evenly

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, that with most workers first."""
        return tuple(seat.node for seat in self._seats.values())

    @property
    def cores(self) -> Cores:
        """Those of the first node: the command itself may be on one that has no workers."""
        return self._first.cores

    @property
    def _first(self) -> Taken:
        return next(iter(self._seats.values()))

    def share_out(self, processes: int) -> tuple[Node, ...]:
        """One node after the other, or evenly where they were asked to be spread."""
        return cluster.share_out(self.nodes, processes, evenly=self._evenly)

    def prefix(self, node: Node) -> tuple[str, ...]:
        """Refuse: a command runs on the first node alone, by `program`."""
        raise UsageError(
            f"a command was given, and workers on {len(self._seats)} nodes: on Ray a command runs on one node\n"
            "Give --nodes 1, or leave --nodes and --arrangement out."
        )

    def program(self, module: str, argument: str, folder: Path) -> Talking:
        """Run a module on the first node, with the variables of this process, and the GPUs of the bundles."""
        _check_seen(folder, [self._first])
        try:
            return RayProcess(self._first, "run", module, argument, {**os.environ, **self._first.variables})
        except JobFailed as failed:
            raise WorkerError(failed.error.message) from None

    def start(self, job: Job) -> Running:
        """Start a job. Raises JobFailed, and UsageError if a node does not see its folder."""
        seats = [self._seats[node.name] for node in job.nodes] or [self._first]
        _check_seen(job.folder, seats)
        if not job.spread:
            return RayAgent(seats[0], job)
        return SpreadJob(job, lambda job, number: RayAgent(seats[number], job, number))

    def ask(self, module: str, question: str) -> tuple[int, str]:
        """Run a module on the first node; what it says besides its answer is passed on."""
        status, said, printed = _answer(self._first.node, self._first.actor.ask.remote(module, question))
        sys.stderr.write(printed)
        return status, said


def _take_seat(place: Place, wanted: Wanted) -> Taken:
    actor: Any = ray.remote(WorkerActor).options(num_cpus=1, scheduling_strategy=place.inside).remote()
    variables = {
        name: value for name, value in os.environ.items() if name.startswith(HANDED_ON) or name in HANDED_ON_TOO
    }
    variables |= gpus_of(place, wanted)
    entered = actor.enter.remote(str(Path.cwd()), variables)
    cores: dict[str, Any] | None = _answer(place.node, entered, SEATED_WITHIN_S)
    if cores is None:
        raise _not_shared(place.node, Path.cwd())
    taken = Taken(place.node, actor, Cores(**cores), variables)
    if os.access(Path.cwd(), os.W_OK):  # files that the user names are looked for here
        _check_shared(Path.cwd(), taken)
    return taken


def _leave(seats: Collection[Taken]) -> None:
    """End the actors. What is left of a job ends with them."""
    for seat in seats:
        ray.kill(seat.actor)
    # Ray does it behind our back; an actor that has ended answers by an error.
    asked = [seat.actor.read.remote("") for seat in seats]
    if asked:
        ray.wait(asked, num_returns=len(asked), timeout=LEFT_WITHIN_S)


def _answer(node: Node, asked: Any, patience_s: float | None = None) -> Any:
    """What an actor answers. Raises UsageError if it cannot, or not in time."""
    try:
        return ray.get(asked, timeout=patience_s)
    except RayError as error:
        raise UsageError(
            f"node {node.name} ({node.address}) of the Ray cluster cannot run workers: {first_line(error)}\n"
            f"Each node needs the same worldsize, torch and Python as here ({sys.executable})."
        ) from None


def _check_seen(folder: Path, seats: Iterable[Taken]) -> None:
    """Raise UsageError for a node that does not see the folder of the run. Each node is asked once."""
    for seat in seats:
        if not seat.sees_the_run:
            _check_shared(folder, seat)
            seat.sees_the_run = True


def _check_shared(folder: Path, seat: Taken) -> None:
    """Raise UsageError unless a file that is written here is seen there."""
    folder.mkdir(parents=True, exist_ok=True)
    token = folder / f".seen-{uuid.uuid4().hex}"
    try:
        token.write_text(token.name)
        if _answer(seat.node, seat.actor.read.remote(str(token))) != token.name:
            raise _not_shared(seat.node, folder)
    finally:
        token.unlink(missing_ok=True)


def _not_shared(node: Node, folder: Path) -> UsageError:
    return UsageError(
        f"node {node.name} ({node.address}) of the Ray cluster does not see the folder {folder}\n"
        "Run this in a folder, with an --out, on a file system that all nodes share."
    )
