"""Writes the samples of one rank, a line a step: a kill −9 loses at most a step, or a second of short ones."""

import contextlib
import dataclasses
import math
import os
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from worldsize.errors import LossNotFiniteError, OutputError
from worldsize.measure.alignment import Offset
from worldsize.measure.clocks import Clock
from worldsize.measure.timeline import Marks, Phase, Step, read
from worldsize.results.files import append_lines, line_of
from worldsize.results.step_records import ENDS

Span = tuple[int, int]
"""Start and end of a step, in nanoseconds of the rank's clock."""
LONG_S = 0.02
"""Steps at least as long are written at once: writing one by itself takes up to 0.2 ms, 1 % of that."""
EVERY_S = 1.0
"""Shorter ones are kept until the last of their turn, but no longer than this."""
AT_ONCE = 24
"""So many kept steps are made lines at a time. A line is no object that Python's garbage collector looks at. The marks
of a second of short steps were 15,000 that it does, and for their sake it searched all objects of a loop now and then:
0.2 to 0.3 s each time, up to 75 µs a step of 0.6 ms (torch alone has 300,000 objects)."""

ENDS_OF = tuple(zip(Phase, ENDS, strict=False))
"""Each phase of a step, and the field with its end; that of the step itself is no field."""


@dataclasses.dataclass
class Pending:
    """A step whose marks, or whose loss, the device may not have reached yet."""

    step: Step
    loss: Tensor | None
    session: int
    block: int
    number: int
    epoch: int
    timed: bool
    samples: int
    launch: int = 0
    right: Tensor | None = None
    """How many of them were classified right."""
    synchronised: bool = True
    offset: Offset = dataclasses.field(default_factory=Offset)
    reference_s: float | None = None
    """How long the short computation after it took."""
    held: bool = False
    """Whether it waits for the offset at the end of its turn (method.md §3)."""


