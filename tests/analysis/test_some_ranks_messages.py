"""Messages of some of the ranks: their time is communication, and no wait, transfer or bandwidth is made of it."""

from pathlib import Path
from typing import Any

import pytest

from worldsize.analysis.communication import communication
from worldsize.analysis.lost_samples import check_samples
from worldsize.analysis.messages import messages
from worldsize.errors import OutputError
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord
from worldsize.results.step_records import SpanRecord, StepRecord

PAIR = "all_reduce_of_some_ranks"


def in_pairs(folder: Path, with_all: bool) -> Cell:
    """Four ranks, a step of 1 s; ranks 2 and 3 reach their message 100 ms after the first pair has ended its own.

    Rank 0 has one more message of its pair before the message of all, which lasts 50 ms from 0.7 s on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(4):
        begin = 0.1 if rank < 2 else 0.3
        spans = [(PAIR, begin, begin + 0.1)]
        if rank == 0:
            spans.append((PAIR, 0.5, 0.6))
        if with_all:
            spans.append(("all_reduce", 0.7, 0.75))
        kinds, issued, done = (list(each) for each in zip(*spans, strict=True))
        which: dict[str, Any] = {"session": 0, "step": 0}
        step = StepRecord(**which, block=0, epoch=0, timed=True, samples=8, loss=None, start_ns=10**9, step_s=1.0)
        span = SpanRecord(**which, kind=kinds, payload_bytes=[10**6] * len(kinds), issued_s=issued, done_s=done)
        for name, record in ((f"rank{rank}.jsonl", step), (f"rank{rank}.spans.jsonl", span)):
            (folder / name).write_text(f"{record.model_dump_json()}\n")
    return Cell(folder, CellRecord(id="c", strategy="custom", world_size=4, batch_size=8, state="complete"))


def test_one_pair_does_not_wait_for_the_other(tmp_path: Path) -> None:
    found = communication(in_pairs(tmp_path, with_all=True))
    assert found is not None
    assert (found.wait_s, found.transfer_s) == pytest.approx((0.0, 0.05))
    assert found.busbw_bytes_per_s == pytest.approx(2 * 3 / 4 * 10**6 / 0.05)
    each = messages(in_pairs(tmp_path, with_all=True))
    assert (each["started_ns"] == each["issued_ns"]).all()
    assert each.filter(kind="all_reduce")["number"].to_list() == [0] * 4


def test_where_one_pair_sends_the_other_need_not(tmp_path: Path) -> None:
    cell = in_pairs(tmp_path, with_all=False)
    (tmp_path / "rank3.spans.jsonl").unlink()
    check_samples(cell)


def test_messages_of_all_must_be_there_of_each_rank(tmp_path: Path) -> None:
    cell = in_pairs(tmp_path, with_all=True)
    (tmp_path / "rank3.spans.jsonl").unlink()
    with pytest.raises(OutputError, match="the messages of 1 of 1 steps of rank 3 are gone"):
        check_samples(cell)


def test_without_a_message_of_all_nothing_is_said_of_waits(tmp_path: Path) -> None:
    assert communication(in_pairs(tmp_path, with_all=False)) is None
