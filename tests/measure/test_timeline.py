"""Steps taken apart: by hand, and for any marks against a model that looks at each nanosecond."""

import dataclasses
from dataclasses import dataclass
from itertools import accumulate
from threading import Thread

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from worldsize.measure.timeline import Message, Parts, Phase, Timeline, read, take_apart
from worldsize.results.records import PARTS

MICROSECOND = 1_000
S_PER_US = 1e-6

# A step of 100 µs: wait 5, copy 5, forward 20, backward 40, synchronise 10, optimizer 10, bookkeeping 10.
BEGIN = 7 * MICROSECOND
ENDS = [BEGIN + end * MICROSECOND for end in (5, 10, 30, 70, 80, 90, 100)]
PLAIN = {
    "data_wait_s": 5,
    "copy_s": 5,
    "forward_s": 20,
    "backward_s": 40,
    "exposed_sync_s": 0,
    "optimizer_s": 10,
    "other_s": 20,
    "step_s": 100,
    "comm_s": 0,
    "overlapped_s": 0,
}


def message(issued: int, done: int, *, blocking: bool) -> Message:
    """A message from and to these microseconds of the step."""
    return Message("all_reduce", 4, blocking, BEGIN + issued * MICROSECOND, BEGIN + done * MICROSECOND)


def parts_us(*messages: Message, last_gradient: int | None = None) -> dict[str, float]:
    last = None if last_gradient is None else BEGIN + last_gradient * MICROSECOND
    parts = take_apart(BEGIN, ENDS, list(messages), last)
    return {name: round(value / S_PER_US, 6) for name, value in dataclasses.asdict(parts).items()}


def test_without_messages_the_phases_are_the_parts() -> None:
    assert parts_us() == PLAIN


def test_a_blocking_message_in_forward_is_taken_out_of_forward() -> None:
    assert parts_us(message(12, 15, blocking=True)) == PLAIN | {
        "forward_s": 17,
        "exposed_sync_s": 3,
        "comm_s": 3,
    }


def test_a_message_beside_backward_is_overlapped() -> None:
    assert parts_us(message(40, 60, blocking=False), last_gradient=65) == PLAIN | {
        "comm_s": 20,
        "overlapped_s": 20,
    }


def test_from_the_last_gradient_on_backward_only_waits() -> None:
    assert parts_us(message(50, 70, blocking=False), last_gradient=55) == PLAIN | {
        "backward_s": 25,
        "exposed_sync_s": 15,
        "comm_s": 20,
        "overlapped_s": 5,
    }


def test_without_the_mark_of_a_last_gradient_all_of_backward_computes() -> None:
    assert parts_us(message(50, 70, blocking=False))["overlapped_s"] == 20


def test_a_mark_from_before_backward_is_not_its_last_gradient() -> None:
    assert parts_us(message(50, 70, blocking=False), last_gradient=20)["overlapped_s"] == 20


def test_two_messages_at_once_are_counted_once() -> None:
    one, two = message(40, 60, blocking=False), message(50, 66, blocking=False)
    assert parts_us(one, two, last_gradient=60) == PLAIN | {
        "backward_s": 34,
        "exposed_sync_s": 6,
        "comm_s": 26,
        "overlapped_s": 20,
    }


def test_work_of_the_synchronisation_that_is_no_message_is_other() -> None:
    """The root gathers from 71 to 74, averages until 77, and scatters until 80."""
    assert parts_us(message(71, 74, blocking=True), message(77, 80, blocking=True)) == PLAIN | {
        "exposed_sync_s": 6,
        "other_s": 14,
        "comm_s": 6,
    }


def test_a_blocking_message_hides_no_other() -> None:
    """While a rank is held it computes nothing, so an asynchronous message beside it is exposed as well."""
    held, beside = message(40, 50, blocking=True), message(45, 60, blocking=False)
    assert parts_us(held, beside) == PLAIN | {
        "backward_s": 30,
        "exposed_sync_s": 10,
        "comm_s": 20,
        "overlapped_s": 10,
    }


