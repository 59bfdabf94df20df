"""Reads the marks that the hook has written of a rank, while the rank goes on; makes lines of its steps."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worldsize.commands.turn_clock import TurnClock
from worldsize.hook import marks
from worldsize.results.files import append_lines, line_of

RECORD = np.dtype(list(marks.FIELDS))
assert RECORD.itemsize == marks.WORDS.size
READ_BYTES = 2**9 * RECORD.itemsize


@dataclass
class _Message:
    """A message of a step; moments in nanoseconds."""

    kind: str
    payload_bytes: int
    blocking: bool
    issued_ns: int
    ready_ns: int | None = None
    done_ns: int | None = None


@dataclass
class RankStep:
    """A step of a rank as its marks tell it; moments in nanoseconds of the monotonic clock."""

    number: int
    begin_ns: int
    end_ns: int
    samples: int
    interrupted: bool
    unseen: int
    stretches: list[tuple[str, int]]
    """What each was, and its end."""
    messages: list[_Message] = field(default_factory=list)
    garbage: list[tuple[int, int]] = field(default_factory=list)
    """Begin and end of each collection of garbage."""


class MarksFile:
    """The marks of one rank, read on as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._end = 0
        """Of the records that were read, in bytes."""
        self._new: list[NDArray[Any]] = []
        """Those that were not taken apart yet."""
        self._step: RankStep | None = None
        self._open: dict[int, _Message] = {}
        self._ready: dict[int, int] = {}
        self.steps: list[RankStep] = []
        """Those that are over and were not taken yet."""

    @property
    def rank(self) -> int:
        """Which rank it is of."""
        return int(self.path.name.split(".")[0].removeprefix("rank"))

    @property
    def pid(self) -> int:
        """The process that writes it."""
        return int(self.path.name.split(".")[1])

    def facts(self) -> dict[str, Any]:
        """Return what the rank has told of itself; empty where it has not yet."""
        try:
            found: dict[str, Any] = json.loads(self.path.with_suffix(".json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    def look(self) -> NDArray[np.int64]:
        """Return when each step ended of those that are over and not in `steps` yet."""
        self._read_on()
        ends = [new["ns"][new["type"] == marks.STEP] for new in self._new]
        return np.concatenate(ends) if ends else np.array([], np.int64)

    def read(self) -> None:
        """Take the records apart that have come since."""
        self._read_on()
        for new in self._new:
            for ns, value, token, what, flags, kind in new.tolist():
                self._take(kind, flags, what, token, ns, value)
        self._new = []

    def _read_on(self) -> None:
        """Read the records that are there; they end at a zero, or at the end of the file.

        A little at a time: the command runs meanwhile, and most of the file is room for later records.
        """
        with self.path.open("rb") as file:
            file.seek(self._end)
            used = READ_BYTES
            while used == READ_BYTES:
                raw = np.frombuffer(file.read(READ_BYTES), RECORD)
                written = (raw["type"] != 0) & (raw["ns"] != 0)  # by a program that runs: not all may be seen at once
                there = raw if written.all() else raw[: int(np.argmin(written))]
                self._new += [there] if len(there) else []
                used = there.nbytes
                self._end += used

    def _take(self, kind: int, flags: int, what: int, token: int, ns: int, value: int) -> None:
        step = self._step
        if kind == marks.BEGIN:
            self._step = RankStep(0, ns, ns, 0, interrupted=False, unseen=0, stretches=[])
        elif step is None:
            return
        elif kind == marks.STRETCH:
            step.stretches.append((marks.PHASES[what], ns))
        elif kind == marks.READY:
            self._ready[token] = ns
        elif kind == marks.ISSUED:
            name = marks.KINDS[what] + (marks.OF_SOME_RANKS if flags & marks.SOME_RANKS else "")
            message = _Message(name, value, bool(flags & marks.BLOCKING), ns, self._ready.pop(token, None))
            self._open[token] = message
            step.messages.append(message)
        elif kind == marks.DONE:
            if token in self._open:
                self._open.pop(token).done_ns = ns
        elif kind == marks.GARBAGE:
            step.garbage.append((value, ns))
        elif kind == marks.STEP:
            step.number, step.end_ns, step.samples, step.unseen = token, ns, value, what
            step.interrupted = bool(flags & marks.INTERRUPTED)
            self.steps.append(step)
            self._step = RankStep(0, ns, ns, 0, interrupted=False, unseen=0, stretches=[])

    def take(self, count: int) -> list[RankStep]:
        """Return the first steps of those that are over, and forget them here."""
        taken, self.steps = self.steps[:count], self.steps[count:]
        return taken


def lines_of(steps: list[RankStep], clock: TurnClock, place: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], ...]]:
    """Yield for each step the fields of its StepRecord and of its SpanRecord, in time of turns.

    `place` holds session, block, launch, timed, and `first`, the number of the step before the first of this launch.
    """
    if not steps:
        return
    told = _Told(steps, clock)
    for step in steps:
        begin = told(step.begin_ns)
        number = place["first"] + step.number
        stretches = _with_garbage(step)
        line = {
            "session": place["session"],
            "block": place["block"],
            "launch": place["launch"],
            "step": number,
            "epoch": 0,
            "timed": place["timed"],
            "samples": max(1, step.samples),
            "loss": None,
            "start_ns": begin,
            "step_s": (told(step.end_ns) - begin) / 1e9,
        }
        if stretches:
            line["phases"] = [name for name, _ in stretches]
            line["phase_ends_s"] = [(told(ns) - begin) / 1e9 for _, ns in stretches]
        sent = [each for each in step.messages if each.done_ns is not None]
        spans = {
            "session": place["session"],
            "step": number,
            "kind": [each.kind for each in sent],
            "payload_bytes": [each.payload_bytes for each in sent],
            "blocking": [each.blocking for each in sent],
            "ready_s": [None if each.ready_ns is None else (told(each.ready_ns) - begin) / 1e9 for each in sent],
            "issued_s": [(told(each.issued_ns) - begin) / 1e9 for each in sent],
            "done_s": [(told(each.done_ns) - begin) / 1e9 for each in sent],
        }
        yield (line, spans) if sent else (line,)


