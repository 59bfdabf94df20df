"""From the lines of the rank files to the rows of a history."""

from pathlib import Path

import numpy as np
import pytest

from fake_cells import planned, step_line, write_steps
from worldsize.analysis.steps import world_steps
from worldsize.config import StudySettings
from worldsize.results.files import cell_folder
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord
from worldsize.results.step_records import StepRecord
from worldsize.results.training_records import Evaluation
from worldsize.trackers import Row, Rows, summary_values

CELL = planned("ddp", 2, StudySettings(steps=6))
BATCH = CELL.settings.global_batch


def rows(run: Path, session: int = 0) -> Rows:
    return Rows(cell_folder(run, CELL.id), session, BATCH)


def steps(found: list[Row]) -> list[int]:
    return [row.step for row in found]


def test_a_step_of_one_rank_takes_as_long_as_that(tmp_path: Path) -> None:
    reader = rows(tmp_path)
    write_steps(tmp_path, CELL, [0.5], session=0, block=0, first=0, timed=False)
    [row] = reader.new([])
    assert row == Row(0, {"loss": 1.0, "epoch": 0, "timed": 0, "step_s": 0.5, "samples_per_s": BATCH / 0.5})


def test_times_are_those_of_the_tables(tmp_path: Path) -> None:
    """Ranks are late in turn, their clocks are apart and drift, and other work is computed after some steps."""
    reader, place = rows(tmp_path), cell_folder(tmp_path, CELL.id)
    place.mkdir(parents=True)
    draw, found = np.random.default_rng(1), list[Row]()
    begins_ns = np.array([0, 7_000_000])
    for block in range(3):
        offsets_ns = draw.integers(-(10**9), 10**9, 2)
        begins_ns += 10**9
        for step in range(5 * block, 5 * block + 5):
            lengths_s = 0.1 + 0.05 * draw.random(2)
            begins_ns = begins_ns.max() - draw.integers(0, 5_000_000, 2)
            for rank in range(2):
                line = StepRecord(
                    session=0,
                    block=block,
                    step=step,
                    epoch=0,
                    timed=step > 5 * block,
                    samples=4,
                    loss=1.0,
                    start_ns=int(begins_ns[rank] - offsets_ns[rank]),
                    step_s=float(lengths_s[rank]),
                    clock_offset_ns=int(offsets_ns[rank]) + 40_000 * (step % 5 == 4),
                    reference_s=0.005 if step % 5 == 2 else None,
                )
                with (place / f"rank{rank}.jsonl").open("a") as file:
                    file.write(line.model_dump_json() + "\n")
            begins_ns += (1e9 * lengths_s).astype(int)
            begins_ns += 5_000_000 * (step % 5 == 2)
        found += reader.new([])
    told_s = [row.values["step_s"] for row in found if row.values["timed"]]
    record = CellRecord.of(CELL.settings, id=CELL.id).model_copy(update={"placement": CELL.placement})
    assert told_s == pytest.approx(world_steps(Cell(place, record))["step_s"].to_list(), rel=1e-9)
    assert len(told_s) == 12


def test_each_step_comes_once_and_a_rolled_back_one_never(tmp_path: Path) -> None:
    reader, told = rows(tmp_path), []
    for block in range(3):
        write_steps(tmp_path, CELL, [0.5] * 2, session=0, block=block, first=2 * block)
        write_steps(tmp_path, CELL, [0.4] * 2, session=0, block=block, first=2 * block + 2, synchronised=False)
        told.append(steps(reader.new([])))
    assert told == [[0, 1], [2, 3], [4, 5]]
    assert reader.new([]) == []


def test_losses_are_means_over_the_samples_of_all_ranks(tmp_path: Path) -> None:
    reader, place = rows(tmp_path), cell_folder(tmp_path, CELL.id)
    place.mkdir(parents=True)
    for rank, (loss, samples, accuracy) in enumerate([("1.0", 4, "0.5"), ("4.0", 2, "null")]):
        line = step_line(0, 0.5).replace('"loss":1.0', f'"loss":{loss}').replace('"samples":4', f'"samples":{samples}')
        (place / f"rank{rank}.jsonl").write_text(line.replace('"accuracy":null', f'"accuracy":{accuracy}'))
    [row] = reader.new([])
    assert row.values["loss"] == pytest.approx((4 * 1.0 + 2 * 4.0) / 6)
    assert "accuracy" not in row.values, "one rank has none"


