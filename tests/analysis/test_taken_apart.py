"""Steps taken apart: by hand, and for any marks against a model that looks at each nanosecond."""

from collections.abc import Sequence
from itertools import accumulate

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldsize.analysis.parts import taken_apart
from worldsize.measure.timeline import Message, Phase
from worldsize.results.records import STEP_PARTS
from worldsize.results.samples import SPAN_SCHEMA, STEP_SCHEMA, TAKEN_APART
from worldsize.results.step_records import ENDS

MICROSECOND = 1_000
S_PER_US = 1e-6

# A step of 100 µs: wait 5, copy 5, forward 20, backward 40, synchronise 10, optimizer 10, bookkeeping 10.
BEGIN = 7 * MICROSECOND
PHASE_ENDS = [BEGIN + end * MICROSECOND for end in (5, 10, 30, 70, 80, 90, 100)]
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
    return {name: round(value / S_PER_US, 6) for name, value in take_apart(BEGIN, PHASE_ENDS, messages, last).items()}


def take_apart(begin: int, ends: list[int], messages: Sequence[Message], last_gradient: int | None) -> dict[str, float]:
    """The parts of one step from its marks (ns), by way of the frames of a cell."""
    found = apart_of(begin, [(end - begin) / 1e9 for end in ends], messages, last_gradient)
    return {name: value for name, value in found.items() if value is not None}


def apart_of(
    begin: int, ends_s: Sequence[float | None], messages: Sequence[Message], last_gradient: int | None
) -> dict[str, float | None]:
    """The same of a step of which some phases were not marked."""
    marks = {
        **dict(zip((*ENDS, "step_s"), ends_s, strict=True)),
        "last_gradient_s": None if last_gradient is None else (last_gradient - begin) / 1e9,
    }
    steps = pl.DataFrame([{"rank": 0, "session": 0, "step": 3, **marks}], schema={"rank": pl.Int64, **STEP_SCHEMA})
    span = {
        "rank": 0,
        "session": 0,
        "step": 3,
        "blocking": [m.blocking for m in messages],
        "issued_s": [(m.issued - begin) / 1e9 for m in messages],
        "done_s": [(m.done - begin) / 1e9 for m in messages],
    }
    spans = pl.DataFrame([span] if messages else [], schema={"rank": pl.Int64, **SPAN_SCHEMA})
    return taken_apart(steps, spans).select("step_s", *TAKEN_APART).row(0, named=True)


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


@settings(deadline=None)
@given(steps())
def test_any_step_agrees_with_a_look_at_each_nanosecond(
    step: tuple[int, list[int], list[Message], int | None],
) -> None:
    found = {name: round(value * 1e9) for name, value in take_apart(*step).items()}
    assert found == nanosecond_by_nanosecond(*step)


@settings(deadline=None)
@given(steps())
def test_the_parts_of_any_step_add_up_and_none_is_negative(
    step: tuple[int, list[int], list[Message], int | None],
) -> None:
    parts = take_apart(*step)
    values = [parts[name] for name in STEP_PARTS]
    assert min(values) >= 0
    assert sum(values) == pytest.approx(parts["step_s"], rel=1e-12)
    assert parts["exposed_sync_s"] + parts["overlapped_s"] == pytest.approx(parts["comm_s"], rel=1e-12)


def nanosecond_by_nanosecond(
    begin: int, ends: list[int], messages: list[Message], last_gradient: int | None
) -> dict[str, int]:
    """method.md §2 and §3, read literally."""
    found = dict.fromkeys(("step_s", *TAKEN_APART), 0)
    names = [*STEP_PARTS[:4], "other_s", "optimizer_s", "other_s"]  # the part of each phase
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


def test_a_phase_that_was_not_marked_is_absent_and_its_time_belongs_to_the_next() -> None:
    """Of a script only some phases may be seen: data wait and copy are then in what comes next."""
    ends_s = [None, None, 30e-6, 70e-6, None, 90e-6, 100e-6]
    found = apart_of(BEGIN, ends_s, [message(71, 74, blocking=True)], None)
    known = {name: round(value / S_PER_US, 6) for name, value in found.items() if value is not None}
    assert known == {
        "step_s": 100,
        "forward_s": 30,
        "backward_s": 40,
        "exposed_sync_s": 3,
        "optimizer_s": 17,
        "other_s": 10,
        "comm_s": 3,
        "overlapped_s": 0,
    }


def test_of_a_step_without_marks_only_its_length_is_known() -> None:
    found = apart_of(BEGIN, [None] * 6 + [100e-6], [message(71, 74, blocking=True)], None)
    assert {name for name, value in found.items() if value is not None} == {"step_s"}


@settings(deadline=None)
@given(st.lists(steps(), min_size=1, max_size=8))
def test_many_steps_at_once_are_each_taken_apart_alone(
    together: list[tuple[int, list[int], list[Message], int | None]],
) -> None:
    rows, spans = [], []
    for number, (begin, ends, messages, last) in enumerate(together):
        key = {"rank": number % 2, "session": 0, "step": number}
        marks = {name: (end - begin) / 1e9 for name, end in zip((*ENDS, "step_s"), ends, strict=True)}
        rows.append({**key, **marks, "last_gradient_s": None if last is None else (last - begin) / 1e9})
        if messages:
            lists = {"issued_s": "issued", "done_s": "done"}
            times = {name: [(getattr(m, mark) - begin) / 1e9 for m in messages] for name, mark in lists.items()}
            spans.append({**key, **times, "blocking": [m.blocking for m in messages]})
    found = taken_apart(
        pl.DataFrame(rows, schema={"rank": pl.Int64, **STEP_SCHEMA}),
        pl.DataFrame(spans, schema={"rank": pl.Int64, **SPAN_SCHEMA}),
    )
    assert found.select("step_s", *TAKEN_APART).rows(named=True) == [take_apart(*step) for step in together]


