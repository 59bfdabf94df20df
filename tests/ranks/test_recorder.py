"""Samples of a rank reach its file step by step, and can be read back."""

import dataclasses
import json
from pathlib import Path

import polars as pl
import pytest
import torch

from worldsize.analysis.parts import with_parts
from worldsize.config import CellSettings
from worldsize.errors import LossNotFiniteError, OutputError
from worldsize.measure.alignment import Offset
from worldsize.measure.clocks import HostClock
from worldsize.measure.timeline import Message, Phase, Step
from worldsize.ranks.recorder import Pending, Recorder
from worldsize.results.files import line_of
from worldsize.results.folder import Cell
from worldsize.results.records import STEP_PARTS, CellRecord
from worldsize.results.step_records import SpanRecord, StepRecord

US = 1_000


class SlowDevice(HostClock):
    """A clock whose marks cannot be read before the device has reached them."""

    reached = 0

    def passed(self, mark: int) -> bool:
        return mark <= self.reached


def pending(number: int, *, loss: float = 2.5, messages: bool = True, synchronised: bool = True) -> Pending:
    """A step that begins at `number` ms: each phase takes 100 µs, and a message fills the exchange of gradients."""
    begin = number * 1000 * US
    ends = {phase: begin + 100 * US * (phase + 1) for phase in Phase}
    sent = Message("all_reduce", 40, True, ends[Phase.BACKWARD], ends[Phase.SYNCHRONISE])
    return Pending(
        step=Step(begin, ends, [sent] if messages else []),
        loss=torch.tensor(loss),
        session=1,
        block=number // 2,
        number=number,
        epoch=0,
        timed=number > 0,
        samples=16,
        synchronised=synchronised,
        offset=Offset(offset_ns=-5, error_ns=3),
    )


def span(number: int) -> tuple[int, int]:
    """Start and end of that step."""
    return number * 1000 * US, number * 1000 * US + 700 * US


def cell(folder: Path) -> Cell:
    """The folder as analysis reads it."""
    return Cell(folder, CellRecord.of(CellSettings(), id=folder.name))


def test_short_steps_are_written_together_after_the_last_of_a_turn(tmp_path: Path) -> None:
    with Recorder(tmp_path, 3, HostClock(), every_s=60) as recorder:
        assert [recorder.add(pending(number)) for number in range(3)] == [[], [], []]
        assert recorder.flush() == [span(0), span(1), span(2)]
        assert cell(tmp_path).steps["step"].to_list() == [0, 1, 2]


def test_each_step_is_a_line_that_is_there_at_once(tmp_path: Path) -> None:
    with Recorder(tmp_path, 3, HostClock(), every_s=0) as recorder:
        for number in range(3):
            assert recorder.add(pending(number, loss=number)) == [span(number)]
            assert cell(tmp_path).steps["step"].to_list() == list(range(number + 1))
    steps = cell(tmp_path).steps
    expected = {
        "rank": [3, 3, 3],
        "session": [1, 1, 1],
        "block": [0, 0, 1],
        "timed": [False, True, True],
        "samples": [16, 16, 16],
        "loss": [0.0, 1.0, 2.0],
        "start_ns": [0, 1000 * US, 2000 * US],
        "step_s": [700e-6] * 3,
        "forward_end_s": [300e-6] * 3,
        "synchronise_end_s": [500e-6] * 3,
        "last_gradient_s": [None] * 3,
        "synchronised": [True] * 3,
        "clock_offset_ns": [-5] * 3,
        "clock_error_ns": [3] * 3,
    }
    assert {name: steps[name].to_list() for name in expected} == expected
    parts = with_parts(cell(tmp_path)).collect()
    assert parts["exposed_sync_s"].to_list() == parts["comm_s"].to_list() == [100e-6] * 3
    assert parts.select(pl.sum_horizontal(STEP_PARTS)).to_series().to_list() == pytest.approx(parts["step_s"].to_list())


def test_lines_are_those_of_the_records(tmp_path: Path) -> None:
    """They are made without the records, which would check them: each has all fields, in order, as a record does."""
    waited = pending(1)
    waited.step.messages[0] = dataclasses.replace(waited.step.messages[0], ready=US, awaited=2 * US)
    in_stretches = dataclasses.replace(pending(2), loss=None, right=torch.tensor(4), reference_s=0.005, launch=2)
    begin = in_stretches.step.begin
    phases = [("data_wait", begin + 3 * US), ("forward", begin + 7 * US)]
    ends = {Phase.END: begin + 9 * US}
    in_stretches.step = Step(begin, ends, in_stretches.step.messages, begin + 5 * US, phases)
    with Recorder(tmp_path, 0, HostClock(), every_s=60) as recorder:
        for each in (pending(0), waited, in_stretches, pending(3, synchronised=False)):
            recorder.add(each)
        recorder.flush()
    steps = (tmp_path / "rank0.jsonl").read_bytes().splitlines(keepends=True)
    spans = (tmp_path / "rank0.spans.jsonl").read_bytes().splitlines(keepends=True)
    assert (len(steps), len(spans)) == (4, 3)
    assert [line_of(StepRecord.model_validate_json(line)) for line in steps] == steps
    assert [line_of(SpanRecord.model_validate_json(line)) for line in spans] == spans


