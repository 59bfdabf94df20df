"""`--profile` with real processes: the traces of two ranks as other tools read them, and the merged one."""

import itertools
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from in_process import worldsize
from worldsize.analysis.study import analyse
from worldsize.report.profile import profile_table
from worldsize.report.tables import to_records
from worldsize.results.folder import Run, load_run
from worldsize.study.blocks import PROFILED_STEPS

MODEL = """
from torch import nn

def net(classes):
    layers = nn.AvgPool2d(4), nn.Flatten(), nn.LazyLinear(64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, classes)
    return nn.Sequential(*layers)
"""
CELL = "ddp-w2-b4"
STEPS = 4
"""Of the one epoch, all of them timed."""
BUFFERS_BYTES = 2 * 64 * 4 + 8
"""Mean, variance and count of the BatchNorm layer, which DDP broadcasts in each forward."""
GRADIENTS_BYTES = ((3 * 2 * 2 + 1) * 64 + 2 * 64 + (64 + 1) * 10) * 4


@dataclass
class Profiled:
    """A finished run with --profile."""

    run: Run
    stderr: str

    def trace(self, rank: int) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.cell / "profile" / f"rank{rank}.json").read_text())
        return content

    @property
    def cell(self) -> Path:
        return self.run.folder / "cells" / CELL

    @property
    def merged(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.run.folder / "report" / f"trace-{CELL}.json").read_text())
        return content


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    folder = tmp_path_factory.mktemp("profiled")
    (folder / "mine.py").write_text(MODEL)
    cell = ("--strategy", "ddp", "--world-size", 2, "--batch-size", 4, "--threads-per-worker", 1)
    what = ("--model", "mine.py:net", "--data", f"synthetic:3x8x8:10:{8 * STEPS}")
    done = worldsize("train", *what, *cell, "--epochs", 1, "--profile", "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return Profiled(load_run(folder / "run"), done.stderr)


def read_as_others_do(trace: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """The rank and the events with a length, as HolisticTraceAnalysis and TraceLens take them from a file.

    HTA 0.5 finds the rank in `distributedInfo`, keeps events that have `dur` and `cat`, drops the category Trace, and
    wants numbers in ts, dur, pid and tid; steps are the events named ProfilerStep#N.
    """
    rank = trace["distributedInfo"]["rank"]
    events = [each for each in trace["traceEvents"] if "dur" in each and each.get("cat") not in (None, "Trace")]
    for each in events:
        assert each["ph"] == "X"
        assert isinstance(each["name"], str)
        assert isinstance(each["pid"], int)
        assert isinstance(each["tid"], int)
        assert each["ts"] > 0
        assert each["dur"] >= 0
    return rank, events


def collectives(events: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    found = [each for each in events if each.get("cat") == "collective"]
    return [each for each in found if all(each[key] == value for key, value in wanted.items())]


def test_each_rank_has_a_trace_that_other_tools_read(profiled: Profiled) -> None:
    for rank in range(2):
        trace = profiled.trace(rank)
        info = trace["distributedInfo"]
        assert (info["backend"], info["rank"], info["world_size"]) == ("gloo", rank, 2)
        found, events = read_as_others_do(trace)
        assert found == rank
        steps = sorted(each["name"] for each in events if re.fullmatch(r"ProfilerStep#\d+", each["name"]))
        assert steps == [f"ProfilerStep#{number}" for number in range(PROFILED_STEPS)]
        assert any(each["name"] == "aten::addmm" and each["cat"] == "cpu_op" for each in events)
    assert {path.name for path in (profiled.cell / "profile").iterdir()} == {"profile.json", "rank0.json", "rank1.json"}


def test_the_phases_of_each_step_are_marked_inside_it_in_order(profiled: Profiled) -> None:
    names = ["data wait", "copy", "forward", "backward", "synchronise", "optimizer"]
    _, events = read_as_others_do(profiled.trace(0))
    marks = sorted((each for each in events if each["cat"] == "user_annotation"), key=lambda each: float(each["ts"]))
    phases = [each for each in marks if each["name"] in names]
    assert [each["name"] for each in phases] == names * PROFILED_STEPS
    steps = [each for each in marks if each["name"].startswith("ProfilerStep#")]
    for number, phase in enumerate(phases):
        step = steps[number // len(names)]
        assert step["ts"] <= phase["ts"]
        assert phase["ts"] + phase["dur"] <= step["ts"] + step["dur"] + 0.001
        assert (phase["pid"], phase["tid"]) == (step["pid"], step["tid"])
    for before, after in itertools.pairwise(phases):
        assert before["ts"] + before["dur"] <= after["ts"] + 0.001


def test_every_collective_of_the_steps_is_there_with_its_bytes(profiled: Profiled) -> None:
    expected = {("broadcast", BUFFERS_BYTES): PROFILED_STEPS, ("all_reduce", GRADIENTS_BYTES): PROFILED_STEPS}
    for rank in range(2):
        _, events = read_as_others_do(profiled.trace(rank))
        found = collectives(events)
        assert Counter((each["args"]["kind"], each["args"]["bytes"]) for each in found) == expected
        assert {each["name"] for each in found} == {"broadcast 520 B", "all_reduce 6.44 kB"}
        for each in collectives(profiled.merged["traceEvents"], pid=rank):
            assert each["args"] in [original["args"] for original in found]
    assert len(collectives(profiled.merged["traceEvents"])) == 2 * 2 * PROFILED_STEPS


def test_messages_lie_where_the_profiler_saw_their_step(profiled: Profiled) -> None:
    """Their times come from our clock, the steps' from torch's: the two are tied to within the error."""
    for rank, record in enumerate(json.loads((profiled.cell / "profile" / "profile.json").read_text())["ranks"]):
        _, events = read_as_others_do(profiled.trace(rank))
        error_us = record["zero_error_ns"] / 1000
        for each in collectives(events):
            [step] = [step for step in events if step["name"] == f"ProfilerStep#{each['args']['step']}"]
            phase = "forward" if each["args"]["kind"] == "broadcast" else "backward"
            [inside] = [
                part
                for part in events
                if part["name"] == phase and step["ts"] <= part["ts"] <= step["ts"] + step["dur"]
            ]
            assert inside["ts"] - error_us <= each["ts"]
            assert each["ts"] + each["dur"] <= inside["ts"] + inside["dur"] + error_us


def test_both_ranks_are_processes_of_the_merged_trace_on_one_clock(profiled: Profiled) -> None:
    content = profiled.merged
    assert content["distributedInfo"] == {"backend": "gloo", "world_size": 2}
    names = [each for each in content["traceEvents"] if each["name"] == "process_name"]
    assert [(each["pid"], each["args"]["name"]) for each in names] == [(0, f"rank 0 · {CELL}"), (1, f"rank 1 · {CELL}")]
    times = [each["ts"] for each in content["traceEvents"] if each["ph"] != "M"]
    assert times == sorted(times)
    assert times[0] == 0
    error_us = sum(clock["error_ns"] for clock in content["clocks"].values()) / 1000
    for number in range(PROFILED_STEPS):
        for place, kind in enumerate(("broadcast", "all_reduce")):
            first, second = (
                next(
                    each
                    for each in collectives(content["traceEvents"], pid=rank)
                    if (each["args"]["step"], each["args"]["number"]) == (number, place)
                )
                for rank in range(2)
            )
            # Nobody is done before the other has begun; but a sender may be, as soon as the system has its bytes.
            assert first["ts"] <= second["ts"] + second["dur"] + error_us
            if kind == "all_reduce":
                assert second["ts"] <= first["ts"] + first["dur"] + error_us


def test_threads_and_arrows_of_two_ranks_do_not_meet(profiled: Profiled) -> None:
    events = [each for each in profiled.merged["traceEvents"] if each["ph"] != "M"]
    owners: dict[tuple[str, Any], set[int]] = {}
    for each in events:
        owners.setdefault(("thread", each["tid"]), set()).add(each["pid"])
        if "id" in each:
            owners.setdefault(("arrow", each["id"]), set()).add(each["pid"])
    assert {kind for kind, _ in owners} == {"thread", "arrow"}
    assert all(len(ranks) == 1 for ranks in owners.values())


def test_slices_of_a_thread_of_messages_do_not_overlap(profiled: Profiled) -> None:
    """Perfetto draws nested slices only: two that cross would hide each other."""
    lanes: dict[int, list[dict[str, Any]]] = {}
    for each in collectives(profiled.merged["traceEvents"]):
        lanes.setdefault(each["tid"], []).append(each)
    for slices in lanes.values():
        slices.sort(key=lambda each: float(each["ts"]))
        for before, after in itertools.pairwise(slices):
            assert before["ts"] + before["dur"] <= after["ts"] + 0.001


def test_the_timed_steps_know_nothing_of_the_profile(profiled: Profiled) -> None:
    record = profiled.run.cells[CELL].record
    assert record.state == "complete"
    assert not record.warnings
    for rank in range(2):
        lines = [json.loads(line) for line in (profiled.cell / f"rank{rank}.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == list(range(STEPS))
        assert all(line["timed"] for line in lines)
    # The first traced step began after the last one that is recorded had ended.
    zero_ns = json.loads((profiled.cell / "profile" / "profile.json").read_text())["ranks"][0]["zero_ns"]
    _, events = read_as_others_do(profiled.trace(0))
    first_ns = zero_ns + min(float(each["ts"]) for each in events) * 1000
    assert first_ns > profiled.run.cells[CELL].steps.filter(rank=0)["start_ns"].max()


def test_the_report_shows_the_shares_beside_the_timeline(profiled: Profiled) -> None:
    rows = to_records(profile_table(analyse(profiled.run)))
    assert [(row["cell"], row["rank"]) for row in rows] == [(CELL, 0), (CELL, 1)]
    for row in rows:
        for name in ("compute", "communication", "overlapped"):
            ours, theirs = row[f"{name}_share"], row[f"timeline_{name}_share"]
            assert isinstance(ours, float)
            assert isinstance(theirs, float)
            assert 0 <= ours <= 1
            assert 0 <= theirs <= 1
        assert row["compute_share"] != 0
        assert row["communication_share"] != 0
    page = (profiled.run.folder / "report" / "index.html").read_text()
    assert f'<a href="trace-{CELL}.json">' in page
