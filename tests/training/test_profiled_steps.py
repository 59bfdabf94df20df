"""Steps under torch's profiler in this process: the clocks, the lanes, and a profiler that fails."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tiny import alone, tiny_settings
from worldsize.analysis.numbers import payload_text
from worldsize.measure.clocks import HostClock
from worldsize.measure.timeline import Message
from worldsize.ranks.loop import Loop
from worldsize.ranks.recorder import Recorder
from worldsize.ranks.turns import Turn
from worldsize.results.traces import COMMUNICATION_THREAD, rank_trace, read_trace
from worldsize.training import profile
from worldsize.training.profile import CLOCK_MARK, message_events, tie
from worldsize.training.trainer import Trainer
from worldsize.training.workload import TrainingWorkload

pytestmark = pytest.mark.usefixtures("clean_imports")

MARK = {"ph": "X", "cat": "user_annotation", "name": CLOCK_MARK}
TURN = Turn(op="profile", count=2, warmup=1)


def test_the_shortest_mark_ties_the_clocks() -> None:
    marks: list[Any] = [{**MARK, "ts": 1000.0 * k, "dur": dur} for k, dur in enumerate((50.0, 6.0, 9.0))]
    readings = [7_000_000 + 1_000_000 * k + round(mark["dur"] * 500) for k, mark in enumerate(marks)]
    readings[0] += 20_000  # read late within its long mark
    other = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 3.0, "dur": 1.0}
    on_a_gpu = {**MARK, "cat": "gpu_user_annotation", "ts": 5.0, "dur": 0.5}
    assert tie(readings, [other, on_a_gpu, *reversed(marks)]) == (7_000_000, 3000)


def test_a_lost_mark_is_noticed() -> None:
    with pytest.raises(ValueError, match="1 of 2 clock marks"):
        tie([1, 2], [{**MARK, "ts": 0.0, "dur": 1.0}])


def test_messages_that_overlap_are_on_lanes_of_their_own() -> None:
    sent = [Message("all_reduce", 4_200_000, False, 0, 5000), Message("all_reduce", 8, False, 3000, 9000)]
    later = [Message("broadcast", 40, True, 6000, 7000), Message("all_reduce", 8, False, 9000, 9500)]
    events = [each for each in message_events([(0, sent), (1, later)], 77, -1000) if each["ph"] == "X"]
    assert [each["tid"] - COMMUNICATION_THREAD for each in events] == [0, 1, 0, 0]
    assert [(each["ts"], each["dur"]) for each in events] == [(1.0, 5.0), (4.0, 6.0), (7.0, 1.0), (10.0, 0.5)]
    assert events[0]["name"] == "all_reduce 4.2 MB"
    assert events[2]["args"] == {"kind": "broadcast", "bytes": 40, "blocking": True, "step": 1, "number": 0}
    assert {each["pid"] for each in events} == {77}


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (44_700_000, "44.7 MB"), (2e9, "2 GB")]
)
def test_sizes_are_in_powers_of_ten(size: int, text: str) -> None:
    assert payload_text(size) == text


def state(trainer: Trainer) -> Any:
    return copy.deepcopy([trainer.strategy.unwrap().state_dict(), trainer.optimizer.state_dict()["state"]])


def profiled(tmp_path: Path, **settings: Any) -> tuple[Any, Path, list[Any]]:
    """The reply to a profile turn after one step, where its files are, and the weights before and after."""
    trainer, data = alone(tiny_settings(tmp_path, batch_size=8, **settings))
    folder = tmp_path / "cell"
    with Recorder(folder, 0, HostClock()) as recorder:
        loop = Loop(TrainingWorkload(trainer, data, recorder.folder), recorder, session=0)
        loop.take(Turn(op="steps", count=1))
        states = [state(trainer)]
        reply = loop.take(TURN)
        states.append(state(trainer))
        assert trainer.steps == 1
        loop.take(Turn(op="steps", count=1))
    return reply, folder, states


def test_a_profile_leaves_training_as_it_was_and_a_group_of_one_has_its_information(tmp_path: Path) -> None:
    reply, folder, (before, after) = profiled(tmp_path)
    assert reply.profile_problem is None
    assert reply.step_s == []
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    lines = (folder / "rank0.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1]
    content = json.loads(rank_trace(folder, 0).read_text())
    assert content["distributedInfo"] == {"backend": "none", "rank": 0, "world_size": 1}
    assert content["traceName"] == "rank0.json"
    assert not any(each["name"] == CLOCK_MARK for each in content["traceEvents"])


def test_threads_that_stand_for_workers_are_traced_too(tmp_path: Path) -> None:
    reply, folder, _ = profiled(tmp_path, strategy="data-parallel", world_size=2)
    assert reply.profile_problem is None
    events = read_trace(rank_trace(folder, 0)).events
    assert len({each.thread for each in events if each.name == "aten::conv2d"}) == 2
    kinds = {each.args["kind"] for each in events if each.category == "collective"}
    assert kinds == {"replicate", "gather", "reduce"}


def test_a_folder_that_cannot_be_written_is_a_problem_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "cell").mkdir()
    (tmp_path / "cell" / "profile").write_text("in the way")
    reply, folder, (before, after) = profiled(tmp_path)
    assert reply.profile is None
    assert reply.profile_problem is not None
    assert str(folder / "profile") in reply.profile_problem
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_a_torch_without_profiler_runs_the_steps_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(**_: Any) -> None:
        raise RuntimeError("kineto is not available\nin this build")

    monkeypatch.setattr(profile, "profile", missing)
    reply, folder, _ = profiled(tmp_path)
    assert (reply.profile, reply.profile_problem) == (None, "RuntimeError: kineto is not available")
    assert not rank_trace(folder, 0).exists()
