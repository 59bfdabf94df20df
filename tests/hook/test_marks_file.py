"""What the hook writes into the file of a rank, a study reads: whenever it looks, and however much there is."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from worldsize.commands.marks_file import MarksFile, RankStep
from worldsize.hook.marks import PHASES, ROOM_BYTES, WORDS
from worldsize.hook.stream import Stream

ROOM = ROOM_BYTES // WORDS.size
"""Records that a file gets room for at a time."""


@dataclass
class Written:
    """Steps that were written, as their reader must find them: samples, stretches, and bytes of messages."""

    stream: Stream
    steps: list[tuple[int, list[str], list[int]]] = field(default_factory=list)

    def step(self, samples: int, stretches: list[str], messages: list[int]) -> None:
        for name in stretches:
            self.stream.stretch(name)
        for payload in messages:
            token = self.stream.issued("all_reduce", payload, blocking=False, ready=self.stream.ready())
            self.stream.done(token)
        self.steps.append((samples, stretches, messages))
        self.stream.stepped(len(self.steps), samples, 0, interrupted=False)


@contextmanager
def writing(path: Path) -> Iterator[Written]:
    stream = Stream()
    stream.begin()
    stream.open(str(path))
    try:
        yield Written(stream)
    finally:
        stream.close()


def as_written(steps: list[RankStep]) -> list[tuple[int, list[str], list[int]]]:
    return [
        (step.samples, [name for name, _ in step.stretches], [each.payload_bytes for each in step.messages])
        for step in steps
    ]


def moments(step: RankStep) -> list[int]:
    return [step.begin_ns, *(ns for _, ns in step.stretches), step.end_ns]


def test_a_file_of_several_rooms_is_read_as_it_comes(tmp_path: Path) -> None:
    """Rooms end anywhere in a step, and the reader looks at any time."""
    path, drawn = tmp_path / "rank3.77.marks", random.Random(0)
    found = MarksFile(path)
    assert (found.rank, found.pid) == (3, 77)
    taken: list[RankStep] = []
    with writing(path) as written:
        while sum(len(stretches) + 3 * len(sent) + 1 for _, stretches, sent in written.steps) < 3.3 * ROOM:
            stretches = drawn.choices(PHASES, k=drawn.randrange(400))
            written.step(
                drawn.randrange(1, 100), stretches, [drawn.randrange(10**9) for _ in range(drawn.randrange(9))]
            )
            if drawn.random() < 0.05:
                seen = len(found.look())
                found.read()
                assert len(found.steps) == seen, "to look says how many would be read"
                assert len(found.look()) == 0
                taken += found.take(drawn.randrange(seen + 1))
                taken += found.take(seen)
    found.read()
    taken += found.take(len(found.steps))
    assert as_written(taken) == written.steps
    assert path.stat().st_size == 4 * ROOM_BYTES
    ends = np.array([moment for step in taken for moment in moments(step)])
    assert (np.diff(ends) >= 0).all()
    assert all(message.done_ns is not None for step in taken for message in step.messages)

    again = MarksFile(path)
    again.read()
    assert as_written(again.steps) == written.steps, "read at once it is the same"


@pytest.mark.parametrize("rooms", [1, 2.5])
def test_a_step_of_more_marks_than_a_room_is_whole(tmp_path: Path, rooms: float) -> None:
    path = tmp_path / "rank0.1.marks"
    with writing(path) as written:
        written.step(1, ["other"], [])
        written.step(2, ["forward", "other"] * int(rooms * ROOM / 2), [])
        for _ in range(4):
            written.step(3, ["backward"], [5])
    found = MarksFile(path)
    found.read()
    assert as_written(found.steps) == written.steps


def test_a_record_that_is_half_written_is_not_read(tmp_path: Path) -> None:
    """A program may be stopped in the middle of it: its type is written last."""
    path = tmp_path / "rank0.1.marks"
    with writing(path) as written:
        written.step(1, ["other"], [])
        written.step(2, ["other"], [])
    whole = path.read_bytes()
    last = next(at for at in range(0, len(whole), WORDS.size) if whole[at + WORDS.size - 1] == 0)
    for cut in range(1, WORDS.size):
        begun = bytearray(whole)
        begun[last : last + cut] = b"\xff" * cut
        path.write_bytes(begun)
        found = MarksFile(path)
        found.read()
        assert as_written(found.steps) == written.steps
    path.write_bytes(whole)
    found.read()
    assert as_written(found.steps) == written.steps


def test_a_message_that_is_done_in_a_later_step_belongs_to_its_own(tmp_path: Path) -> None:
    path = tmp_path / "rank0.1.marks"
    found = MarksFile(path)
    with writing(path) as written:
        written.step(1, [], [])
        token = written.stream.issued("all_gather_of_some_ranks", 7, blocking=True)
        written.step(1, [], [])
        written.step(1, [], [])
        found.read()
        assert [each.done_ns for each in found.steps[1].messages] == [None]
        written.stream.done(token)
        written.step(1, [], [])
    found.read()
    [message] = found.steps[1].messages
    assert (message.kind, message.blocking, message.payload_bytes) == ("all_gather_of_some_ranks", True, 7)
    assert message.done_ns is not None
    assert found.steps[2].end_ns < message.done_ns < found.steps[3].end_ns
