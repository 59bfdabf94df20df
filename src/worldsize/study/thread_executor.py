"""Workers that someone else has started: each cell is a thread of this process, the one that a job runs in a process.

One cell at a time does a turn; the others wait on their queues. Replies are exchanged among all ranks.
"""

import json
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from worldsize.errors import RunError
from worldsize.launch.failure import explain
from worldsize.ranks.host_collectives import agree, gather
from worldsize.ranks.setup import Rank
from worldsize.ranks.turns import Facts, Reply, Turn, facts_of, read_replies
from worldsize.results.comm_records import AllReduceCost
from worldsize.results.records import ErrorRecord
from worldsize.study.executor import CellFailed
from worldsize.study.forked_children import ForkedChildren, forks_end_with_this_process
from worldsize.study.plan import PlannedCell
from worldsize.training.profile import load_profiler
from worldsize.training.rank import Assignment, serve


class QueueTurns:
    """Turns of a worker that is a thread: they come over a queue, and replies are shared among all ranks."""

    def __init__(self, share: Callable[[Any], list[Any]], children: Callable[[], int]) -> None:
        """`children`: how many processes this cell has, of all that its process has started."""
        self.turns: queue.Queue[Turn] = queue.Queue()
        self.replies: queue.Queue[list[Reply] | Exception] = queue.Queue()
        self.owed = 1
        """Replies that the schedules wait for: that the worker is ready, and one of each turn."""
        self._share, self._children = share, children

    def reply(self, reply: Reply) -> None:
        """Share the replies of all ranks, so that each schedule sees the same."""
        self.owed -= 1
        reply.loader_processes = min(reply.loader_processes, self._children())
        self.replies.put(read_replies(self._share(json.loads(reply.model_dump_json()))))

    def next(self) -> Turn:
        """Wait for the schedule."""
        turn = self.turns.get()
        self.owed += 1
        return turn


class Member:
    """One cell on this rank, if it takes part: its thread, its queues and what it said when it was built."""

    def __init__(self, takes_part: bool, share: Callable[[Any], list[Any]], children: Callable[[], int]) -> None:
        self.takes_part = takes_part
        self.turns = QueueTurns(share, children)
        self.thread: threading.Thread | None = None
        self.facts: list[Facts] = []


class ThreadExecutor:
    """Runs the cells of a run in threads of this process; a cell of one process runs on rank 0 alone."""

    def __init__(
        self,
        run: Path,
        rank: Rank,
        device: torch.device,
        session: int = 0,
        links: Mapping[int, AllReduceCost] | None = None,
    ) -> None:
        self.run, self.rank, self.device, self.session = run, rank, device, session
        self.links = dict(links or {})
        """Cost of an all-reduce by world size."""
        self.error: ErrorRecord | None = None
        self._members: dict[str, Member] = {}
        self._children = ForkedChildren()

    def alive(self, cell: PlannedCell) -> bool:
        """Whether the cell has been started and has not ended."""
        return cell.id in self._members

    def facts(self, cell: PlannedCell) -> list[Facts]:
        """What the ranks said when they were built; builds them if they are not."""
        if self.error is not None:
            # The other ranks may still be in the cell that failed here: no collective of another one must meet them.
            raise RunError(self.error.message)
        if cell.id not in self._members:
            member = self._members[cell.id] = self._join(cell)
            if member.takes_part:
                assignment = Assignment(
                    run=str(self.run),
                    settings=cell.settings,
                    placement=cell.placement,
                    session=self.session,
                    link=self.links.get(cell.settings.world_size),
                )
                member.thread = threading.Thread(target=self._live, args=(cell, assignment, member), daemon=True)
                member.thread.start()
            member.facts = facts_of(self._receive(cell))
            self._children.stand_still(cell.id)
        return self._members[cell.id].facts

    def _join(self, cell: PlannedCell) -> Member:
        together = cell.placement.processes == self.rank.processes
        share = self._gathered if together else self._broadcast
        return Member(together or self.rank.rank == 0, share, lambda: self._children.count(cell.id))

    def launch(self, cells: Sequence[PlannedCell]) -> None:
        """Do nothing: each is started when it is asked for."""

    def take(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[Reply]:
        """Let the cell's thread do one turn; starts it if it has not been.

        Raises CellFailed, and RunError once a cell of several ranks has failed.
        """
        self.facts(cell)
        if turn.op == "profile":
            load_profiler()
        self._children.go_on(cell.id)
        self._members[cell.id].turns.turns.put(turn)
        try:
            replies = self._receive(cell, idle)
        finally:
            if turn.op != "finish":  # who stands still cannot be asked to end
                self._children.stand_still(cell.id)
        replies[0].warnings += self._children.warnings(cell.id)
        return replies

    def finish(self, cell: PlannedCell) -> None:
        """End the cell's thread."""
        if cell.id in self._members:
            member = self._members[cell.id]
            self.take(cell, Turn(op="finish"), lambda: None)
            if member.thread is not None:
                member.thread.join()
            self._members.pop(cell.id, None)

    def close(self) -> None:
        """Nothing outlives the process; loader processes that stand still could not be asked to end."""
        self._children.close()

    def _gathered(self, reply: Any) -> list[Any]:
        return gather(reply, self.rank.processes)

    def _broadcast(self, reply: Any) -> list[Any]:
        """The one reply of a cell of one process, or its failure, on every rank."""
        return [agree(reply, self.rank.processes)]

    def _live(self, cell: PlannedCell, assignment: Assignment, member: Member) -> None:
        alone = cell.placement.processes == 1
        forks_end_with_this_process()
        try:
            serve(assignment, member.turns, Rank(0, 1, self.rank.local_rank) if alone else self.rank, self.device)
        except Exception as error:
            # After the last reply no rank listens: the next cell would take it for its own.
            if alone and self.rank.processes > 1 and member.turns.owed:
                self._broadcast(explain(error, 0).model_dump())
            member.turns.replies.put(error)

    def _receive(self, cell: PlannedCell, idle: Callable[[], None] | None = None) -> list[Reply]:
        member = self._members[cell.id]
        if not member.takes_part:
            [answer] = self._broadcast(None)
            if "exit_status" in answer:  # the record of an error
                self._fail(cell, ErrorRecord.model_validate(answer))
            return read_replies([answer])
        while True:
            try:
                found = member.turns.replies.get(timeout=0.25)
            except queue.Empty:
                if idle:
                    idle()
                continue
            if isinstance(found, Exception):
                self._fail(cell, explain(found, self.rank.rank))
            else:
                return found

    def _fail(self, cell: PlannedCell, error: ErrorRecord) -> None:
        """The cell has ended with an error; raises CellFailed."""
        self._members.pop(cell.id, None)
        if cell.placement.processes > 1:
            self.error = error
        raise CellFailed(error)
