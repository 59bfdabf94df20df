"""Runs the turns of cells: each cell is a job of its own that stays alive between its turns."""

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import psutil

from worldsize.analysis.rehearsal import refusal
from worldsize.config import Hosts
from worldsize.config.script import TO_RUN
from worldsize.launch.cluster import Cluster, Running, ThisMachine
from worldsize.launch.environment import worker_environment
from worldsize.launch.job import Job
from worldsize.launch.local import JobFailed
from worldsize.launch.warm import ServerLostError
from worldsize.measure.conditions import memory_kills
from worldsize.ranks.turns import Facts, Reply, Turn, WorkOverError, facts_of, read_replies
from worldsize.results.checkpoints import checkpoint_folder
from worldsize.results.comm_records import AllReduceCost
from worldsize.results.files import cell_folder, outputs_folders
from worldsize.results.records import CellRecord, ErrorRecord
from worldsize.study.memory import OUT_OF_MEMORY, DeviceRoom, judged
from worldsize.study.plan import PlannedCell

ENTRY = "worldsize.training.rank:enter"
SCRIPT_ENTRY = "worldsize.scripts.rank:enter"
MEMORY_RESERVE = 0.1
"""Share of the machine's memory that is left free when another cell is started."""


class CellFailed(Exception):  # noqa: N818 - a cell that fails is a row, not the end of the study
    """A cell ended with an error."""

    def __init__(self, error: ErrorRecord) -> None:
        super().__init__(error.message)
        self.error = error


class WorkersBehind(Exception):  # noqa: N818 - they go on from where they are
    """Workers of a training were started again, and have only the steps of their checkpoint behind them."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.steps = steps


class Executor(Protocol):
    """Starts cells, gives them turns, ends them. The scheduler knows no more than this."""

    def take(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[Reply]:
        """Let a cell do one turn; the replies of its ranks. Starts the cell first if it is not alive.

        Raises CellFailed; the cell is then gone.
        """

    def facts(self, cell: PlannedCell) -> list[Facts]:
        """What the ranks of a cell said when they were started; starts it if it is not alive."""

    def alive(self, cell: PlannedCell) -> bool:
        """Whether the cell's workers run at the moment."""

    def finish(self, cell: PlannedCell) -> None:
        """End a cell."""

    def close(self) -> None:
        """End everything."""


def check_fidelity(record: CellRecord) -> None:
    """Raise CellFailed for a cell of a rehearsal whose ranks did not keep their times."""
    if refused := refusal(record):
        raise CellFailed(refused)


def most_on_a_node(job: Job, by_rank: Sequence[int]) -> int:
    """The largest sum over the ranks of one node."""
    sizes = [node.processes for node in job.nodes] or [job.processes]
    ends = list(itertools.accumulate(sizes))
    return max(sum(by_rank[end - size : end]) for size, end in zip(sizes, ends, strict=True))