# Two micro-steps and one optimizer step, in µs: each waits 5, prepares 5, forward 20, backward 30, and after the last
# gradient 10 more; the second synchronises.
MICRO = [("data_wait", 5), ("other", 5), ("forward", 20), ("backward", 30), ("after_backward", 10)]
ACCUMULATED = [*MICRO, *MICRO, ("other", 2), ("optimizer", 8)]
OF_ACCUMULATED = {
    "data_wait_s": 10,
    "forward_s": 40,
    "backward_s": 80,
    "exposed_sync_s": 0,
    "optimizer_s": 8,
    "other_s": 18,
    "comm_s": 0,
    "overlapped_s": 0,
}


def accumulated(
    stretches: Sequence[tuple[str, int]],
    *messages: tuple[int, int, bool],
    awaited: Sequence[float | None] | None = None,
) -> dict[str, float]:
    """The parts (µs) of a step of 156 µs of such stretches, with messages from, to, and whether they block.

    `awaited` says from when on its rank waits for each.
    """
    ends = [end * S_PER_US for end in accumulate(length for _, length in stretches)]
    step = {"rank": 0, "session": 0, "step": 3, "step_s": 156 * S_PER_US}
    line = {**step, "phases": [name for name, _ in stretches], "phase_ends_s": ends}
    span = {
        "rank": 0,
        "session": 0,
        "step": 3,
        "blocking": [blocking for _, _, blocking in messages],
        "issued_s": [issued * S_PER_US for issued, _, _ in messages],
        "done_s": [done * S_PER_US for _, done, _ in messages],
        "awaited_s": awaited and [at and at * S_PER_US for at in awaited],
    }
    # Beside it a step with other stretches, and one of worldsize's own.
    steps = [
        {**step, "step": 2, "phases": ["data_wait"], "phase_ends_s": [1e-6]},
        line,
        {**step, "step": 4, "forward_end_s": 9e-6},
    ]
    found = taken_apart(
        pl.DataFrame(steps, schema={"rank": pl.Int64, **STEP_SCHEMA}),
        pl.DataFrame([span] if messages else [], schema={"rank": pl.Int64, **SPAN_SCHEMA}),
    )
    assert found["forward_s"].to_list()[0] is None
    assert found["data_wait_s"].to_list()[2] is None
    row = found.select(TAKEN_APART).row(1, named=True)
    return {name: round(value / S_PER_US, 6) for name, value in row.items() if value is not None}


def test_stretches_of_one_kind_add_up_and_what_nobody_marked_is_absent() -> None:
    assert accumulated(ACCUMULATED) == OF_ACCUMULATED


def test_a_message_is_hidden_by_the_backward_that_it_lies_beside() -> None:
    # The second backward computes from 100 to 130, then waits to 140, and 2 more pass before the optimizer.
    assert accumulated(ACCUMULATED, (110, 141, False)) == OF_ACCUMULATED | {
        "backward_s": 70,
        "exposed_sync_s": 11,
        "other_s": 17,
        "comm_s": 31,
        "overlapped_s": 20,
    }


def test_a_blocking_message_between_backward_and_optimizer_is_exposed() -> None:
    assert accumulated(ACCUMULATED, (140, 142, True)) == OF_ACCUMULATED | {
        "exposed_sync_s": 2,
        "other_s": 16,
        "comm_s": 2,
    }


@pytest.mark.parametrize(
    ("messages", "awaited", "exposed", "together"),
    [
        # Forward computes from 10 to 30. A message is hidden until its rank waits for it.
        ([(12, 26, False)], [20], 6, 14),
        ([(12, 26, False)], [None], 0, 14),
        # It was done before.
        ([(12, 26, False)], [27], 0, 14),
        # Waited for from the start on, as one that blocks.
        ([(12, 26, False)], [12], 14, 14),
        # One that blocks comes and goes while another is under way, for which the rank waits only later.
        ([(12, 26, False), (13, 15, True)], [20, None], 8, 14),
        ([(12, 26, False), (14, 24, False)], [22, 18], 8, 14),
    ],
)
def test_a_message_that_is_waited_for_is_exposed_from_there(
    messages: list[tuple[int, int, bool]], awaited: list[int | None], exposed: int, together: int
) -> None:
    assert accumulated(ACCUMULATED, *messages, awaited=awaited) == OF_ACCUMULATED | {
        "forward_s": 40 - exposed,
        "exposed_sync_s": exposed,
        "comm_s": together,
        "overlapped_s": together - exposed,
    }


def test_no_part_is_known_where_messages_were_not_seen() -> None:
    assert accumulated([*ACCUMULATED, ("unknown", 0)], (140, 142, True)) == {}