def test_messages_go_to_a_file_of_their_own(tmp_path: Path) -> None:
    with Recorder(tmp_path, 0, HostClock(), every_s=0) as recorder:
        recorder.add(pending(0))
        recorder.add(pending(1, messages=False))
        recorder.add(pending(2, synchronised=False))
    assert cell(tmp_path).steps["step"].to_list() == [0, 1]
    assert cell(tmp_path).unsynchronised["step"].to_list() == [2]
    assert cell(tmp_path).spans.to_dicts() == [
        {
            "rank": 0,
            "session": 1,
            "step": 0,
            "kind": ["all_reduce"],
            "payload_bytes": [40],
            "blocking": [True],
            "ready_s": [None],
            "awaited_s": None,
            "issued_s": [pytest.approx(400e-6)],
            "done_s": [pytest.approx(500e-6)],
        }
    ]


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), float("-inf")])
def test_a_loss_that_is_no_number_ends_the_run_after_its_line(tmp_path: Path, loss: float) -> None:
    with Recorder(tmp_path, 1, HostClock(), every_s=0) as recorder:
        recorder.add(pending(0))
        with pytest.raises(LossNotFiniteError, match=r"became -?(nan|inf) at step 1 on rank 1"):
            recorder.add(pending(1, loss=loss))
    assert cell(tmp_path).steps["loss"].to_list() == [2.5, None]
    lines = (tmp_path / "rank1.jsonl").read_text().splitlines()
    assert json.loads(lines[1], parse_constant=pytest.fail)["loss"] is None  # JSON has no NaN


def test_steps_that_the_device_has_not_reached_wait_in_order(tmp_path: Path) -> None:
    clock = SlowDevice()
    with Recorder(tmp_path, 0, clock, every_s=0) as recorder:
        assert recorder.add(pending(0)) == []
        assert recorder.add(pending(1)) == []
        assert cell(tmp_path).steps.height == 0
        clock.reached = 1000 * US
        assert recorder.add(pending(2)) == [span(0)]
        assert cell(tmp_path).steps["step"].to_list() == [0]
        assert recorder.flush() == [span(1), span(2)]
        assert recorder.flush() == []
    assert cell(tmp_path).steps["step"].to_list() == [0, 1, 2]


def test_the_last_step_of_a_turn_has_the_offset_at_its_end(tmp_path: Path) -> None:
    with Recorder(tmp_path, 0, HostClock(), every_s=0) as recorder:
        assert recorder.add(pending(0)) == [span(0)]
        assert recorder.add(dataclasses.replace(pending(1), held=True)) == []
        assert recorder.flush(Offset(offset_ns=-7, error_ns=4)) == [span(1)]
    assert cell(tmp_path).steps.select("clock_offset_ns", "clock_error_ns").rows() == [(-5, 3), (-7, 4)]


def test_a_step_that_was_over_is_kept_when_the_clocks_cannot_be_aligned_again(tmp_path: Path) -> None:
    def align() -> Offset:
        raise RuntimeError("a peer is lost")

    recorder = Recorder(tmp_path, 0, HostClock())
    recorder.add(dataclasses.replace(pending(0), held=True))
    with pytest.raises(RuntimeError, match="lost"), recorder:
        recorder.flush(align())
    assert cell(tmp_path).steps.select("clock_offset_ns", "clock_error_ns").rows() == [(-5, 3)]


@pytest.mark.parametrize("whole", [0, 2])
def test_a_line_that_a_crash_cut_short_makes_way_for_the_next(tmp_path: Path, whole: int) -> None:
    with Recorder(tmp_path, 0, HostClock(), every_s=0) as recorder:
        for number in range(whole):
            recorder.add(pending(number))
    for name in ("rank0.jsonl", "rank0.spans.jsonl"):
        with (tmp_path / name).open("a") as file:
            file.write('{"session":1,"step":9')
    assert cell(tmp_path).steps.height == whole
    with Recorder(tmp_path, 0, HostClock(), every_s=0) as recorder:
        recorder.add(pending(5))
    assert cell(tmp_path).steps["step"].to_list() == [*range(whole), 5]
    assert cell(tmp_path).spans["step"].to_list() == [*range(whole), 5]


def test_a_folder_that_cannot_be_written_is_the_users_to_change(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OutputError, match="taken"):
        Recorder(tmp_path / "taken" / "cell", 0, HostClock())
