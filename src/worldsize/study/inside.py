"""A run whose workers someone else has started: torchrun on each node, one process per worker.

Every rank runs the same schedule on the same replies, so all reach the same decisions; rank 0 alone writes the
records. The worker itself is a thread beside the schedule, exactly the one that a local job runs in a process.
"""

import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from worldsize.config import StudySettings
from worldsize.errors import RunError, UsageError
from worldsize.history import check_clients
from worldsize.launch.failure import explain
from worldsize.launch.placement import default_threads, place
from worldsize.measure.machine import allowed_cores
from worldsize.ranks.setup import Rank, choose_device, process_group
from worldsize.ranks.turns import Reply, Turn
from worldsize.results.folder import Cell, Run, cell_folder, load_run, new_run_folder, write_whole
from worldsize.results.records import ErrorRecord, Findings, Placement
from worldsize.study.executor import CellFailed
from worldsize.study.ledger import Ledger
from worldsize.study.listener import Listener, Silence
from worldsize.study.mirrors import mirrored
from worldsize.study.plan import PlannedCell, make_plan
from worldsize.study.run import announce, check_checkpoints, check_folder, note, open_study, with_default_protocol
from worldsize.study.schedule import Schedule
from worldsize.training.probe import look
from worldsize.training.profile import load_profiler
from worldsize.training.rank import Assignment, serve


def run_inside(
    settings: StudySettings,
    out: Path | None,
    command: Sequence[str],
    listener: Listener | None = None,
    *,
    resume: bool = False,
) -> Run | None:
    """Run the one cell of `settings` as this rank of the group; returns the run on rank 0, None elsewhere.

    Raises UsageError where the world size that was asked for is not the one that was started, RunError on each
    rank that failed; what was measured until then is kept.
    """
    rank = Rank.from_environment()
    settings = with_default_protocol(_fitting(settings, rank))
    check_clients(settings.log)
    findings = look(settings, settings.world_sizes or ())
    cell = _cell(settings, findings, rank)
    device = choose_device(rank, cell.placement)
    with process_group(rank, cell.placement, device):
        folder = _agreed(str(out or new_run_folder("train")))
        before, session = _opened(Path(folder), settings, cell, findings, command, resume=resume)
        ledger = Ledger(Path(folder), session, before, writing=rank.rank == 0)
        executor = ThreadExecutor(Path(folder), rank, device, session)
        done = _agreed(bool(before) and before[cell.id].record.state == "complete")
        heard = (rank.rank == 0 and listener) or Silence()
        clients = settings.log if rank.rank == 0 else ()
        with mirrored(clients, Path(folder), session, heard, keep=partial(note, Path(folder))) as everyone:
            schedule = Schedule([] if done else [cell], settings, executor, ledger, everyone)
            announce(schedule, findings, everyone)
            schedule.run()
        if executor.error:
            raise RunError(executor.error.message)
        _collect(cell_folder(Path(folder), cell.id), rank)
    if rank.rank:
        return None
    ledger.summarise_again()
    return load_run(folder)


def _fitting(settings: StudySettings, rank: Rank) -> StudySettings:
    """The settings with the world size that was started; raise UsageError if another one was asked for."""
    sizes = settings.world_sizes or (rank.processes,)
    if sizes != (rank.processes,) or len(settings.strategies) * len(list(settings.grid(rank.processes))) != 1:
        raise UsageError(
            f"world size {sizes[0]} was given, and torchrun started {rank.processes} process(es)\n"
            "Leave --world-size out, and give one strategy and one batch size."
        )
    return settings.model_copy(update={"world_sizes": (rank.processes,)})


def _cell(settings: StudySettings, findings: Findings, rank: Rank) -> PlannedCell:
    """The one cell, placed on this node: its local workers share the cores of this machine."""
    on_node = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = allowed_cores()
    threads = settings.threads_per_worker or default_threads(len(cores), on_node)
    settings = settings.model_copy(update={"threads_per_worker": threads})
    every_gpu = findings.model_copy(update={"gpus": findings.gpus * rank.processes})
    planned = make_plan(settings, every_gpu, cores)[0]
    if planned.placement.processes != rank.processes:
        raise UsageError(f"strategy {planned.settings.strategy} runs in one process; start it without torchrun")
    local = place(
        world_size=on_node,
        processes=on_node,
        threads_per_worker=threads,
        cores=cores,
        gpus=len(findings.gpus),
        backend=settings.backend,
    )
    first = rank.rank - rank.local_rank
    own = tuple(
        local.cores[worker - first] if 0 <= worker - first < on_node else () for worker in range(rank.processes)
    )
    placement: Placement = local.model_copy(update={"processes": rank.processes, "cores": own})
    return PlannedCell(planned.settings, placement)


