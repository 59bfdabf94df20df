"""Runs the turns of cells: each cell is a job of its own that stays alive between its turns."""

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from worldsize.config import Hosts
from worldsize.launch.cluster import Cluster, Running, ThisMachine
from worldsize.launch.environment import worker_environment
from worldsize.launch.job import Job
from worldsize.launch.local import JobFailed
from worldsize.launch.warm import ServerLostError
from worldsize.measure.conditions import memory_kills
from worldsize.ranks.turns import Facts, Reply, Turn, facts_of, read_replies
from worldsize.results.checkpoints import checkpoint_folder
from worldsize.results.comm_records import AllReduceCost
from worldsize.results.files import cell_folder
from worldsize.results.records import ErrorRecord
from worldsize.study.blocks import warmup_steps
from worldsize.study.executor import CellFailed, WorkersBehind
from worldsize.study.memory import OUT_OF_MEMORY, DeviceRoom, judged
from worldsize.study.plan import PlannedCell

ENTRY = "worldsize.training.rank:enter"
MEMORY_RESERVE = 0.1
"""Share of the machine's memory that is left free when another cell is started."""


def most_on_a_node(job: Job, by_rank: Sequence[int]) -> int:
    """The largest sum over the ranks of one node."""
    sizes = [node.processes for node in job.nodes] or [job.processes]
    ends = list(itertools.accumulate(sizes))
    return max(sum(by_rank[end - size : end]) for size, end in zip(sizes, ends, strict=True))


@dataclass
class Launched:
    """A cell whose workers were started in this session, whether they still run or not."""

    cell: PlannedCell
    job: Running | None = None
    """Its workers, while they run."""
    facts: list[Facts] = field(default_factory=list)
    """What they said when they were ready; empty until then."""
    launches: int = 0
    first_step: int = 0
    """The number of the first step of the last launch."""
    steps: int = 0
    """Steps that were asked for so far: the next launch numbers its own after them."""
    peak_bytes: int = 0
    """The largest memory of its workers on one node."""
    kills_before: int | None = None
    """`memory_kills()` before its last launch."""