def test_a_loss_that_was_not_finite_is_absent(tmp_path: Path) -> None:
    reader, place = rows(tmp_path), cell_folder(tmp_path, CELL.id)
    place.mkdir(parents=True)
    (place / "rank0.jsonl").write_text(step_line(0, 0.5).replace('"loss":1.0', '"loss":null'))
    [row] = reader.new([])
    assert "loss" not in row.values
    assert row.values["step_s"] == 0.5


def test_a_later_session_has_its_own_steps_alone(tmp_path: Path) -> None:
    write_steps(tmp_path, CELL, [0.5] * 3, session=0, block=0, first=0)
    torn = cell_folder(tmp_path, CELL.id) / "rank0.jsonl"
    whole = torn.read_text()
    torn.write_text(whole + step_line(3, 0.5)[:30])
    reader = rows(tmp_path, session=1)
    torn.write_text(whole)  # the rank that starts cuts off what a crash has left
    write_steps(tmp_path, CELL, [0.5] * 2, session=1, block=0, first=0)
    assert steps(reader.new([])) == [0, 1]


def test_steps_grow_where_workers_were_started_anew(tmp_path: Path) -> None:
    """Within a turn the second try of a step counts; after it the numbers go on."""
    reader = rows(tmp_path)
    write_steps(tmp_path, CELL, [0.9] * 2, session=0, block=0, first=0)
    write_steps(tmp_path, CELL, [0.5] * 3, session=0, block=0, first=0)
    first = reader.new([])
    assert [row.values["step_s"] for row in first] == [0.5] * 3
    write_steps(tmp_path, CELL, [0.5] * 2, session=0, block=1, first=0)
    assert steps(first + reader.new([])) == [0, 1, 2, 3, 4]


def test_lines_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    reader = rows(tmp_path)
    write_steps(tmp_path, CELL, [0.5], session=0, block=0, first=0)
    with (cell_folder(tmp_path, CELL.id) / "rank0.jsonl").open("a") as file:
        file.write('garbage\n{"step": 1}\n\0\0\n' + step_line(1, 0.5) + step_line(2, 0.5)[:40])
    assert steps(reader.new([])) == [0, 1]


def test_an_evaluation_stands_at_the_last_step(tmp_path: Path) -> None:
    reader = rows(tmp_path)
    first = Evaluation(epoch=0, step=2, test_loss=0.5, test_accuracy=0.75, test_samples=8)
    second = first.model_copy(update={"test_loss": None, "step": 4})
    write_steps(tmp_path, CELL, [0.5] * 2, session=0, block=0, first=0)
    assert reader.new([first])[2:] == [Row(1, {"test_loss": 0.5, "test_accuracy": 0.75})]
    assert reader.new([first]) == []
    assert reader.new([first, second]) == [Row(1, {"test_accuracy": 0.75})]


def test_a_session_that_goes_on_from_a_checkpoint_goes_on_with_the_numbers(tmp_path: Path) -> None:
    """What was evaluated before it is in the cell's record as well, and was told by the session before."""
    before = Evaluation(epoch=0, step=4, test_loss=0.5, test_accuracy=0.75, test_samples=8)
    after = before.model_copy(update={"epoch": 1, "step": 8})
    write_steps(tmp_path, CELL, [0.5] * 6, session=0, block=0, first=0)
    reader = rows(tmp_path, session=1)
    assert reader.new([before]) == []
    write_steps(tmp_path, CELL, [0.5] * 4, session=1, block=1, first=4)
    found = reader.new([before, after])
    assert steps(found) == [4, 5, 6, 7, 7]
    assert found[-1].values == {"test_loss": 0.5, "test_accuracy": 0.75}


def test_a_cell_without_a_timed_step_has_no_summary() -> None:
    assert summary_values(CellRecord.of(CELL.settings)) == {}