def _opened(
    folder: Path,
    settings: StudySettings,
    cell: PlannedCell,
    findings: Findings,
    command: Sequence[str],
    *,
    resume: bool,
) -> tuple[Mapping[str, Cell], int]:
    """Open the study on rank 0; returns the cells of earlier sessions (there alone) and the number of this session.

    Raises UsageError, on every rank, if it cannot be opened.
    """
    before: Mapping[str, Cell] = {}
    answer: int | str = 0
    if not dist.get_rank():
        try:
            check_folder(folder, resume=resume)
            check_checkpoints(folder, [cell], everywhere=False)
            before, answer = open_study(folder, settings, [cell], findings, command)
        except UsageError as error:
            answer = str(error)
    answer = _agreed(answer)
    if isinstance(answer, str):
        raise UsageError(answer)
    _leave_plan(folder)
    return before, answer


def _leave_plan(folder: Path) -> None:
    """Leave a copy of study.json on hosts with file systems of their own: there, too, --resume reads the settings."""
    plan = folder / "study.json"
    content = _agreed(plan.read_text(encoding="utf-8") if dist.get_rank() == 0 else "")
    if not plan.exists():
        write_whole(plan, content)


def _agreed(value: Any) -> Any:
    """Rank 0's value, on every rank."""
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def _collect(folder: Path, rank: Rank) -> None:
    """Bring the samples of ranks on other file systems to rank 0's run folder."""
    kinds = ("rank{}.jsonl", "rank{}.spans.jsonl", "profile/rank{}.json")
    names = {kind.format(r): r for r in range(rank.processes) for kind in kinds}
    missing = _agreed([name for name in names if not (folder / name).exists()])
    mine = [name for name in missing if names[name] == rank.rank and (folder / name).exists()]
    content = {name: (folder / name).read_bytes() for name in mine}
    everyone: list[Any] = [None] * rank.processes
    dist.all_gather_object(everyone, content)
    if rank.rank == 0:
        for files in everyone:
            for name, data in files.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(data)


class QueueTurns:
    """Turns of a worker that is a thread: they come over a queue, and replies are shared among all ranks."""

    def __init__(self, processes: int) -> None:
        self.turns: queue.Queue[Turn] = queue.Queue()
        self.replies: queue.Queue[list[Any] | Exception] = queue.Queue()
        self._processes = processes

    def reply(self, reply: Reply) -> None:
        """Exchange the replies of all ranks, so that each schedule sees the same."""
        everyone: list[Any] = [None] * self._processes
        dist.all_gather_object(everyone, reply.model_dump())
        self.replies.put(everyone)

    def next(self) -> Turn:
        """Wait for the schedule."""
        return self.turns.get()


class ThreadExecutor:
    """Runs the one cell of a run in a thread of this process."""

    def __init__(self, run: Path, rank: Rank, device: torch.device, session: int = 0) -> None:
        self.run, self.rank, self.device, self.session = run, rank, device, session
        self.error: ErrorRecord | None = None
        self._turns = QueueTurns(rank.processes)
        self._thread: threading.Thread | None = None
        self._facts: list[Any] = []

    def alive(self, cell: PlannedCell) -> bool:
        """Whether the thread runs."""
        return self._thread is not None

    def facts(self, cell: PlannedCell) -> list[Any]:
        """What the ranks said when they were built; builds them if they are not."""
        if self._thread is None:
            assignment = Assignment(
                run=str(self.run), settings=cell.settings, placement=cell.placement, session=self.session
            )
            self._thread = threading.Thread(target=self._live, args=(assignment,), daemon=True)
            self._thread.start()
            self._facts = [reply["facts"] for reply in self._receive()]
        return self._facts

    def take(self, cell: PlannedCell, turn: dict[str, Any], idle: Callable[[], None]) -> list[Any]:
        """Let the thread do one turn."""
        if turn["op"] == "profile":
            load_profiler()
        self._turns.turns.put(Turn.model_validate(turn))
        return self._receive(idle)

    def finish(self, cell: PlannedCell) -> None:
        """End the thread."""
        if self._thread is not None:
            self._turns.turns.put(Turn(op="finish"))
            self._receive()
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Nothing outlives the process."""

    def _live(self, assignment: Assignment) -> None:
        try:
            serve(assignment, self._turns, self.rank, self.device)
        except Exception as error:
            self._turns.replies.put(error)

    def _receive(self, idle: Callable[[], None] | None = None) -> list[Any]:
        while True:
            try:
                answer = self._turns.replies.get(timeout=0.25)
            except queue.Empty:
                if idle:
                    idle()
                continue
            if isinstance(answer, Exception):
                self._thread = None  # it has ended
                self.error = explain(answer, self.rank.rank)
                raise CellFailed(self.error) from answer
            return answer
