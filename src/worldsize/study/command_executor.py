"""Runs the turns of cells that are commands of a person: each stays as it was started, stopped between its turns."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

import psutil

from worldsize.commands.emulated import EmulatedHosts
from worldsize.commands.running import LOOK_S, Block, RunningCommand
from worldsize.commands.tree import Launch, StartError
from worldsize.config import CommandSettings, Hosts
from worldsize.errors import FactoryError, UsageError
from worldsize.launch.by_hand import SOCKET_VARIABLES
from worldsize.launch.cluster import Cluster
from worldsize.launch.hosts import INTERFACE
from worldsize.ranks.turns import Facts, Reply, Turn
from worldsize.results.files import cell_folder
from worldsize.results.records import ErrorRecord, WarningRecord
from worldsize.study.command_errors import failure_of, hang_of, no_step_of
from worldsize.study.command_facts import check_workers, facts_of_told, keep_imported, notices_of
from worldsize.study.command_outputs import Outputs
from worldsize.study.executor import CellFailed
from worldsize.study.plan import PlannedCell

MEMORY_RESERVE = 0.1
"""Share of the machine's memory that is left free when another cell is started."""
START_S = 60.0
"""How long a command may take to its first step, at least; or a whole budget, where that is longer."""
OWN_FAULTS = (UsageError.__name__, FactoryError.__name__)
"""Kinds of errors that no other cell can be the cause of."""
LONGEST_TURN = 2.0
"""Length of a turn ÷ that of its steps as the last ones went, at most: the first know nothing of an evaluation."""
STALL_S = 20.0
"""How long a command may make no step beside others that are stopped, at least; it is then tried by itself."""


@dataclass
class Kept:
    """A cell of this session, whether its command runs or not."""

    cell: PlannedCell
    running: RunningCommand | None = None
    launches: int = 0
    steps: int = 0
    """Of all launches that are over."""
    step_s: float = 0.0
    """How long a step of the last timed block took."""
    peak_bytes: int = 0
    facts: list[Facts] = field(default_factory=list)
    ready: bool = False
    """Whether each rank of the command that runs has made a step, and told of itself."""


