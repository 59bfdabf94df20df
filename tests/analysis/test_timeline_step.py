"""The picture of a step: parts are laid where they ran, clocks are one, and what cannot be seen is merged."""

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_messages import add_marks, add_messages, with_messages
from made_runs import SHARES, MadeCell, make_run, synchronised
from worldsize.analysis.intervals import length
from worldsize.analysis.parts import FIXED
from worldsize.analysis.timeline_step import (
    MAX_RANKS,
    Sent,
    StepPicture,
    drawn_ranks,
    lay_out,
    merged,
    picture,
    rastered,
)
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run

Stretches = list[tuple[str, int, int]]
PHASES = ("data_wait_s", "copy_s", "forward_s", "backward_s", "other_s", "optimizer_s", "other_s")
"""What the phases of a step are called as parts: synchronising that is no message is *other*."""
LENGTHS = st.lists(st.integers(1, 1000), min_size=7, max_size=7)


def truth(ends: list[int], exposed: Stretches) -> Stretches:
    """The phases, with the stretches of exposed communication taken out."""
    cuts = sorted({0, *ends, *(edge for _, begin, end in exposed for edge in (begin, end))})
    found: Stretches = []
    for begin, end in pairwise(cuts):
        inside = any(low <= begin < high for _, low, high in exposed)
        part = "exposed_sync_s" if inside else PHASES[next(i for i, each in enumerate(ends) if begin < each)]
        found.append((part, begin, end))
    return joined(found)


def joined(stretches: Stretches) -> Stretches:
    """Neighbours of the same part as one."""
    found: Stretches = []
    for part, begin, end in sorted(stretches, key=lambda each: each[1]):
        if found and found[-1][0] == part and found[-1][2] == begin:
            found[-1] = (part, found[-1][1], end)
        else:
            found.append((part, begin, end))
    return found


def laid(ends: list[int], messages: list[Sent], last_gradient: int | None) -> Stretches:
    """The step as it is laid out from what is recorded of it."""
    over = ends[3]
    computed = over if last_gradient is None or last_gradient < ends[2] else min(over, last_gradient)
    return joined(lay_out(0, FIXED, [*ends[:3], computed, *ends[3:]], messages))


def summed(lengths: list[int]) -> list[int]:
    return [sum(lengths[: place + 1]) for place in range(len(lengths))]