class JobExecutor:
    """Cells as jobs of their own. Idle cells are ended when memory is short, and started again for their next turn."""

    def __init__(  # noqa: PLR0913 - what is told of cells comes by name
        self,
        run: Path,
        session: int,
        hosts: Hosts | None = None,
        links: Mapping[int, AllReduceCost] | None = None,
        cluster: Cluster | None = None,
        *,
        hang_timeout_s: float | None = None,
        ran_again: Callable[[PlannedCell, ErrorRecord], None] = lambda cell, error: None,
        ended_by_itself: Callable[[PlannedCell, bool], None] = lambda cell, anew: None,
    ) -> None:
        self.ran_again = ran_again
        """Is told of a cell whose turn failed, and that gets it once more."""
        self.ended_by_itself = ended_by_itself
        """Likewise of one whose script came to its end in a turn, and whether it is started anew for the same turn."""
        self.run = run
        self.hang_timeout_s = hang_timeout_s
        self.cluster = cluster or ThisMachine()
        self.session = session
        self.hosts = hosts
        self.links = dict(links or {})
        """Cost of an all-reduce by world size."""
        self._alive: dict[str, Running] = {}
        self._facts: dict[str, list[Facts]] = {}
        self._peak_bytes: dict[str, int] = {}
        self._devices = DeviceRoom()
        self._kills: dict[str, int | None] = {}
        self._launches: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        """Steps that a cell was asked to record in this session: the next launch numbers its own after them."""

    def take(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[Reply]:
        """Let a cell do one turn, starting it first if it is not alive; raises CellFailed and WorkersBehind."""
        try:
            return self._turn(cell, turn, idle)
        except JobFailed as failed:
            if not self._may_go_on(cell, failed.error):
                raise self._failed(cell, failed) from None
        try:
            self._go_back(cell, turn)
            if turn.op == "steps" and cell.settings.warmup_steps:
                self._turn(cell, Turn(op="steps", count=cell.settings.warmup_steps, timed=False), idle)
            return self._turn(cell, turn, idle)
        except JobFailed as failed:
            raise self._failed(cell, failed) from None

    def _go_back(self, cell: PlannedCell, turn: Turn) -> None:
        """Start the workers; raise WorkersBehind where the checkpoint that they have is older than this turn.

        A kill may come between the steps and their checkpoint.
        """
        self._job(cell)
        steps = self._facts[cell.id][0].steps
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
        return self._facts[cell.id]

    def _may_go_on(self, cell: PlannedCell, error: ErrorRecord) -> bool:
        """Whether what ended a cell says nothing of it, so that it is tried once more; no other cell is then alive."""
        if error.kind == WorkOverError.__name__ and self._steps.get(cell.id):
            self.ended_by_itself(cell, True)
            return True
        if error.kind == ServerLostError.__name__:  # and with it all that it had started
            self._alive.clear()
        elif not self._memory_ended(error) or not self._alive:
            return False
        # It ran out of memory beside others that were waiting.
        self.ran_again(cell, error)
        self._evict()
        return True

    def _failed(self, cell: PlannedCell, failed: JobFailed) -> CellFailed:
        limited = cell.settings.memory_limit is not None
        return CellFailed(judged(failed.error, self._kills[cell.id], limited=limited))

    def alive(self, cell: PlannedCell) -> bool:
        """Whether the cell's workers run at the moment."""
        return cell.id in self._alive

    def finish(self, cell: PlannedCell) -> None:
        """End a cell's workers; nothing happens if they do not run."""
        job = self._alive.pop(cell.id, None)
        if job is None:
            return
        self._devices.left([cell.id])
        try:
            job.send(Turn(op="finish").message())
            job.receive()
        except JobFailed:
            return
        job.close()
        script = cell.settings.program
        if script is not None and not script.keep_outputs:
            for folder in outputs_folders(cell_folder(self.run, cell.id)):
                shutil.rmtree(folder, ignore_errors=True)
        if not cell.settings.checkpoint:  # it may have one from making room for others
            shutil.rmtree(checkpoint_folder(cell_folder(self.run, cell.id)), ignore_errors=True)

    def close(self) -> None:
        """End all workers at once, whatever they are doing."""
        for name in list(self._alive):
            self._alive.pop(name).close()

    def _turn(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[Reply]:
        job = self._job(cell)
        if turn.op == "steps":
            self._steps[cell.id] = self._steps.get(cell.id, 0) + turn.count + turn.warmup
        before = int(job.job.payload["first_step"])
        try:
            job.send(turn.message())
            replies = read_replies(job.receive(idle))
        except JobFailed:
            self._alive.pop(cell.id, None)
            self._devices.left([cell.id])
            raise
        if replies[0].steps is not None:
            self._steps[cell.id] = before + replies[0].steps
        if any(reply.over for reply in replies):  # it begins anew in its next turn
            self.ended_by_itself(cell, False)
            self._alive.pop(cell.id).close()
        self._devices.note(cell.id, replies)
        self._peak_bytes[cell.id] = most_on_a_node(job.job, [reply.peak_memory_bytes for reply in replies])
        return replies

    def _job(self, cell: PlannedCell) -> Running:
        if cell.id not in self._alive:
            self._make_room()
            self._kills[cell.id] = memory_kills()
            job = self.cluster.start(self._describe(cell))
            self._launches[cell.id] = self._launches.get(cell.id, 0) + 1
            self._alive[cell.id] = job
            try:
                self._facts[cell.id] = facts_of(read_replies(job.receive()))
            except JobFailed:
                self._alive.pop(cell.id, None)
                raise
            finally:
                if cell.settings.program is not None:  # it has all arguments of the script, and everybody has read it
                    job.job.file.unlink(missing_ok=True)
        return self._alive[cell.id]

    def _describe(self, cell: PlannedCell) -> Job:
        link = self.links.get(cell.settings.world_size)
        payload = {
            "link": None if link is None else link.model_dump(),
            "run": str(self.run),
            "settings": cell.settings.model_dump(mode="json", context=TO_RUN),
            "placement": cell.placement.model_dump(mode="json"),
            "session": self.session,
            "launch": self._launches.get(cell.id, 0),
            "rate_is_known": cell.id in self._facts,
            "first_step": self._steps.get(cell.id, 0) if cell.settings.epochs is None else 0,
        }
        hosts = None  # one process needs no network
        if self.hosts is not None and cell.placement.processes > 1:
            hosts = self.hosts.model_copy(update={"count": cell.placement.processes})
        nodes = self.cluster.share_out(cell.placement.processes)
        return Job(
            entry=ENTRY if cell.settings.program is None else SCRIPT_ENTRY,
            payload=payload,
            python=None if cell.settings.program is None else cell.settings.program.python,
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
        needed = max(self._peak_bytes.values(), default=0) + MEMORY_RESERVE * memory.total
        if memory.available < needed or self._devices.is_short():
            self._evict()

    def _evict(self) -> None:
        self._devices.left(list(self._alive))
        for name in list(self._alive):
            job = self._alive.pop(name)
            if job.job.payload["settings"]["epochs"] is not None:
                self._save(job)
            job.close()

    @staticmethod
    def _save(job: Running) -> None:
        """A training goes on from here when its workers are started again; steps that are only timed need not."""
        with suppress(JobFailed):  # then it goes on from the checkpoint before, or begins anew
            job.send(Turn(op="checkpoint").message())
            job.receive()

    @staticmethod
    def _memory_ended(error: ErrorRecord) -> bool:
        return error.kind == OUT_OF_MEMORY or (error.kind == "Signal" and "SIGKILL" in error.message)