class JobExecutor:
    """Cells as jobs of their own. Idle cells are ended when memory is short, and started again for their next turn."""

    def __init__(
        self,
        run: Path,
        session: int,
        hosts: Hosts | None = None,
        links: Mapping[int, AllReduceCost] | None = None,
        cluster: Cluster | None = None,
        *,
        hang_timeout_s: float | None = None,
        ran_again: Callable[[PlannedCell, ErrorRecord], None] = lambda cell, error: None,
    ) -> None:
        self.ran_again = ran_again
        """Is told of a cell whose turn failed, and that gets it once more."""
        self.run = run
        self.hang_timeout_s = hang_timeout_s
        self.cluster = cluster or ThisMachine()
        self.session = session
        self.hosts = hosts
        self.links = dict(links or {})
        """Cost of an all-reduce by world size."""
        self._devices = DeviceRoom()
        self._launched: dict[str, Launched] = {}

    def launch(self, cells: Sequence[PlannedCell]) -> None:
        """Do nothing: each is started when it is asked for."""

    def take(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[Reply]:
        """Let a cell do one turn, starting it first if it is not alive; raises CellFailed and WorkersBehind."""
        try:
            return self._turn(cell, turn, idle)
        except JobFailed as failed:
            if not self._may_go_on(cell, failed.error):
                raise self._failed(cell, failed) from None
        try:
            self._go_back(cell, turn)
            count = warmup_steps(cell)
            if turn.op == "steps" and count:
                self._turn(cell, Turn(op="steps", count=count, timed=False), idle)
                turn = turn.model_copy(update={"anew": True})
            return self._turn(cell, turn, idle)
        except JobFailed as failed:
            raise self._failed(cell, failed) from None

    def _go_back(self, cell: PlannedCell, turn: Turn) -> None:
        """Start the workers; raise WorkersBehind where the checkpoint that they have is older than this turn.

        A kill may come between the steps and their checkpoint.
        """
        self._job(cell)
        steps = self._of(cell).facts[0].steps
        if cell.settings.checkpoint and turn.first_step is not None and steps < turn.first_step:
            raise WorkersBehind(steps)

    def facts(self, cell: PlannedCell) -> list[Facts]:
        """What the ranks said when they were started."""
        try:
            self._job(cell)
        except JobFailed as failed:
            if not self._may_go_on(cell, failed.error):
                raise self._failed(cell, failed) from None
            try:
                self._job(cell)
            except JobFailed as second:
                raise self._failed(cell, second) from None
        return self._of(cell).facts

    def _may_go_on(self, cell: PlannedCell, error: ErrorRecord) -> bool:
        """Whether what ended a cell says nothing of it, so that it is tried once more; no other cell is then alive."""
        if error.kind == ServerLostError.__name__:  # and with it all that it had started
            for each in self._alive():
                self._forget(each)
        elif not self._memory_ended(error) or not self._alive():
            return False
        # It ran out of memory beside others that were waiting.
        self.ran_again(cell, error)
        self._evict()
        return True

    def _failed(self, cell: PlannedCell, failed: JobFailed) -> CellFailed:
        limited = cell.settings.memory_limit is not None
        return CellFailed(judged(failed.error, self._of(cell).kills_before, limited=limited))

    def alive(self, cell: PlannedCell) -> bool:
        """Whether the cell's workers run at the moment."""
        return self._of(cell).job is not None

    def finish(self, cell: PlannedCell) -> None:
        """End a cell's workers; nothing happens if they do not run."""
        job = self._forget(self._of(cell))
        if job is None:
            return
        try:
            job.send(Turn(op="finish").message())
            job.receive()
        except JobFailed:
            return
        job.close()
        if not cell.settings.checkpoint:  # it may have one from making room for others
            shutil.rmtree(checkpoint_folder(cell_folder(self.run, cell.id)), ignore_errors=True)

    def close(self) -> None:
        """End all workers at once, whatever they are doing."""
        for each in self._alive():
            job = self._forget(each)
            if job is not None:
                job.close()

    def _of(self, cell: PlannedCell) -> Launched:
        return self._launched.setdefault(cell.id, Launched(cell))

    def _alive(self) -> list[Launched]:
        return [each for each in self._launched.values() if each.job is not None]

    def _forget(self, launched: Launched) -> Running | None:
        """The workers of a cell that end, or have ended; what they held on a GPU is free then."""
        job, launched.job = launched.job, None
        self._devices.left([launched.cell.id])
        return job

    def _turn(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[Reply]:
        job, launched = self._job(cell), self._of(cell)
        if turn.op == "steps":
            launched.steps += turn.count + turn.warmup
        try:
            job.send(turn.message())
            replies = read_replies(job.receive(idle))
        except JobFailed:
            self._forget(launched)
            raise
        self._devices.note(cell.id, replies)
        launched.peak_bytes = most_on_a_node(job.job, [reply.peak_memory_bytes for reply in replies])
        return replies

    def _job(self, cell: PlannedCell) -> Running:
        launched = self._of(cell)
        if launched.job is None:
            self._make_room()
            launched.kills_before = memory_kills()
            try:
                launched.job = self.cluster.start(self._describe(cell))
                launched.launches += 1
                launched.facts = facts_of(read_replies(launched.job.receive()))
            except JobFailed:
                self._forget(launched)
                raise
        return launched.job

    def _describe(self, cell: PlannedCell) -> Job:
        link, launched = self.links.get(cell.settings.world_size), self._of(cell)
        launched.first_step = launched.steps if cell.settings.epochs is None else 0
        payload = {
            "link": None if link is None else link.model_dump(),
            "run": str(self.run),
            "settings": cell.settings.model_dump(mode="json"),
            "placement": cell.placement.model_dump(mode="json"),
            "session": self.session,
            "launch": launched.launches,
            "rate_is_known": bool(launched.facts),
            "first_step": launched.first_step,
        }
        hosts = None  # one process needs no network
        if self.hosts is not None and cell.placement.processes > 1:
            hosts = self.hosts.model_copy(update={"count": cell.placement.processes})
        nodes = self.cluster.share_out(cell.placement.processes)
        return Job(
            entry=ENTRY,
            payload=payload,
            processes=cell.placement.processes,
            folder=cell_folder(self.run, cell.id) / "job",
            environment=worker_environment(hosts, spread=bool(nodes)),
            hosts=hosts,
            hang_timeout_s=self.hang_timeout_s,
            nodes=nodes,
        )

    def _make_room(self) -> None:
        """End idle cells where one as large as the largest so far would not fit into the memory of host or GPUs."""
        memory = psutil.virtual_memory()
        largest = max((each.peak_bytes for each in self._launched.values()), default=0)
        if memory.available < largest + MEMORY_RESERVE * memory.total or self._devices.is_short():
            self._evict()

    def _evict(self) -> None:
        for each in self._alive():
            if each.cell.settings.epochs is not None:
                self._save(each)
            job = self._forget(each)
            if job is not None:
                job.close()

    @staticmethod
    def _save(launched: Launched) -> None:
        """A training goes on from here when its workers are started again; steps that are only timed need not."""
        assert launched.job is not None, "it runs"
        with suppress(JobFailed):  # then it goes on from the checkpoint before, or begins anew
            launched.job.send(Turn(op="checkpoint").message())
            launched.job.receive()

    @staticmethod
    def _memory_ended(error: ErrorRecord) -> bool:
        return error.kind == OUT_OF_MEMORY or (error.kind == "Signal" and "SIGKILL" in error.message)
