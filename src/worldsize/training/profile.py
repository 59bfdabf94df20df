"""A few steps of one rank under torch's profiler, written as a Chrome trace (docs/profiles.md).

All ranks run the same steps, whether or not their own profiler works: one that gave up alone would leave the others
waiting for its messages.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from worldsize.analysis.numbers import payload_text
from worldsize.measure.accelerator import wait_for
from worldsize.measure.alignment import Offset
from worldsize.measure.timeline import Message, Phase, Step, Timeline, read
from worldsize.ranks.turns import Turn
from worldsize.results.files import write_whole
from worldsize.results.traces import COLLECTIVE, COMMUNICATION_THREAD, STEP_MARK, ProfiledRank
from worldsize.training.trainer import Trainer

CLOCK_MARK = "worldsize clock"
"""A mark during which the rank's own clock is read: it ties the profiler's clock to it."""
PHASES = {
    Phase.DATA_WAIT: "data wait",
    Phase.COPY: "copy",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.SYNCHRONISE: "synchronise",
    Phase.OPTIMIZER: "optimizer",
}

Event = dict[str, Any]
Profiled = tuple[ProfiledRank | None, str | None]
"""The record of a rank, or why there is none."""


class Marked(Timeline):
    """A timeline whose phases are ranges of torch's profiler as well."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline.clock)
        self._timeline = timeline
        self._range: record_function | None = None

    def begin(self) -> None:
        """A step begins."""
        self._timeline.begin()
        self._open(Phase.DATA_WAIT)

    def end(self, phase: Phase) -> None:
        """A phase ends; the next one begins."""
        self._timeline.end(phase)
        if self._range is not None:
            self._range.__exit__(None, None, None)
            self._range = None
        if phase < Phase.OPTIMIZER:
            self._open(Phase(phase + 1))

    def take(self) -> Step:
        """The marks of the step that has just ended."""
        return self._timeline.take()

    def _open(self, phase: Phase) -> None:
        self._range = record_function(PHASES[phase])
        self._range.__enter__()


class Recording:
    """torch's profiler; a failure in it is noted, and never raised."""

    def __init__(self, device: torch.device) -> None:
        self.problem: str | None = None
        self._device = device
        self._profiler: Any = None

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Note the first failure of what is done in this context."""
        try:
            yield
        except Exception as error:  # any failure: the steps of the other ranks must go on
            first = str(error).strip().split("\n")[0]
            self.problem = self.problem or f"{type(error).__name__}: {first}"

    def start(self) -> None:
        """Begin to record this process."""
        with self.guarded():
            on_gpu = [ProfilerActivity.CUDA] if self._device.type == "cuda" else []
            # All threads: data-parallel computes on threads of its own.
            every = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
            profiler = profile(activities=[ProfilerActivity.CPU, *on_gpu], experimental_config=every)
            profiler.start()
            self._profiler = profiler

    def stop(self) -> None:
        """End the recording."""
        with self.guarded():
            if self._profiler is not None:
                self._profiler.stop()

    def trace(self, scratch: Path) -> dict[str, Any]:
        """What was recorded, by way of a file. Raises what writing and reading it raises."""
        try:
            scratch.parent.mkdir(parents=True, exist_ok=True)
            self._profiler.export_chrome_trace(str(scratch))
            content: dict[str, Any] = json.loads(scratch.read_bytes())
        finally:
            scratch.unlink(missing_ok=True)
        return content


def load_profiler() -> None:
    """Start torch's profiler once, on the thread that loaded torch: on another one its first start complains."""
    recording = Recording(torch.device("cpu"))
    recording.start()
    recording.stop()


def profile_steps(trainer: Trainer, turn: Turn, align: Callable[[], Offset], path: Path) -> Profiled:
    """Run `turn.lead` steps, then `turn.count` steps whose trace is written to `path`; all ranks do it together.

    The caller sees to it that the steps leave nothing behind in training (workload.py). `align` measures the offset
    of the clocks, between the two. Returns the record of the rank, or why there is none.
    """
    recording, timeline = Recording(trainer.device), trainer.timeline
    timeline.watching = True
    recording.start()
    trainer.timeline = Marked(timeline)
    try:
        for _ in range(turn.warmup):
            trainer.step()
            timeline.take()
        timeline.clock.rebase()  # on a GPU this also waits until the lead is over
        offset = align()
        steps = [_step(trainer, number) for number in range(turn.count)]
        wait_for(trainer.device)
    finally:
        trainer.timeline = timeline
        recording.stop()
    rank = None
    with recording.guarded():
        if recording.problem is None:
            content = recording.trace(path.with_name(f".{path.name}"))
            rank = _finish(content, steps, timeline, trainer.world.channel.rank, offset)
            write_whole(path, json.dumps(content | {"traceName": path.name}))
    return (None if recording.problem else rank), recording.problem