class CommandExecutor:
    """Commands as trees of processes. One of them goes on at a time, once all have begun; the others are stopped.

    Where they cannot stand beside each other, each is launched anew for each of its turns, with no other there.
    """

    def __init__(  # noqa: PLR0913 - what a caller says comes by name
        self,
        run: Path,
        session: int,
        *,
        hang_timeout_s: float | None,
        one_at_a_time: bool,
        in_place: bool,
        hosts: Hosts | None,
        cluster: Cluster,
        noted: Callable[[WarningRecord], None],
        ended_by_itself: Callable[[PlannedCell, bool], None],
    ) -> None:
        self.run, self.session = run, session
        self.hang_timeout_s = hang_timeout_s
        self.noted, self.ended_by_itself = noted, ended_by_itself
        self.one_at_a_time = one_at_a_time
        self.hosts, self.cluster = hosts, cluster
        self._kept: dict[str, Kept] = {}
        self._networks: dict[int, EmulatedHosts] = {}
        """By the number of hosts."""
        self._outputs = Outputs(run.absolute(), in_place)

    def launch(self, cells: Sequence[PlannedCell]) -> None:
        """Start commands side by side, if memory is known to be enough; each stands still once it has made a step.

        Python imports torch on one core, so on two it takes half of the time. What goes wrong here shows when the cell
        is asked for.
        """
        wanted = [kept for cell in cells if (kept := self._of(cell)).running is None]
        sizes = [kept.cell.placement.processes for kept in wanted]
        known = any(each.peak_bytes for each in self._kept.values())
        apart = self.one_at_a_time or any(map(self.cluster.share_out, sizes))
        if apart or not known or not self._has_room(sum(sizes)):
            return
        begun = []
        for kept in wanted:
            with suppress(CellFailed):
                begun.append(self._begin(kept))
        until_s = time.monotonic() + START_S
        while (late := [each for each in begun if each.running]) and time.monotonic() < until_s:
            for each in late:
                if each.stepped():
                    each.stop()
            if all(each.status is not None for each in late):
                return
            time.sleep(LOOK_S)
        for each in begun:
            if each.running:  # it goes on when its cell is asked for
                each.stop()

    def take(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[Reply]:
        """Let a command make the steps of a turn, starting it first if it is not there; raises CellFailed."""
        kept = self._of(cell)
        block = self._turn(kept, turn, idle)
        while not block.step_s:
            block = self._turn(kept, turn, idle)
        return [self._reply(kept, block)]

    def _turn(self, kept: Kept, turn: Turn, idle: Callable[[], None]) -> Block:
        running = self._running(kept, idle)
        count = turn.count + turn.warmup
        if not running.running:
            running.go_on()
        patience_s = max(STALL_S, 20 * count * kept.step_s)
        beside = len(self._alive()) > 1
        limit_s = patience_s if beside else max(patience_s, self.hang_timeout_s or inf)
        known = kept.step_s > 0 and kept.cell.settings.block_steps is None
        about_s = LONGEST_TURN * count * kept.step_s if known else inf
        done = running.wait_for_steps(count, limit_s, idle, about_s=about_s)
        if not done and not beside:
            raise hang_of(running, _program(kept.cell), limit_s)
        over = running.status is not None
        if not over:
            running.stop()
        wanted = count if turn.timed and not over else sys.maxsize
        block = running.block(turn.block, wanted=wanted, timed=turn.timed)
        if block.step_s and (turn.timed or not kept.step_s):  # the first steps of a launch take longer
            kept.step_s = sum(block.step_s) / len(block.step_s)
        kept.peak_bytes = max(kept.peak_bytes, running.peak_bytes())
        if over:
            self._over(kept, made=bool(block.step_s))
        elif not running.releases_locks:
            self._apart("a command holds a file lock for as long as it runs")
        elif not done and not block.step_s:
            self._apart(f"a command made no step within {limit_s:.0f} s beside others that were stopped")
        elif self.one_at_a_time:
            self._end(kept)
        return block

    def _over(self, kept: Kept, *, made: bool) -> None:
        """A command has ended by itself: its data were over, or it failed."""
        running = kept.running
        assert running is not None, "it has just been over"
        if running.status != 0 or not running.steps:
            raise failure_of(running, _program(kept.cell))
        self._end(kept)
        self.ended_by_itself(kept.cell, not made)

    def _apart(self, why: str) -> None:
        """From now on no command is there beside another one."""
        for each in self._alive():
            self._end(each)
        self._separate(why)

    def _separate(self, why: str) -> None:
        if not self.one_at_a_time:
            text = f"Cells were run one after the other, each launched anew for its turns: {why}."
            self.noted(WarningRecord(code="one-at-a-time", message=text))
        self.one_at_a_time = True

    def facts(self, cell: PlannedCell) -> list[Facts]:
        """Return what the ranks of a command have told of themselves; starts it if it is not there."""
        kept = self._of(cell)
        self._running(kept, lambda: None)
        return kept.facts

    def alive(self, cell: PlannedCell) -> bool:
        """Return whether the command is there, if only stopped."""
        return self._of(cell).running is not None or (self.one_at_a_time and self._of(cell).launches > 0)

    def finish(self, cell: PlannedCell) -> None:
        """End a command; its files are removed unless they are to be kept."""
        self._end(self._of(cell))
        self._outputs.close(cell, _program(cell))

    def close(self) -> None:
        """End all of them; what they have written goes, for no turn of theirs is the last."""
        for each in self._kept.values():
            self._end(each)
            self._outputs.close(each.cell, _program(each.cell))
        for networks in self._networks.values():
            networks.close()

    def _of(self, cell: PlannedCell) -> Kept:
        return self._kept.setdefault(cell.id, Kept(cell))

    def _alive(self) -> list[Kept]:
        return [each for each in self._kept.values() if each.running is not None]

    def _end(self, kept: Kept) -> None:
        running, kept.running, kept.ready = kept.running, None, False
        if running is not None:
            running.end()
            kept.steps += running.steps

    def _running(self, kept: Kept, idle: Callable[[], None]) -> RunningCommand:
        """The command, which is started, and has made its first step, if it was not there."""
        if kept.running is not None and kept.ready:
            return kept.running
        if kept.running is None:
            self._make_room(kept)
        try:
            return self._start(kept, idle)
        except CellFailed as failed:
            self._end(kept)
            if failed.error.kind in OWN_FAULTS or not self._alive():
                raise
        # Another cell may hold a port, a lock or memory that it needs.
        for each in self._alive():
            self._end(each)
        try:
            running = self._start(kept, idle)
        except CellFailed:
            self._end(kept)
            raise
        self._separate("beside another one a command failed")
        return running

    def _begin(self, kept: Kept) -> RunningCommand:
        place = cell_folder(self.run, kept.cell.id).absolute()
        try:
            kept.running = RunningCommand(self._launches(kept), place, self.session, kept.launches, kept.steps)
        except StartError as error:
            text = f"{_program(kept.cell).shown}: {error}"
            raise CellFailed(ErrorRecord(kind="StartError", message=text, exit_status=2)) from None
        kept.launches += 1
        return kept.running

    def _start(self, kept: Kept, idle: Callable[[], None]) -> RunningCommand:
        cell, program = kept.cell, _program(kept.cell)
        running = kept.running or self._begin(kept)
        if not running.running and not running.stepped():
            running.go_on()
        limit_s = max(START_S, cell.settings.budget_s or 0.0)
        if not running.wait_for_first_step(limit_s, idle):
            raise no_step_of(running, program, limit_s)
        if running.status is not None and (running.status != 0 or not running.ranks):
            raise failure_of(running, program)
        told = running.facts()
        try:
            check_workers(told, program, cell.world_size)
            keep_imported(self.run, cell.id, told, running.launches[0].cwd)
        except UsageError as error:
            raise CellFailed(ErrorRecord(kind=type(error).__name__, message=str(error), exit_status=2)) from None
        kept.facts = [facts_of_told(each, program.samples_per_step) for each in told.values()]
        kept.peak_bytes = max(kept.peak_bytes, running.peak_bytes())
        kept.ready = True
        return running

    def _launches(self, kept: Kept) -> list[Launch]:
        """What is started: one command, or one on each emulated host."""
        cell, program = kept.cell, _program(kept.cell)
        begin, layers = self._outputs.prepare(cell)
        for warning in self._outputs.warnings:
            self.noted(warning)
        first = Launch(
            words=program.words,
            folder=cell_folder(self.run, cell.id).absolute() / "job" / f"launch{self.session}-{kept.launches}",
            cwd=begin,
            environment={**os.environ, **program.environment},
            overlays=layers,
        )
        shutil.rmtree(first.folder, ignore_errors=True)
        if self.hosts is not None:
            return self._on_hosts(first, cell)
        return self._on_nodes(first, cell) or [first]

    def _on_nodes(self, launch: Launch, cell: PlannedCell) -> list[Launch]:
        """The command of each node that a scheduler has given; none where one is enough.

        What is stopped here goes on there, so each cell is by itself.
        """
        nodes = self.cluster.share_out(cell.placement.processes)
        if nodes and not self.one_at_a_time:
            self._separate("processes on other nodes cannot be stopped")
        words = _program(cell).of_host
        return [
            replace(
                launch,
                words=[*self.cluster.prefix(node), *words(place, len(nodes), nodes[0].address, node.processes)],
                host=place,
            )
            for place, node in enumerate(nodes)
        ]

    def _on_hosts(self, launch: Launch, cell: PlannedCell) -> list[Launch]:
        """The command of each host, on cores of its own; one host needs no network."""
        cores, size = cell.placement.cores, cell.world_size
        if size == 1:
            return [replace(launch, words=on_cores(launch.words, cores[0]))]
        if size not in self._networks:
            assert self.hosts is not None, "there are hosts"
            self._networks[size] = EmulatedHosts(self.hosts.model_copy(update={"count": size}))
        found = self._networks[size]
        sockets = dict.fromkeys(SOCKET_VARIABLES, INTERFACE)
        return [
            replace(
                launch,
                words=on_cores(_program(cell).of_host(host, size, found.first), cores[host]),
                environment={**launch.environment, **sockets},
                network=network,
                host=host,
            )
            for host, network in enumerate(found.networks)
        ]

    def _make_room(self, kept: Kept) -> None:
        """End the others where one at a time is to be there, or one more would not fit into memory."""
        most = max(each.cell.placement.processes for each in self._kept.values())
        if self.one_at_a_time or not self._has_room(most):
            for each in self._alive():
                if each is not kept:
                    self._end(each)

    def _has_room(self, processes: int) -> bool:
        """Whether so many ranks more fit into memory, as far as that is known."""
        memory, peak_bytes = psutil.virtual_memory(), max(each.peak_bytes for each in self._kept.values())
        return bool(memory.available > processes * peak_bytes + MEMORY_RESERVE * memory.total)

    def _reply(self, kept: Kept, block: Block) -> Reply:
        program = _program(kept.cell)
        running = kept.running
        told = running.facts() if running is not None else {}
        return Reply(
            step_s=block.step_s,
            samples=program.samples_per_step or block.samples,
            recurring=block.recurring,
            peak_memory_bytes=kept.peak_bytes,
            warnings=notices_of(told, given=program.samples_per_step, troubles=running.troubles() if running else []),
        )


def on_cores(words: Sequence[str], cores: Sequence[int]) -> list[str]:
    """A command that keeps to these cores, as a host of its own has no others."""
    return ["taskset", "--cpu-list", ",".join(map(str, cores)), *words]


def _program(cell: PlannedCell) -> CommandSettings:
    assert cell.settings.program is not None, "a cell of a command"
    return cell.settings.program
