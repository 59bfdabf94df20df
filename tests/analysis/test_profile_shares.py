"""Shares of compute and communication from traces whose truth is known."""

import json
from pathlib import Path
from typing import Any

import pytest

from made_runs import MadeCell, make_run, synchronised
from made_traces import event, message, rank_of, trace, write_traces
from worldsize.analysis.profile import MAX_RANKS, Shares, profile_of, shares
from worldsize.analysis.study import analyse
from worldsize.errors import OutputError
from worldsize.report.profile import merged_trace
from worldsize.results.folder import load_run
from worldsize.results.traces import Trace, profile_folder, read_trace

GPU = {"pid": 0, "tid": 7}


def read(folder: Path, *events: dict[str, Any]) -> Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps(trace(*events)))
    return read_trace(path)


def of(folder: Path, *events: dict[str, Any]) -> tuple[float, ...]:
    found = shares(read(folder, *events))
    return tuple(round(share, 9) for share in (found.compute, found.communication, found.overlapped, found.exposed))


def test_compute_is_the_union_of_operators_and_overlap_what_it_has_in_common_with_messages(tmp_path: Path) -> None:
    assert of(
        tmp_path,
        event("ProfilerStep#0", 0, 100, cat="user_annotation"),
        event("aten::conv2d", 10, 30),
        event("aten::mkldnn_convolution", 12, 20),  # inside the one before
        event("aten::add", 30, 20),  # overlaps it
        message("all_reduce 4 B", 40, 40),
    ) == (0.4, 0.4, 0.1, 0.3)


def test_only_what_lies_in_a_step_counts_and_steps_are_averaged(tmp_path: Path) -> None:
    found = shares(
        read(
            tmp_path,
            event("ProfilerStep#1", 100, 100, cat="user_annotation"),
            event("ProfilerStep#2", 300, 300, cat="user_annotation"),
            event("aten::mm", 0, 150),  # half a step in the first one
            event("aten::mm", 550, 100),
            message("all_reduce 4 B", 190, 120),
        )
    )
    assert found.step_s == pytest.approx(200e-6)
    assert found.compute == pytest.approx((50 + 50) / 400)
    assert found.communication == pytest.approx((10 + 10) / 400)
    assert found.overlapped == 0


def test_while_a_blocking_message_is_on_its_way_nothing_is_computed(tmp_path: Path) -> None:
    step = event("ProfilerStep#0", 0, 100, cat="user_annotation")
    packing = event("aten::cat", 40, 10)
    assert of(tmp_path, step, packing, message("broadcast 8 B", 30, 40, blocking=True)) == (0, 0.4, 0, 0.4)
    assert of(tmp_path, step, packing, message("broadcast 8 B", 30, 40, blocking=False)) == (0.1, 0.4, 0.1, 0.3)


def test_operators_that_hand_over_messages_and_threads_of_the_backend_do_not_compute(tmp_path: Path) -> None:
    assert of(
        tmp_path,
        event("ProfilerStep#0", 0, 100, cat="user_annotation"),
        event("autograd::engine::evaluate_function: AccumulateGrad", 5, 60),
        event("c10d::allreduce_", 10, 50),
        event("gloo:all_reduce", 20, 30, cat="user_annotation", tid=99),
        event("aten::add_", 25, 10, tid=99),
    ) == (0.1, 0.3, 0, 0.3)


def test_a_message_that_escaped_the_timeline_is_seen_by_what_the_backend_says(tmp_path: Path) -> None:
    assert of(
        tmp_path,
        event("ProfilerStep#0", 0, 100, cat="user_annotation"),
        message("all_reduce 4 B", 10, 20),
        event("gloo:all_reduce", 15, 10, cat="user_annotation", tid=99),
        event("gloo:gather", 60, 10, cat="user_annotation", tid=99),
    ) == (0, 0.3, 0, 0.3)


def test_on_a_gpu_kernels_compute_and_those_of_nccl_communicate(tmp_path: Path) -> None:
    """The steps end with the last kernel, long after the host asked for it."""
    assert of(
        tmp_path,
        event("ProfilerStep#0", 0, 40, cat="user_annotation"),
        event("ProfilerStep#1", 50, 30, cat="user_annotation"),
        event("ProfilerStep#0", 20, 70, cat="gpu_user_annotation", **GPU),
        event("aten::mm", 0, 80),
        event("gemm", 100, 50, cat="kernel", **GPU),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 140, 60, cat="kernel", pid=0, tid=20),
    ) == (0.25, 0.3, 0.05, 0.25)