def write_lines(folder: Path, rank: int, contents: Iterable[tuple[dict[str, Any], ...]]) -> None:
    """Append what `lines_of` yields to the files of a rank, a line each; raises OSError where they do not fit."""
    lines: dict[str, list[bytes]] = {"jsonl": [], "spans.jsonl": []}
    for content in contents:
        for kept, each in zip(lines.values(), content, strict=False):
            kept.append(line_of(each))
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, new in lines.items():
        if new:
            with (folder / f"rank{rank}.{suffix}").open("ab", buffering=0) as file:
                append_lines(file.fileno(), new)


class _Told:
    """All moments of some steps on the clock of their command, told at once: one by one it takes too long."""

    def __init__(self, steps: list[RankStep], clock: TurnClock) -> None:
        moments = {moment for step in steps for moment in _moments(step)}
        ordered = np.array(sorted(moments), np.int64)
        self._told: dict[int, int] = dict(zip(ordered.tolist(), clock.told(ordered).tolist(), strict=True))

    def __call__(self, moment_ns: int | None) -> int:
        assert moment_ns is not None, "a message that is done has its moments"
        return self._told[moment_ns]


def _moments(step: RankStep) -> Iterator[int]:
    yield step.begin_ns
    yield step.end_ns
    yield from (ns for _, ns in step.stretches)
    for each in step.garbage:
        yield from each
    for message in step.messages:
        yield from (ns for ns in (message.issued_ns, message.ready_ns, message.done_ns) if ns is not None)


def _with_garbage(step: RankStep) -> list[tuple[str, int]]:
    """The stretches of a step, those in which garbage was collected cut up."""
    if not step.garbage:
        return step.stretches
    found: list[tuple[str, int]] = []
    waiting = sorted(step.garbage)
    at_ns = step.begin_ns
    for name, end_ns in [*step.stretches, ("other", step.end_ns)]:
        while waiting and waiting[0][0] < end_ns:
            begin_ns, over_ns = waiting.pop(0)
            over_ns = min(over_ns, end_ns)
            found += [(name, max(at_ns, begin_ns)), ("garbage", max(at_ns, over_ns))]
            at_ns = max(at_ns, over_ns)
        found.append((name, max(at_ns, end_ns)))
        at_ns = max(at_ns, end_ns)
    return found
