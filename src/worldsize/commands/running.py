"""A launch of a command that takes turns: its tree, its time in turn, and the steps that its ranks make."""

import itertools
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from worldsize.commands.marks_file import MarksFile, RankStep, lines_of, write_lines
from worldsize.commands.processes import has_marker
from worldsize.commands.tree import Launch, StartError, Tree
from worldsize.commands.turn_clock import TurnClock
from worldsize.hook.marks import ASK

LOOK_S = 0.005
"""Between two looks at how many steps were made, at least."""
SELDOM_S = 0.1
"""The same at most."""
TYPICAL_STEPS = 50
"""Steps that tell how long one takes."""
STACK_S = 2.0
"""How long a process may take to leave its stack."""
RECURRING = frozenset(("evaluation", "checkpoint", "restart"))
"""Stretches that many programs have in every k-th step, by their names in hook.marks.PHASES."""
IDLE_S = 1.0
"""How often somebody is told that a turn goes on."""


@dataclass
class Block:
    """The steps that all ranks have made in a turn."""

    step_s: list[float]
    """Of the world: from the end of a step on its last rank to that of the next, in time of turns."""
    samples: int
    """Of the first rank in most of its steps."""
    over: bool
    """Whether the command has ended."""
    recurring: list[int]
    """Periods in steps: of evaluations, checkpoints and restarts of loaders, of those that came twice."""
    unseen: int
    """Collectives that were not seen."""


