"""A run that was only metered is a run like any other: without settings, data, model or phases."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from in_process import worldsize
from made_messages import with_messages
from made_runs import make_run, usual_cells
from worldsize.analysis.advice import advise
from worldsize.analysis.compare.sides import snapshot
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.verdict import verdict
from worldsize.report.result_tables import parts_table
from worldsize.report.tables import to_records
from worldsize.report.write import write_report
from worldsize.results.folder import load_run
from worldsize.results.samples import TAKEN_APART
from worldsize.results.step_records import ENDS

CELLS = [cell for cell in usual_cells() if cell.strategy in ("single", "ddp")]
KNOWN = {"bare": (), "in part": ("data_wait_end_s", "forward_end_s", "backward_end_s")}
"""The ends of phases that somebody marked."""
OF_TRAINING = ("settings", "data", "model")


def metered(run: Path, known: tuple[str, ...]) -> Path:
    """The run without what only worldsize's own training knows."""
    strip(run / "study.json", OF_TRAINING)
    for path in run.glob("cells/*/cell.json"):
        strip(path, ("settings", "wire", "steps_per_epoch", "matmul_flops_per_s", "verified", "placement"))
    for path in run.glob("cells/*/rank?.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        gone = {*TAKEN_APART, *ENDS, "last_gradient_s"} - {*known}
        kept = ({name: value for name, value in line.items() if name not in gone} for line in lines)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in kept))
    return run


def strip(path: Path, names: tuple[str, ...]) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in content.items() if name not in names}))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    return analyse(load_run(with_messages(make_run(tmp_path_factory.mktemp("trained"), CELLS), CELLS)))


@pytest.fixture(scope="module", params=KNOWN)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = with_messages(make_run(tmp_path_factory.mktemp("metered"), CELLS), CELLS)
    return metered(made, KNOWN[request.param])


def numbers(analysis: StudyAnalysis) -> Iterator[tuple[Any, ...]]:
    for cell in analysis.cells:
        row = analysis.scaling_of(cell)
        assert cell.summary is not None
        yield cell.id, cell.summary.step_s, cell.summary.samples_per_s, row and row.speedup


def test_step_times_throughput_and_speedups_are_those_of_a_run_with_settings(run: Path, trained: StudyAnalysis) -> None:
    found = analyse(load_run(run))
    assert list(numbers(found)) == list(numbers(trained))
    assert [cell.reason for cell in found.cells] == [None] * len(CELLS)
    assert "2 workers" in verdict(found)
    assert verdict(found).split(".")[0] == verdict(trained).split(".")[0]


def test_what_nobody_marked_is_absent_and_never_0(run: Path) -> None:
    found = analyse(load_run(run))
    rows = to_records(parts_table(found))
    known = {name for row in rows for name, value in row.items() if value is not None}
    assert "copy_s" not in known
    assert "optimizer_s" not in known
    assert known >= {"data_wait_s", "forward_s", "backward_s", "exposed_sync_s"} or not rows


def test_messages_are_known_without_settings(run: Path, trained: StudyAnalysis) -> None:
    for cell, other in zip(analyse(load_run(run)).cells, trained.cells, strict=True):
        assert (cell.communication is None) == (other.communication is None)
        if cell.communication and other.communication:
            assert cell.communication.wait_s == pytest.approx(other.communication.wait_s)
            assert cell.communication.transfer_s == pytest.approx(other.communication.transfer_s)


def test_no_advice_names_a_command_that_would_train_something_else(run: Path) -> None:
    assert [each.command for each in advise(analyse(load_run(run))) if each.command] == []


def test_it_is_reported_and_compared_like_any_other(run: Path, tmp_path: Path) -> None:
    assert write_report(run).stat().st_size > 10_000
    done = worldsize("report", str(run), "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["state"] for row in json.loads(done.stdout)["results"]] == ["complete"] * len(CELLS)
    assert [cell.reason for cell in snapshot(load_run(run)).cells] == [None] * len(CELLS)
    judged = worldsize("compare", str(run), str(run), "--json", cwd=tmp_path)
    assert (judged.returncode, judged.stderr) == (0, "")


def test_a_study_of_which_only_the_model_is_lost_is_damaged(run: Path, tmp_path: Path) -> None:
    whole = make_run(tmp_path, CELLS)
    strip(whole / "study.json", ("model",))
    done = worldsize("report", str(whole), cwd=tmp_path)
    assert done.returncode == 2
    assert "settings, data and model belong together" in done.stderr
    assert "Traceback" not in done.stderr