def _step(trainer: Trainer, number: int) -> tuple[int, Step]:
    """One marked step: the reading of the clock before it, and the timeline's marks."""
    with record_function(CLOCK_MARK):
        reading = trainer.timeline.clock.now()
    with record_function(f"{STEP_MARK}{number}"):
        trainer.step()
    return reading, trainer.timeline.take()


def _finish(
    content: dict[str, Any], steps: list[tuple[int, Step]], timeline: Timeline, rank: int, offset: Offset
) -> ProfiledRank:
    """Make the trace what readers of it expect; returns how its clock is read."""
    events: list[Event] = content["traceEvents"]
    zero_ns, error_ns = tie([reading for reading, _ in steps], events)
    first = min((e for e in events if _is_step(e)), key=lambda event: float(event["ts"]))
    messages = [(number, read(step, timeline.clock).messages) for number, (_, step) in enumerate(steps)]
    content["traceEvents"] = [
        *(e for e in events if e.get("ph") == "M" or (e.get("ts", 0) >= first["ts"] and e.get("name") != CLOCK_MARK)),
        *message_events(messages, first["pid"], zero_ns),
    ]
    content["distributedInfo"] = {**_group(rank), **content.get("distributedInfo", {})}
    return ProfiledRank(
        rank=rank,
        steps=len(steps),
        zero_ns=zero_ns,
        zero_error_ns=error_ns,
        clock_offset_ns=offset.offset_ns,
        clock_error_ns=offset.error_ns,
    )


def _group(rank: int) -> dict[str, str | int]:
    """What readers of traces want to know of the process group, where torch does not write it itself."""
    if not (dist.is_available() and dist.is_initialized()):
        return {"backend": "none", "rank": rank, "world_size": 1}
    return {"backend": dist.get_backend(), "rank": rank, "world_size": dist.get_world_size()}


def _is_step(event: Event) -> bool:
    return _is_mark(event) and str(event.get("name")).startswith(STEP_MARK)


def _is_mark(event: Event) -> bool:
    """A range of ours; a GPU repeats them on its streams, under another category."""
    return event.get("ph") == "X" and event.get("cat") == "user_annotation"


def tie(readings: list[int], events: list[Event]) -> tuple[int, int]:
    """The rank's clock (ns) at `ts` = 0 and how wrong that can be, from the shortest of the clock marks.

    Raises ValueError if the trace has not one mark for each reading.
    """
    marks = sorted((e for e in events if _is_mark(e) and e["name"] == CLOCK_MARK), key=lambda event: float(event["ts"]))
    if not marks or len(marks) != len(readings):
        raise ValueError(f"the profiler kept {len(marks)} of {len(readings)} clock marks")
    mark, reading = min(zip(marks, readings, strict=True), key=lambda pair: float(pair[0]["dur"]))
    half_us = float(mark["dur"]) / 2
    return reading - round((float(mark["ts"]) + half_us) * 1000), max(1, round(half_us * 1000))


def message_events(messages: list[tuple[int, list[Message]]], process: int, zero_ns: int) -> Iterator[Event]:
    """Messages of the steps as events on threads of their own; two that overlap are on different ones.

    `messages` are those of each step, by its number, on the rank's clock.
    """
    free_from: list[int] = []
    for number, sent in messages:
        for place, message in enumerate(sent):
            lane = next((i for i, end in enumerate(free_from) if end <= message.issued), len(free_from))
            free_from[lane : lane + 1] = [message.done]
            yield {
                "ph": "X",
                "cat": COLLECTIVE,
                "name": f"{message.kind} {payload_text(message.payload_bytes)}",
                "pid": process,
                "tid": COMMUNICATION_THREAD + lane,
                "ts": (message.issued - zero_ns) / 1000,
                "dur": max(0, message.done - message.issued) / 1000,
                "args": {
                    "kind": message.kind,
                    "bytes": message.payload_bytes,
                    "blocking": message.blocking,
                    "step": number,
                    "number": place,
                },
            }
    for lane in range(len(free_from)):
        about = {"ph": "M", "pid": process, "tid": COMMUNICATION_THREAD + lane, "ts": 0}
        yield {**about, "name": "thread_name", "args": {"name": "communication"}}
        yield {**about, "name": "thread_sort_index", "args": {"sort_index": COMMUNICATION_THREAD + lane}}