def test_what_of_a_message_lies_outside_the_step_does_not_count() -> None:
    assert parts_us(message(-5, 3, blocking=True), message(95, 120, blocking=False)) == PLAIN | {
        "data_wait_s": 2,
        "exposed_sync_s": 8,
        "other_s": 15,
        "comm_s": 8,
    }


@st.composite
def steps(draw: st.DrawFn) -> tuple[int, list[int], list[Message], int | None]:
    begin = draw(st.integers(0, 2**50))
    lengths = draw(st.lists(st.integers(0, 12), min_size=len(Phase), max_size=len(Phase)))
    ends = list(accumulate(lengths, initial=begin))[1:]
    moments = st.integers(begin - 5, ends[-1] + 5)
    spans = draw(st.lists(st.tuples(moments, st.integers(0, 20), st.booleans()), max_size=6))
    messages = [Message("broadcast", 4, blocking, start, start + length) for start, length, blocking in spans]
    return begin, ends, messages, draw(st.none() | moments)


@given(steps())
def test_any_step_agrees_with_a_look_at_each_nanosecond(
    step: tuple[int, list[int], list[Message], int | None],
) -> None:
    found = {name: round(value * 1e9) for name, value in dataclasses.asdict(take_apart(*step)).items()}
    assert found == nanosecond_by_nanosecond(*step)


@given(steps())
def test_the_parts_of_any_step_add_up_and_none_is_negative(
    step: tuple[int, list[int], list[Message], int | None],
) -> None:
    parts = take_apart(*step)
    values = [getattr(parts, name) for name in PARTS]
    assert min(values) >= 0
    assert sum(values) == pytest.approx(parts.step_s, rel=1e-12)
    assert parts.exposed_sync_s + parts.overlapped_s == pytest.approx(parts.comm_s, rel=1e-12)


def nanosecond_by_nanosecond(
    begin: int, ends: list[int], messages: list[Message], last_gradient: int | None
) -> dict[str, int]:
    """method.md §2 and §3, read literally."""
    found = dict.fromkeys((field.name for field in dataclasses.fields(Parts)), 0)
    names = [*PARTS[:4], "other_s", "optimizer_s", "other_s"]  # the part of each phase
    backward_begins = ends[Phase.FORWARD]
    for now in range(begin, ends[-1]):
        phase = Phase(next(index for index, end in enumerate(ends) if now < end))
        sending = any(m.issued <= now < m.done for m in messages)
        held = any(m.issued <= now < m.done for m in messages if m.blocking)
        waits = last_gradient is not None and backward_begins <= last_gradient <= now
        computes = phase in (Phase.FORWARD, Phase.OPTIMIZER) or (phase is Phase.BACKWARD and not waits)
        exposed = sending and (held or not computes)
        found["exposed_sync_s" if exposed else names[phase]] += 1
        found["step_s"] += 1
        found["comm_s"] += sending
        found["overlapped_s"] += sending and not exposed
    return found


@dataclass
class FakeClock:
    """Each mark is the next whole number; it is read in nanoseconds, so a mark alone tells no time."""

    marks: int = 0
    marks_are_dear = False

    def mark(self) -> str:
        self.marks += 1
        return f"mark {self.marks}"

    def passed(self, mark: str) -> bool:
        return True

    def read(self, mark: str) -> int:
        return int(mark.removeprefix("mark ")) * MICROSECOND

    def now(self) -> int:
        raise AssertionError("a timeline sets marks")

    def rebase(self) -> None:
        raise AssertionError("a timeline does not rebase its clock")

    def astray(self) -> tuple[int, int]:
        raise AssertionError("a timeline does not align its clock")