@given(LENGTHS, st.lists(st.integers(0, 1000), max_size=12), st.sampled_from(["all_reduce", "gather"]))
def test_messages_that_hold_the_rank_after_backward_are_where_they_were(
    lengths: list[int], edges: list[int], kind: str
) -> None:
    ends = summed(lengths)
    # The synchronisation ends with a message: what it does after its last one cannot be told from the step's end.
    inside = sorted({ends[3] + edge * lengths[4] // 1000 for edge in edges} | {ends[4] - 1, ends[4]})
    spans = list(zip(inside[len(inside) % 2 :: 2], inside[len(inside) % 2 + 1 :: 2], strict=True))
    messages = [(begin, end, True) for begin, end in spans]
    assert laid(ends, messages, None) == truth(ends, [("", *span) for span in spans])


@given(LENGTHS, st.data())
def test_messages_beside_backward_are_hidden_until_the_last_gradient(lengths: list[int], data: st.DataObject) -> None:
    ends = summed([*lengths[:4], 0, *lengths[5:]])
    last = data.draw(st.integers(ends[2], ends[3]))
    spans = [
        tuple(sorted(span)) for span in data.draw(st.lists(st.tuples(*[st.integers(ends[2], ends[3])] * 2), max_size=6))
    ]
    messages = [(begin, end, False) for begin, end in spans if begin < end]
    buffers = (ends[1], ends[1] + lengths[2] // 3)
    messages.append((*buffers, True))
    exposed = [("", *buffers), *(("", max(begin, last), end) for begin, end in spans if end > max(begin, last))]
    assert laid(ends, messages, last) == truth(ends, [each for each in exposed if each[1] < each[2]])


CELL = MadeCell(
    "ddp",
    3,
    step_s=0.6,
    shares=synchronised(SHARES, 0.1),
    comm_s=0.12,
    overlapped_s=0.06,
    noise=0.05,
    rank_spread=0,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tmp_path_factory.mktemp("made"), [CELL, MadeCell("single", 1)])
    add_marks(folder, MadeCell("single", 1))
    add_messages(folder, CELL, count=4, late_s=0.002)
    return folder


@pytest.fixture(scope="module")
def step(run: Path) -> StepPicture:
    found = picture(load_run(run).cells[CELL.id])
    assert found is not None
    return found


def test_the_step_nearest_the_median_is_drawn(run: Path, step: StepPicture) -> None:
    steps = load_run(run).cells[CELL.id].steps.filter("timed", pl.col("rank") == 2)
    assert steps["step_s"].n_unique() > 10  # the steps differ, so there is something to choose
    nearest = steps.sort((pl.col("step_s") - step.median_s).abs())["step"][0]
    assert step.step == nearest
    assert step.step_s == pytest.approx(step.median_s, rel=0.05)


def test_parts_of_a_rank_fill_its_step(step: StepPicture) -> None:
    for rank in step.ranks:
        assert sum(end - begin for _, begin, end in rank.compute) == pytest.approx(rank.end_ns - rank.start_ns, abs=7)
        edges = [edge for _, begin, end in rank.compute for edge in (begin, end)]
        assert edges == sorted(edges)


def test_waiting_for_the_last_rank_is_no_transfer(step: StepPicture) -> None:
    first, last = step.ranks[0], step.ranks[-1]
    assert first.messages == last.messages == 4
    assert length(list(first.wait)) == pytest.approx(2_000_000, abs=2)  # issued 2 ms before the others
    assert length(list(last.wait)) == 0
    assert first.transfer == last.transfer


def test_ranks_are_on_one_clock(tmp_path: Path) -> None:
    folder = make_run(tmp_path, [CELL])
    add_messages(folder, CELL, count=4)
    place = cell_folder(folder, CELL.id) / "rank1.jsonl"
    last = (pl.col("block") != pl.col("block").shift(-1)).fill_null(value=True)  # it has the error at its turn's end
    shifted = pl.read_ndjson(place).with_columns(
        pl.col("start_ns") + 10**15,
        pl.lit(-(10**15)).alias("clock_offset_ns"),
        pl.when(last).then(7000).otherwise(6000).alias("clock_error_ns"),
    )
    before = picture(load_run(folder).cells[CELL.id])
    shifted.write_ndjson(place)
    after = picture(load_run(folder).cells[CELL.id])
    assert before is not None
    assert after is not None
    assert after.ranks == before.ranks
    assert (before.clock_error_s, after.clock_error_s) == (0, 7e-6)


def test_one_worker_has_no_messages_and_a_cell_without_timed_steps_no_picture(run: Path, tmp_path: Path) -> None:
    alone = picture(load_run(run).cells["single-w1-b32"])
    assert alone is not None
    assert [rank.messages for rank in alone.ranks] == [0]
    untimed = make_run(tmp_path, [MadeCell("ddp", 2, blocks=0)])
    assert picture(load_run(untimed).cells["ddp-w2-b32"]) is None


def test_of_many_ranks_the_first_and_the_extremes_are_drawn(tmp_path: Path) -> None:
    many = MadeCell("ddp", 40, blocks=1, block_steps=1, warmup_steps=0)
    found = picture(load_run(with_messages(make_run(tmp_path, [many]), [many])).cells[many.id])
    assert found is not None
    ranks = [rank.rank for rank in found.ranks]
    assert len(ranks) <= MAX_RANKS < found.processes == 40
    assert {0, 39} <= set(ranks)  # of a made cell the last rank is the slowest
    assert ranks == sorted(ranks)


def test_ranks_are_chosen_by_the_work_that_others_wait_for() -> None:
    waits = [0.5, 0.1, 0.4, 0.3, 0.2]
    frame = pl.DataFrame({"rank": range(5), "step_s": [1.0] * 5, "exposed_sync_s": waits})
    assert drawn_ranks(frame, 4) == [0, 1, 3]  # rank 1 waits least, rank 0 most, rank 3 is the median
    assert drawn_ranks(frame, 5) == [0, 1, 2, 3, 4]


def test_neighbours_that_cannot_be_told_apart_are_one() -> None:
    assert merged([(0, 10), (12, 20), (40, 50)], 5) == [(0, 20), (40, 50)]
    many = [(10 * place, 10 * place + 5) for place in range(1000)]
    assert len(merged(many, 1, 200)) <= 200
    assert merged(many, 1, 200)[0][0] == 0
    assert merged(many, 1, 200)[-1][1] == 9995


def test_a_raster_has_what_fills_most_of_each_field() -> None:
    stretches = [("forward_s", 0, 95), ("backward_s", 95, 97), ("forward_s", 97, 130), ("other_s", 130, 200)]
    assert rastered(stretches, 10) == [("forward_s", 0, 130), ("other_s", 130, 200)]
    slivers = [(("exposed_sync_s", "other_s")[i % 2], 3 * i, 3 * i + 2 + i % 2) for i in range(3000)]
    assert len(rastered(slivers, 100)) <= 90 + 1
