from pathlib import Path

import polars as pl
import pytest

from made_runs import MadeCell, make_run, provenance, usual_cells
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.errors import OutputError
from worldsize.results.folder import load_run
from worldsize.results.records import ErrorRecord, WarningRecord


def codes(analysis: StudyAnalysis) -> list[tuple[str, str]]:
    return [(where, warning.code) for where, warning in analysis.warnings]


def test_every_planned_cell_has_its_place(tmp_path: Path) -> None:
    analysis = analyse(load_run(make_run(tmp_path, usual_cells(), never_started=[MadeCell("ddp", 4, 128)])))
    assert [cell.id for cell in analysis.cells] == analysis.record.plan
    absent = analysis.cells[-1]
    assert (absent.strategy, absent.world_size, absent.batch_size) == ("ddp", 4, 128)
    assert (absent.state, absent.reason, absent.summary) == ("planned", "not started", None)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (MadeCell("ddp", 2, state="interrupted"), "interrupted"),
        (MadeCell("ddp", 2, state="running"), "did not end: the study was killed, or is still running"),
        (MadeCell("ddp", 2), None),
    ],
)
def test_what_was_timed_before_the_end_keeps_its_numbers(tmp_path: Path, cell: MadeCell, reason: str | None) -> None:
    (found,) = analyse(load_run(make_run(tmp_path, [cell]))).cells
    assert found.reason == reason
    assert found.summary is not None
    assert found.summary.step_s.value == pytest.approx(0.5)


def test_a_cell_without_a_timed_step_says_so(tmp_path: Path) -> None:
    (found,) = analyse(load_run(make_run(tmp_path, [MadeCell("ddp", 2, blocks=0)]))).cells
    assert (found.summary, found.breakdown, found.reason) == (None, None, "no timed step")
    assert found.losses.height == 2


def test_a_failed_cell_has_its_reason_and_no_numbers_though_it_was_timed(tmp_path: Path) -> None:
    error = ErrorRecord(kind="LossNotFiniteError", message="the loss is nan at step 9", rank=0)
    (found,) = analyse(load_run(make_run(tmp_path, [MadeCell("ddp", 2, state="failed", error=error)]))).cells
    assert found.reason == "LossNotFiniteError (rank 0): the loss is nan at step 9"
    assert (found.summary, found.breakdown, dict(found.blocks)) == (None, None, {})
    assert found.losses.height == 20


def test_losses_are_means_over_ranks_and_unknown_where_one_was_not_finite(tmp_path: Path) -> None:
    cell = MadeCell("ddp", 2, blocks=1, warmup_steps=1, losses=lambda step: 2.0 - 0.5 * step)
    run = load_run(make_run(tmp_path, [cell]))
    path = run.cells[cell.id].folder / "rank1.jsonl"
    path.write_text(path.read_text().replace('"loss":1.5', '"loss":2.5').replace('"loss":1.0', '"loss":null'))
    (found,) = analyse(run).cells
    expected = pl.DataFrame({"step": [0, 1, 2, 3], "loss": [2.0, 2.0, None, 0.5]})
    assert found.losses.equals(expected)


def test_an_epoch_is_split_for_every_multi_worker_cell_with_a_speed_up(tmp_path: Path) -> None:
    analysis = analyse(load_run(make_run(tmp_path, usual_cells(noise=0), train_samples=640)))
    splits = {split.cell_id: split for split in analysis.epoch_splits}
    assert len(splits) == 4
    ddp = splits["ddp-w2-b32"]
    assert ddp.epoch_s == pytest.approx(640 / 64 * 1 / 1.8)
    assert ddp.inferred_compute_s == pytest.approx(640 / 32 * 0.5 / 2)
    assert ddp.measured_exposed_s == pytest.approx(0.06 * ddp.epoch_s)


def test_warnings_of_study_and_cells_come_with_their_place(tmp_path: Path) -> None:
    study = WarningRecord(code="unverified-data", message="the hash is not the official one")
    busy = WarningRecord(code="busy-machine", message="load 3")
    cells = [MadeCell("single", 1, warnings=(busy,)), MadeCell("ddp", 2)]
    analysis = analyse(load_run(make_run(tmp_path, cells, warnings=[study])))
    assert codes(analysis) == [("study", "unverified-data"), ("single-w1-b32", "busy-machine")]


def test_outliers_are_warned_about_and_kept(tmp_path: Path) -> None:
    cell = MadeCell("single", 1, noise=0.01, blocks=10)
    spikes = analyse(load_run(make_run(tmp_path / "spikes", [cell], drift=lambda turn: 3 if 4 <= turn < 5 else 1)))
    assert codes(spikes) == [("single-w1-b32", "uneven-steps"), ("single-w1-b32", "outliers")]
    assert spikes.cells[0].outlier_steps == 3
    assert spikes.cells[0].summary is not None
    assert spikes.cells[0].summary.timed_steps == 30
    assert not codes(analyse(load_run(make_run(tmp_path / "quiet", [cell]))))


def test_cells_that_were_not_timed_in_turn_are_warned_about(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1), MadeCell("ddp", 2, session=1)]
    analysis = analyse(load_run(make_run(tmp_path, cells)))
    assert codes(analysis) == [("ddp-w2-b32", "unpaired")]


def test_resuming_elsewhere_is_warned_about(tmp_path: Path) -> None:
    sessions = [provenance(), provenance(hostname="elsewhere", torch_version="2.6.0")]
    analysis = analyse(load_run(make_run(tmp_path, usual_cells(), sessions=sessions)))
    ((where, warning),) = analysis.warnings
    assert (where, warning.code) == ("study", "provenance-changed")
    assert "session 2" in warning.message
    assert "host node → elsewhere" in warning.message
    assert "torch 2.13.0+cpu → 2.6.0" in warning.message
    assert "CPU" not in warning.message


def test_a_plan_that_worldsize_did_not_make_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, [MadeCell("single", 1)])
    study = tmp_path / "study.json"
    study.write_text(study.read_text().replace('"single-w1-b32"', '"anything"'))
    with pytest.raises(OutputError, match="anything"):
        analyse(load_run(tmp_path))
