"""The timeline sets the marks of a step, of its messages and of its gradients."""

from dataclasses import dataclass
from threading import Thread

import torch

from worldsize.measure.timeline import Message, Phase, Timeline, read

MICROSECOND = 1_000


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
    marks = read(timeline.take(), timeline.clock)
    assert marks.begin == MICROSECOND
    assert list(marks.ends) == list(Phase)
    assert list(marks.ends.values()) == [end * MICROSECOND for end in (3, 5, 7, 9, 12, 14, 16)]
    assert marks.messages == [Message("all_reduce", 12, True, 10 * MICROSECOND, 11 * MICROSECOND)]
    assert marks.last_gradient is None


def test_a_step_starts_without_the_marks_of_the_one_before() -> None:
    timeline = Timeline(FakeClock())
    run_a_step(timeline)
    first = timeline.take()
    run_a_step(timeline)
    second = timeline.take()
    for step in (first, second):
        assert (len(step.ends), len(step.messages)) == (len(Phase), 1)
    assert read(second, timeline.clock).begin > read(first, timeline.clock).ends[Phase.END]


def test_a_message_that_was_never_done_is_left_out() -> None:
    timeline = Timeline(FakeClock())
    timeline.begin()
    timeline.issued("all_reduce", 12, blocking=False)
    done = timeline.issued("broadcast", 8, blocking=False)
    thread = Thread(target=timeline.done, args=(done,))  # backends tell of the end from threads of their own
    thread.start()
    thread.join()
    timeline.end(Phase.END)
    messages = read(timeline.take(), timeline.clock).messages
    assert [m.kind for m in messages] == ["broadcast"]


def test_a_bucket_is_ready_before_it_is_issued() -> None:
    timeline = Timeline(FakeClock())
    timeline.begin()
    ready = timeline.ready()
    timeline.clock.mark()
    timeline.done(timeline.issued("all_reduce", 12, blocking=False, ready=ready))
    timeline.end(Phase.END)
    (sent,) = read(timeline.take(), timeline.clock).messages
    assert (sent.ready, sent.issued, sent.done) == (2 * MICROSECOND, 4 * MICROSECOND, 5 * MICROSECOND)
    timeline.watching = False
    assert timeline.ready() is None


def test_without_watching_only_begin_and_end_are_marked() -> None:
    clock = FakeClock()
    timeline = Timeline(clock)
    model = torch.nn.Linear(2, 1)
    timeline.watch_parameters(model.parameters())
    timeline.watching = False
    timeline.begin()
    timeline.done(timeline.issued("all_reduce", 12, blocking=True))
    model(torch.ones(1, 2)).backward()
    for phase in Phase:
        timeline.end(phase)
    step = timeline.take()
    assert (step.begin, step.ends) == ("mark 1", {Phase.END: "mark 2"})
    assert (step.messages, step.last_gradient) == ([], None)


def test_the_last_gradient_is_the_last_of_the_trained_parameters() -> None:
    clock = FakeClock()
    timeline = Timeline(clock)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    model[0].bias.requires_grad_(False)
    timeline.watch_parameters(model.parameters())
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
    timeline.watch_parameters(model.parameters())

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