def run_a_step(timeline: Timeline) -> None:
    """A step in which every phase is two marks long, and a message fills all of SYNCHRONISE but its ends."""
    timeline.begin()
    for phase in Phase:
        if phase is Phase.SYNCHRONISE:
            timeline.done(timeline.issued("all_reduce", 12, blocking=True))
        else:
            timeline.clock.mark()
        timeline.end(phase)


def test_a_timeline_marks_a_step_and_its_messages() -> None:
    timeline = Timeline(FakeClock())
    run_a_step(timeline)
    begin, ends, messages, last = read(timeline.take(), timeline.clock)
    assert begin == MICROSECOND
    assert ends == [end * MICROSECOND for end in (3, 5, 7, 9, 12, 14, 16)]
    assert messages == [Message("all_reduce", 12, True, 10 * MICROSECOND, 11 * MICROSECOND)]
    assert last is None


def test_a_step_starts_without_the_marks_of_the_one_before() -> None:
    timeline = Timeline(FakeClock())
    run_a_step(timeline)
    first = timeline.take()
    run_a_step(timeline)
    second = timeline.take()
    for step in (first, second):
        assert (len(step.ends), len(step.messages)) == (len(Phase), 1)
    assert read(second, timeline.clock)[0] > read(first, timeline.clock)[1][-1]


def test_a_message_that_was_never_done_is_left_out() -> None:
    timeline = Timeline(FakeClock())
    timeline.begin()
    timeline.issued("all_reduce", 12, blocking=False)
    done = timeline.issued("broadcast", 8, blocking=False)
    thread = Thread(target=timeline.done, args=(done,))  # backends tell of the end from threads of their own
    thread.start()
    thread.join()
    timeline.end(Phase.END)
    messages = read(timeline.take(), timeline.clock)[2]
    assert [m.kind for m in messages] == ["broadcast"]


def test_without_watching_only_begin_and_end_are_marked() -> None:
    clock = FakeClock()
    timeline = Timeline(clock)
    model = torch.nn.Linear(2, 1)
    timeline.watch_gradients(model)
    timeline.watching = False
    timeline.begin()
    timeline.done(timeline.issued("all_reduce", 12, blocking=True))
    model(torch.ones(1, 2)).backward()
    for phase in Phase:
        timeline.end(phase)
    step = timeline.take()
    assert (step.begin, step.ends) == ("mark 1", ["mark 2"])
    assert (step.messages, step.last_gradient) == ([], None)


def test_the_last_gradient_is_the_last_of_the_trained_parameters() -> None:
    clock = FakeClock()
    timeline = Timeline(clock)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    model[0].bias.requires_grad_(False)
    timeline.watch_gradients(model)
    timeline.begin()
    model(torch.ones(1, 2)).sum().backward()
    assert timeline.take().last_gradient == f"mark {1 + 3}"  # begin, then one mark per gradient
    timeline.begin()
    assert timeline.take().last_gradient is None


def test_where_marks_are_dear_only_the_last_gradient_gets_one() -> None:
    """Events for each of thousands of parameters would be seen in the step; the last of them is all that is needed."""
    clock = FakeClock()
    clock.marks_are_dear = True
    timeline = Timeline(clock)
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(3)))
    timeline.watch_gradients(model)

    def step(layers: int) -> tuple[object, int]:
        begun = clock.marks
        timeline.begin()
        model[:layers](torch.ones(1, 2)).sum().backward()
        return timeline.take().last_gradient, clock.marks - begun

    assert step(3) == ("mark 7", 7), "which is the last is not known yet: begin, and one for each of six"
    assert step(3) == ("mark 9", 2), "begin, and the last one"
    timeline.watching = False
    model(torch.ones(1, 2)).sum().backward()  # of a proof between two steps, which counts for none
    timeline.watching = True
    assert step(3) == ("mark 11", 2)
    assert step(2) == (None, 1), "a layer less was used: the sixth gradient never came"
    assert step(2) == ("mark 14", 2)
    assert step(3) == ("mark 18", 4), "all that may be the last: the fourth, the fifth, the sixth"