@dataclass
class RunningCommand:
    """A command that was started, and is stopped between its turns."""

    launches: Sequence[Launch]
    """One, or one on each of several hosts."""
    place: Path
    """The folder of its cell, where the lines of its ranks go."""
    session: int
    number: int
    """Which launch of its cell it is."""
    first_step: int
    """Steps of the cell before it."""
    clock: TurnClock = field(default_factory=TurnClock)
    ranks: dict[int, MarksFile] = field(default_factory=dict)
    steps: int = 0
    """Those that all ranks have made."""
    releases_locks: bool = True
    """Whether it was stopped each time without a file lock in its hand."""

    def __post_init__(self) -> None:
        self._end_ns: int | None = None
        self._goes_on = True
        self._occurrences: dict[str, set[int]] = {}
        """Each of RECURRING → numbers of the steps that had it."""
        self._waiting: dict[int, list[tuple[RankStep, dict[str, Any]]]] = {}
        self.clock.begin(time.monotonic_ns())
        self.trees: list[Tree] = []
        try:
            for launch in self.launches:
                self.trees.append(Tree(launch))
        except StartError:
            self._end_trees()
            raise
        self.running = True

    @property
    def marks(self) -> Path:
        """Where the hook writes."""
        return self.launches[0].marks

    @property
    def status(self) -> int | None:
        """How it has ended: the exit status, or minus the signal, of the first that failed; None while it goes on."""
        ended = [tree.status for tree in self.trees if tree.over()]
        failed = next((status for status in ended if status), None)
        if failed is None and len(ended) < len(self.trees):
            return None
        return failed or 0

    def _end_trees(self) -> None:
        for tree in self.trees:
            tree.end()

    def go_on(self) -> None:
        """Let it go on."""
        now_ns = time.monotonic_ns()  # before it goes on: it may end a step before we are there again
        for tree in self.trees:
            tree.go_on(self._pids())
        self.clock.begin(now_ns)
        self.running = True

    def stop(self) -> None:
        """Stop it; its turn is over."""
        for tree in self.trees:
            tree.halt(self._pids())
        self.clock.end(time.monotonic_ns())  # all ranks are stopped: none has ended a step after that
        for tree in self.trees:
            self.releases_locks &= tree.stop()
        self.running = False

    def _pids(self) -> list[int]:
        return [each.pid for each in self.ranks.values()]

    def find_ranks(self) -> int:
        """Look which ranks have made a step; return how many there are to be, 0 while that is not known."""
        for path in self.marks.glob("*.marks"):
            found = MarksFile(path)
            self.ranks.setdefault(found.rank, found)
        facts = next((facts for each in self.ranks.values() if (facts := each.facts())), {})
        return int(facts.get("world_size", 0))

    def wait_for_first_step(self, limit_s: float, idle: Callable[[], None]) -> bool:
        """Wait until each rank has made a step, or the command is over; return False where the time is up first."""
        return self._wait(self.stepped, limit_s, lambda: SELDOM_S / 2, idle)

    def stepped(self) -> bool:
        """Return whether each rank has ended its first step, and then told of itself."""
        wanted = self.find_ranks()
        return 0 < wanted <= sum(len(each.look()) > 0 and each.facts() != {} for each in self.ranks.values())

    def wait_for_steps(self, count: int, limit_s: float, idle: Callable[[], None], *, about_s: float = inf) -> bool:
        """Wait until all ranks have made `count` steps more, or the command is over; False where the time is up.

        Fewer steps are enough where they have taken longer than `about_s`. It returns soon after a step has ended: a
        wait of the program that spans a stop would be too short.
        """
        begun_s = time.monotonic()
        made, enough_made, each_s = 0, count, 0.0

        def enough() -> bool:
            nonlocal made, enough_made, each_s
            ends = [each.look() for each in self.ranks.values()]
            made = min(
                (len(each.steps) + len(new) for each, new in zip(self.ranks.values(), ends, strict=True)), default=0
            )
            if ends and len(ends[0]) > 1:  # most steps are shorter than the mean where some evaluate
                each_s = float(np.median(np.diff(ends[0][-TYPICAL_STEPS:]))) / 1e9
            if time.monotonic() > begun_s + about_s:
                enough_made = min(enough_made, made + 1)
            return made >= enough_made

        def pause_s() -> float:
            return min(SELDOM_S, max(LOOK_S, (enough_made - made) * each_s / 2))

        return self._wait(enough, limit_s, pause_s, idle)

    def _wait(
        self, enough: Callable[[], bool], limit_s: float, pause_s: Callable[[], float], idle: Callable[[], None]
    ) -> bool:
        until_s = told_s = time.monotonic()
        until_s += limit_s
        while not enough():
            if self.status is not None:
                return True
            now_s = time.monotonic()
            if now_s > until_s:
                return False
            if now_s - told_s > IDLE_S:
                idle()
                told_s = now_s
            time.sleep(pause_s())
        return True

    def block(self, number: int, *, wanted: int, timed: bool) -> Block:
        """Take the steps that all ranks have made since the last time, and write their lines.

        These are `wanted`, or a multiple of them where steps are very short, so that blocks are whole periods; what was
        made beyond that before the command was stopped is of the next block.
        """
        for each in self.ranks.values():
            each.read()
        count = min((len(each.steps) for each in self.ranks.values()), default=0)
        if wanted < count:
            count -= count % wanted
        taken = {rank: each.take(count) for rank, each in self.ranks.items()}
        place = {
            "session": self.session,
            "block": number,
            "launch": self.number,
            "timed": timed,
            "first": self.first_step,
        }
        for rank, steps in taken.items():
            self._write(rank, steps, place)
        self.steps += count
        for steps in taken.values():
            self._note_occurrences(steps)
        sizes = [step.samples for step in taken[min(taken)]] if taken else []
        return Block(
            step_s=self._world_steps(list(taken.values())),
            samples=max(set(sizes), key=sizes.count) if sizes else 1,
            over=self.status is not None,
            recurring=[every for found in self._occurrences.values() if (every := period_of(found))],
            unseen=sum(step.unseen for steps in taken.values() for step in steps),
        )

    def _note_occurrences(self, steps: Sequence[RankStep]) -> None:
        for step in steps:
            for name in RECURRING & {name for name, _ in step.stretches}:
                self._occurrences.setdefault(name, set()).add(step.number)

    def _world_steps(self, taken: Sequence[list[RankStep]]) -> list[float]:
        if not taken or not taken[0]:
            return []
        ends = np.array([[step.end_ns for step in steps] for steps in taken], np.int64).max(axis=0)
        begin_ns = self._end_ns or max(steps[0].begin_ns for steps in taken)
        self._end_ns = int(ends[-1])
        told = self.clock.told(np.concatenate([[begin_ns], ends]))
        return [float(each) for each in np.maximum(np.diff(told), 1) / 1e9]

    def _write(self, rank: int, steps: Sequence[RankStep], place: dict[str, Any]) -> None:
        """Append the lines of steps whose messages are done; one may end in the next turn."""
        waiting = [*self._waiting.get(rank, []), *((step, place) for step in steps)]
        whole = len(waiting)
        while self._goes_on and whole and any(each.done_ns is None for each in waiting[whole - 1][0].messages):
            whole -= 1
        self._waiting[rank] = waiting[whole:]
        for _, group in itertools.groupby(waiting[:whole], key=lambda each: each[1]["block"]):
            steps_of, where = zip(*group, strict=True)
            write_lines(self.place, rank, lines_of(list(steps_of), self.clock, where[0]))

    def facts(self) -> dict[int, dict[str, Any]]:
        """Return what each rank has told of itself, by rank."""
        return {rank: found for rank, each in sorted(self.ranks.items()) if (found := each.facts())}

    def peak_bytes(self) -> int:
        """Return the largest resident memory of a rank so far (proc(5), VmHWM)."""
        return max((_peak_bytes(pid) for pid in self._pids()), default=0)

    def stacks(self) -> dict[int, str]:
        """Return the stack of the main thread of each process that has torch, by its number, while it runs."""
        files = {int(each.suffix[1:]): each for each in self.marks.glob("stack.*")}
        before = {pid: file.stat().st_size for pid, file in files.items()}
        for pid in files:
            with suppress(OSError):
                if has_marker(pid, self.launches[0].marker):
                    os.kill(pid, ASK)
        until_s = time.monotonic() + STACK_S
        while time.monotonic() < until_s and any(file.stat().st_size == before[pid] for pid, file in files.items()):
            time.sleep(0.02)
        return {pid: file.read_text(errors="replace")[before[pid] :] for pid, file in files.items()}

    def troubles(self) -> list[str]:
        """Return what went wrong in the hook."""
        return [line for each in self.marks.glob("trouble.*") for line in each.read_text().splitlines()]

    def end(self) -> None:
        """End it; the lines of what it has made are written."""
        if self.running:
            self.clock.end(time.monotonic_ns())
            self.running = False
        self._end_trees()
        self._goes_on = False
        for rank in self.ranks:
            self._write(rank, [], {})


def period_of(occurrences: Collection[int]) -> int:
    """Return the usual distance between steps, by their numbers; 0 for fewer than two."""
    gaps = [int(gap) for gap in np.diff(sorted(occurrences))]
    return max(set(gaps), key=gaps.count) if gaps else 0


def _peak_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    found = next((line for line in text.splitlines() if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(found.split()[1]) * 1024