class Recorder:
    """Appends step and span records of one rank to its files in the cell's folder."""

    def __init__(self, folder: Path, rank: int, clock: Clock, *, every_s: float = EVERY_S) -> None:
        self.folder = folder
        self.clock = clock
        self.rank = rank
        self.every_s = every_s
        self._pending: deque[Pending] = deque()
        self._step_lines: list[bytes] = []
        self._span_lines: list[bytes] = []
        self._wrote_s = time.monotonic()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _end_last_line(folder / f"rank{rank}.jsonl")
            _end_last_line(folder / f"rank{rank}.spans.jsonl")
            self._steps = os.open(folder / f"rank{rank}.jsonl", flags, 0o644)
            self._spans = os.open(folder / f"rank{rank}.spans.jsonl", flags, 0o644)
        except OSError as error:
            raise OutputError(f"cannot write in {folder}: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        try:
            with contextlib.suppress(Exception):  # of a run that failed, too, what can be read is kept
                self._release(None)
                self._read_and_write(wait=False)
        finally:
            os.close(self._steps)
            os.close(self._spans)

    def add(self, pending: Pending) -> list[Span]:
        """Take a step that has just been run; now and then read and write those that the device has passed.

        Returns start and end (ns) of the steps that were read.
        """
        self._pending.append(pending)
        waiting, since_s = len(self._pending) + len(self._step_lines), time.monotonic() - self._wrote_s
        if since_s >= min(self.every_s, LONG_S * waiting):
            return self._read_and_write(wait=False)
        return self._read(wait=False) if len(self._pending) >= AT_ONCE else []

    def flush(self, end: Offset | None = None) -> list[Span]:
        """Write all that is pending; waits for the device. `end` is the offset at the end of the turn."""
        self._release(end)
        return self._read_and_write(wait=True)

    def _release(self, end: Offset | None) -> None:
        for pending in self._pending:
            if pending.held:
                pending.held, pending.offset = False, end or pending.offset

    def _read_and_write(self, *, wait: bool) -> list[Span]:
        try:
            return self._read(wait=wait)
        finally:
            self._write()

    def _read(self, *, wait: bool) -> list[Span]:
        """Make lines of the steps that the device has passed; `wait` for it, or only look."""
        spans: list[Span] = []
        # In order, so behind a step that waits for its offset: lines are read as the steps were run.
        while self._pending and not self._pending[0].held:
            if not wait and not self.clock.passed(self._pending[0].step.end):
                break
            pending = self._pending.popleft()
            marks = read(pending.step, self.clock)
            loss = None if pending.loss is None else float(pending.loss)
            self._step_lines.append(line_of(_step_values(pending, marks, loss)))
            if marks.messages and pending.synchronised:
                self._span_lines.append(line_of(_span_values(pending, marks)))
            spans.append((marks.begin, marks.ends[Phase.END]))
            if loss is not None and not math.isfinite(loss):
                raise LossNotFiniteError(
                    f"the loss became {loss} at step {pending.number} on rank {self.rank}\n"
                    "Lower --learning-rate, or look for a division by zero in the model or the data."
                )
        return spans

    def _write(self) -> None:
        """Hand all lines to the system: a kill −9 leaves them there, only a loss of power takes what was not synced."""
        spans, steps, self._span_lines, self._step_lines = self._span_lines, self._step_lines, [], []
        self._wrote_s = time.monotonic()
        try:
            append_lines(self._spans, spans)  # first: a step without its messages would seem to have none
            append_lines(self._steps, steps)
        except OSError as error:
            message = f"rank {self.rank} cannot write its steps in {self.folder}: {error.strerror}"
            raise OutputError(
                f"{message}\nFree space there, or make the folder writable, then resume with --resume."
            ) from None


def _after(begin_ns: int, point_ns: int | None) -> float | None:
    return None if point_ns is None else (point_ns - begin_ns) / 1e9


def _step_values(p: Pending, marks: Marks, loss: float | None) -> dict[str, Any]:
    """A StepRecord as its fields, in their order: a line takes 4 µs in place of 7, as nothing of our own is checked."""
    begin, ends = marks.begin, marks.ends
    values: dict[str, Any] = {
        "session": p.session,
        "block": p.block,
        "launch": p.launch,
        "step": p.number,
        "epoch": p.epoch,
        "timed": p.timed,
        "samples": p.samples,
        "loss": None if loss is None or not math.isfinite(loss) else loss,
        "accuracy": None if p.right is None else int(p.right) / p.samples,
        "start_ns": begin,
        "step_s": (ends[Phase.END] - begin) / 1e9,
    }
    values |= {name: _after(begin, ends.get(phase)) for phase, name in ENDS_OF}
    values["last_gradient_s"] = _after(begin, marks.last_gradient)
    if marks.phases:
        values["phases"] = [name for name, _ in marks.phases]
        values["phase_ends_s"] = [(end - begin) / 1e9 for _, end in marks.phases]
    values["synchronised"] = p.synchronised
    values["clock_offset_ns"] = p.offset.offset_ns
    values["clock_error_ns"] = p.offset.error_ns
    values["reference_s"] = p.reference_s
    return values


def _span_values(p: Pending, marks: Marks) -> dict[str, Any]:
    """A SpanRecord in the same way."""
    begin, messages = marks.begin, marks.messages
    values: dict[str, Any] = {
        "session": p.session,
        "step": p.number,
        "kind": [m.kind for m in messages],
        "payload_bytes": [m.payload_bytes for m in messages],
        "blocking": [m.blocking for m in messages],
        "ready_s": [_after(begin, m.ready) for m in messages],
    }
    if any(m.awaited is not None for m in messages):
        values["awaited_s"] = [_after(begin, m.awaited) for m in messages]
    values["issued_s"] = [(m.issued - begin) / 1e9 for m in messages]
    values["done_s"] = [(m.done - begin) / 1e9 for m in messages]
    return values


def _end_last_line(path: Path) -> None:
    """Cut off a line that a crash of an earlier session left unfinished, so that the next one starts clean."""
    if path.exists():
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)