def test_a_trace_without_steps_has_no_shares(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no step is marked"):
        shares(read(tmp_path, event("aten::mm", 0, 10)))


def test_the_profile_stands_beside_the_timed_steps(tmp_path: Path) -> None:
    shares_of_step = synchronised({"forward_s": 0.4, "backward_s": 0.5, "data_wait_s": 0.1}, 0.2)
    cell = MadeCell("ddp", 2, step_s=0.5, shares=shares_of_step, comm_s=0.2, overlapped_s=0.1, rank_spread=0)
    run = make_run(tmp_path, [MadeCell("single", 1), cell])
    write_traces(run / "cells" / cell.id, [rank_of(0), rank_of(1)])
    analysis = {each.id: each for each in analyse(load_run(run)).cells}
    assert analysis["single-w1-b32"].profile is None
    found = analysis[cell.id].profile
    assert found is not None
    assert [rank.rank for rank in found.ranks] == [0, 1]
    for rank in found.ranks:
        assert rank.profile == Shares(step_s=100e-6, compute=0.5, communication=0.4, overlapped=0.2)
        assert rank.timeline is not None
        assert rank.timeline.step_s == pytest.approx(0.5)
        assert rank.timeline.compute == pytest.approx(0.72)
        assert rank.timeline.communication == pytest.approx(0.4)
        assert rank.timeline.exposed == pytest.approx(0.2)


BROKEN = {
    "cut": '{"traceEvents": [{"ph": "X", ',
    "empty": "",
    "no object": "[1, 2]",
    "no list": '{"traceEvents": {"a": 1}}',
    "not a number": '{"traceEvents": [], "baseTimeNanoseconds": NaN}',
    "deep": "[" * 200_000,
    "bytes": "\x00\x01\ufffd",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_trace_is_told_and_the_others_are_used(tmp_path: Path, content: str) -> None:
    run = make_run(tmp_path, [MadeCell("ddp", 2)])
    place = run / "cells" / "ddp-w2-b32"
    write_traces(place, [rank_of(0), rank_of(1)])
    (profile_folder(place) / "rank0.json").write_text(content)
    analysis = analyse(load_run(run))
    found = analysis.cells[0].profile
    assert found is not None
    assert [rank.rank for rank in found.ranks] == [1]
    [(cell, warning)] = [each for each in analysis.warnings if each[1].code == "no-profile"]
    assert cell == "ddp-w2-b32"
    assert "rank 0" in warning.message
    assert "rank0.json" in warning.message


def test_of_many_ranks_some_are_read_and_that_is_told(tmp_path: Path) -> None:
    run = make_run(tmp_path, [MadeCell("ddp", 2)])
    place = run / "cells" / "ddp-w2-b32"
    write_traces(place, [rank_of(rank) for rank in range(MAX_RANKS + 4)])
    found = profile_of(load_run(run).cells["ddp-w2-b32"])
    assert found is not None
    assert [rank.rank for rank in found.ranks] == list(range(MAX_RANKS))
    assert found.problems == (f"the traces of all but {MAX_RANKS} of {MAX_RANKS + 4} ranks are left out of the report",)
    merged = json.loads(merged_trace(place, "ddp-w2-b32") or "")
    assert {event["pid"] for event in merged["traceEvents"]} == set(range(MAX_RANKS))


@pytest.mark.parametrize("content", ['{"ranks": 7}', '{"ranks": [{"rank": 0, "zero_ns": 1' + 99 * "0" + "}]}", "{"])
def test_a_record_that_cannot_be_read_is_told(tmp_path: Path, content: str) -> None:
    run = make_run(tmp_path, [MadeCell("ddp", 2)])
    place = run / "cells" / "ddp-w2-b32"
    write_traces(place, [rank_of(0)])
    (profile_folder(place) / "profile.json").write_text(content)
    found = profile_of(load_run(run).cells["ddp-w2-b32"])
    assert found is not None
    assert found.ranks == ()
    assert "profile.json" in found.problems[0]


def test_events_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    good = event("aten::mm", 0, 10)
    hostile: list[Any] = [
        7,
        None,
        {**good, "ts": "now"},
        {**good, "ts": 10**400},
        {**good, "dur": -5},
        {**good, "pid": {"a": 1}},
        {**good, "name": ["x"]},
        {key: value for key, value in good.items() if key != "name"},
        {**good, "ts": True},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace(good, *hostile)))
    assert [each.name for each in read_trace(path).events] == ["aten::mm"]
