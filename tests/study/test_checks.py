"""The short proof within a study: when it is asked for, and what becomes of its answer."""

from pathlib import Path

import pytest

from fake_cells import FakeExecutor, planned
from fake_study import STUDY, Study, grid
from made_runs import make_run, usual_cells
from worldsize.analysis.sameness import not_the_reference, verdict_of
from worldsize.analysis.study import analyse
from worldsize.config import StudySettings
from worldsize.report.tables import to_records
from worldsize.report.verify_table import same_training_table
from worldsize.results.check_records import Difference, Fault, Losses, RankCheck, VerifyRecord
from worldsize.results.files import cell_folder, read_record
from worldsize.results.folder import load_run, write_cell
from worldsize.results.records import CellRecord
from worldsize.study.plan import MAX_READ, batches_to_read

RIGHT = RankCheck(tolerance=1e-4, largest=1e-7)
WRONG = RankCheck(tolerance=1e-4, largest=0.5, gradients=Difference(step=0, parameter="fc.weight", relative=0.25))


@pytest.mark.parametrize("settings", [STUDY, StudySettings(epochs=2)])
def test_each_cell_is_asked_once_before_its_first_step(tmp_path: Path, settings: StudySettings) -> None:
    cells = grid("single", "ddp", settings=settings)
    study = Study(tmp_path, cells, FakeExecutor(tmp_path, 0), settings).run()
    assert study.executor.checked == [("single-w1-b4", 2), ("ddp-w2-b4", 1)], "as many samples for both"
    record = study.heard.records[0]
    assert record.verified is not None
    assert record.warnings == []


def test_a_cell_that_is_not_the_reference_is_timed_and_warned_about(tmp_path: Path) -> None:
    executor = FakeExecutor(tmp_path, 0, checks={"ddp-w2-b4": WRONG})
    study = Study(tmp_path, grid("single", "ddp"), executor).run()
    assert study.turns("steps")
    single, ddp = (read_record(CellRecord, cell_folder(tmp_path, c.id) / "cell.json") for c in study.schedule.cells)
    assert single.warnings == []
    [warning] = ddp.warnings
    assert warning.code == "not-the-reference"
    assert "fc.weight on rank 0" in warning.message
    assert "0.25 of its size" in warning.message
    assert ddp.summary is not None
    assert ddp.verified is not None
    assert not ddp.verified.same


def test_a_proof_that_fails_is_a_row_like_any_other_failure(tmp_path: Path) -> None:
    executor = FakeExecutor(tmp_path, 0, fails={("ddp-w2-b4", "verify"): 1})
    study = Study(tmp_path, grid("single", "ddp"), executor).run()
    assert study.heard.endings["ddp-w2-b4"] == "failed"
    assert study.heard.endings["single-w1-b4"] == "precision"


def test_the_ranks_answers_become_one() -> None:
    ranks = [RIGHT.model_copy(update={"samples": ["a1", "a3"]}), WRONG.model_copy(update={"samples": ["a2", "a4"]})]
    found = verdict_of(ranks)
    assert (found.largest, found.rank, found.samples) == (0.5, 1, "a1a2a3a4")
    assert found.gradients == WRONG.gradients
    assert not found.same
    assert verdict_of([RIGHT, RIGHT]).same
    assert verdict_of([RankCheck(tolerance=1e-4)]).largest is None, "nothing was compared: absent, not 0"


def test_what_is_wrong_is_told_in_words() -> None:
    assert not_the_reference("cell", VerifyRecord(tolerance=1e-4)) == []
    gone = Difference(step=0, parameter="a.bias", relative=None)
    [warning] = not_the_reference("cell", VerifyRecord(tolerance=1e-4, gradients=gone, rank=0, apart="b.weight"))
    assert "a.bias on rank 0 is not the mean over the workers: it is not finite" in warning.message
    assert "b.weight is the first that differs" in warning.message


def test_a_lossy_cell_that_breaks_its_word_is_warned_about() -> None:
    fault = Fault(kind="feedback", parameter="fc.weight", relative=0.1, allowed=1e-4)
    broken = Losses(steps=4, faults=[fault])
    found = verdict_of([RankCheck(tolerance=1e-4, losses=broken)])
    assert not found.same
    [warning] = not_the_reference("int8-w2-b4", found)
    assert warning.code == "not-the-reference"
    assert "fc.weight loses 0.1 of its sum that error feedback does not hold back" in warning.message
    assert "int8-w2-b4 does not keep what its strategy says of it" in warning.message
    assert verdict_of([RankCheck(tolerance=1e-4, losses=Losses(steps=4, step_error=0.01))]).same


def test_the_worlds_of_a_local_batch_read_as_many_samples() -> None:
    one, two, sixteen = (planned("ddp", size, STUDY) for size in (1, 2, 16))
    other = planned("ddp", 1, STUDY, batch_size=8)
    cells = [one, two, sixteen, other]
    assert [batches_to_read(cell, cells) for cell in cells] == [MAX_READ, MAX_READ, 1, 1]
    assert batches_to_read(one, [one, two]) == 2


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose cells have all read the same, those of one worker less of it."""
    folder = make_run(tmp_path, usual_cells())
    for cell in load_run(folder).cells.values():
        read = "".join(f"{place:08x}" for place in range(8 * cell.record.world_size))
        several = cell.record.world_size > 1
        cell.record.verified = VerifyRecord(tolerance=1e-4, largest=1e-7 if several else None, samples=read)
        write_cell(folder, cell.record)
    return folder


def test_the_report_says_that_training_is_the_same(run: Path) -> None:
    analysis = analyse(load_run(run))
    assert "data-differ" not in {warning.code for _, warning in analysis.warnings}
    rows = {row["cell"]: row for row in to_records(same_training_table(analysis))}
    assert rows.keys() == load_run(run).cells.keys()
    assert rows["ddp-w2-b32"] == {
        "cell": "ddp-w2-b32",
        "largest_gradient": 1e-7,
        "parameter": None,
        "weights": "same",
        "samples": 16,
        "data": "same",
    }
    assert (rows["single-w1-b32"]["weights"], rows["single-w1-b32"]["largest_gradient"]) == (None, None)
    assert rows["data-parallel-w2-b32"]["weights"] is None, "one process"


def test_cells_that_read_other_samples_are_a_warning_of_the_study(run: Path) -> None:
    record = load_run(run).cells["all-reduce-w2-b32"].record
    assert record.verified is not None
    record.verified.samples = record.verified.samples[: 3 * 8] + "ffffffff" + record.verified.samples[4 * 8 :]
    record.verified.apart = "conv1.weight"
    write_cell(run, record)
    analysis = analyse(load_run(run))
    [(where, warning)] = [(where, w) for where, w in analysis.warnings if w.code == "data-differ"]
    assert where == "study"
    assert "all-reduce-w2-b32 from sample 3 on does not read what single-w1-b32 reads" in warning.message
    row = next(r for r in to_records(same_training_table(analysis)) if r["cell"] == "all-reduce-w2-b32")
    assert (row["data"], row["weights"]) == ("differ from sample 3 on", "conv1.weight differs")


def test_a_run_of_an_earlier_version_has_no_such_table(tmp_path: Path) -> None:
    assert same_training_table(analyse(load_run(make_run(tmp_path, usual_cells())))).rows == ()
