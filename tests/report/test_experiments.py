"""Each experiment's report holds the tables, charts and paragraphs of its letter, with what was measured."""

import re
from pathlib import Path
from typing import Any

import pytest

from checked import checked_charts as checked_charts
from made_runs import SHARES, MadeCell, make_run, synchronised
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.config import StudySettings, preset_names, read_study, validated
from worldsize.report.contents import sections
from worldsize.report.experiments import EXPERIMENTS, deviations
from worldsize.report.page import render_page
from worldsize.report.section import Section
from worldsize.report.tables import to_records
from worldsize.results.folder import load_run, write_cell, write_study
from worldsize.results.records import ErrorRecord
from worldsize.results.training_records import Divergence, Evaluation, MessageCount


def several(strategy: str, n: int, b: int, step_s: float, **more: Any) -> MadeCell:
    return MadeCell(
        strategy,
        n,
        b,
        step_s=step_s,
        shares=synchronised(SHARES, 0.1),
        comm_s=0.2 * step_s,
        overlapped_s=0.1 * step_s,
        **more,
    )


def study(folder: Path, experiment: str, cells: list[MadeCell], **settings: Any) -> StudyAnalysis:
    """A made run of an experiment; every cell of several workers has been evaluated with its ranks alike."""
    make_run(folder, cells)
    run = load_run(folder)
    record = run.study
    record.settings = record.asked.model_copy(update={"experiment": experiment, **settings})
    write_study(folder, record)
    for cell in run.cells.values():
        n = cell.record.world_size
        test = Evaluation(
            epoch=0,
            step=20,
            test_loss=0.5,
            test_accuracy=0.875,
            test_samples=261,
            divergence=None if n == 1 else Divergence(weights=[0.0] * n, buffers=[0.0, *[0.01] * (n - 1)]),
            messages=[MessageCount(when="evaluation", kind="broadcast", calls=1, payload_bytes=100)],
            order="abc",
        )
        cell.record.evaluations = [test] if cell.record.state == "complete" else []
        write_cell(folder, cell.record)
    return analyse(load_run(folder))


def first(analysis: StudyAnalysis) -> Section:
    [found] = [section for section in sections(analysis) if section.id.startswith("experiment-")]
    return found


def table(section: Section, name: str) -> list[dict[str, Any]]:
    [found] = [each for each in section.tables if each.id == name]
    return to_records(found)


def test_every_preset_is_a_study_and_every_experiment_has_one() -> None:
    assert set(EXPERIMENTS) <= set(preset_names())
    for name in preset_names():
        settings = validated(StudySettings, read_study(name))
        assert settings.experiment == (name if name in EXPERIMENTS else "")


class TestA:
    @pytest.fixture
    def analysis(self, tmp_path: Path) -> StudyAnalysis:
        memory = ErrorRecord(kind="OutOfMemory", message="can't allocate memory", rank=0)
        cells = [
            MadeCell("single", 1, 32, step_s=0.4),
            MadeCell("single", 1, 128, step_s=1.0),
            MadeCell("single", 1, 512, state="failed", error=memory),
        ]
        return study(tmp_path, "batch-sweep", cells, sweep=True)

    def test_a_row_per_batch_and_the_one_that_did_not_fit_is_one_of_them(self, analysis: StudyAnalysis) -> None:
        rows = table(first(analysis), "a-batch-sweep")
        assert [row["local_batch"] for row in rows] == [32, 128, 512]
        assert [row["fits"].split(";")[0] for row in rows] == ["yes", "yes", "no"]
        assert "can't allocate memory" in rows[2]["fits"]
        assert rows[2]["epoch_s"] is None
        assert rows[1]["samples_per_s"] == pytest.approx(128)

    def test_charts_and_paragraph(self, analysis: StudyAnalysis) -> None:
        found = first(analysis)
        assert [drawing.id for drawing in found.drawings] == ["a-epoch-against-b", "a-throughput-against-b"]
        assert "b = 128; b = 512 did not" in found.paragraphs[0]
        assert "The knee is b = 128" in found.paragraphs[0]


class TestB:
    @pytest.fixture
    def analysis(self, tmp_path: Path) -> StudyAnalysis:
        cells = [
            MadeCell("single", 1, 32, step_s=0.5),
            MadeCell("single", 1, 64, step_s=0.9),
            several("data-parallel", 2, 32, 0.6),
            several("data-parallel", 2, 64, 1.0),
        ]
        return study(tmp_path, "dp-scaling", cells)

    def test_both_speedups_each_named_with_its_baseline(self, analysis: StudyAnalysis) -> None:
        rows = {row["cell"]: row for row in table(first(analysis), "b1-speedup")}
        row = rows["data-parallel-w2-b32"]
        assert row["scaled_speedup"] == pytest.approx(2 * 0.5 / 0.6)
        assert row["weak_baseline"] == "single-w1-b32"
        assert row["strong_speedup"] == pytest.approx(0.9 / 0.6)
        assert row["strong_baseline"] == "single-w1-b64"
        assert row["epoch_s"] == pytest.approx(1536 / 64 * 0.6)
        assert rows["data-parallel-w2-b64"]["strong_speedup"] is None, "no worker was run alone with b = 128"

    def test_utilisation_is_bytes_per_epoch_over_time_both_ways(self, analysis: StudyAnalysis) -> None:
        rows = {row["cell"]: row for row in table(first(analysis), "b3-bandwidth")}
        row = rows["data-parallel-w2-b32"]
        assert row["epoch_bytes"] == 24 * row["step_bytes"]
        # T_N − T₁/N over 24 steps of 64 samples: 24·0.6 − 48·0.5/2 = 2.4 s.
        assert row["inferred_s"] == pytest.approx(2.4)
        assert row["inferred_bytes_per_s"] == pytest.approx(row["epoch_bytes"] / 2.4)

    def test_the_paragraph_names_the_kind_of_scaling_the_other_and_why(self, analysis: StudyAnalysis) -> None:
        said, *_ = first(analysis).paragraphs
        assert "what was measured is weak scaling" in said
        assert "Strong scaling from the same data" in said
        assert "one worker reaches 64.0 samples/s at b = 32, 90.0 % of its 71.1 at b = 64" in said


class TestC:
    @pytest.fixture
    def analysis(self, tmp_path: Path) -> StudyAnalysis:
        part = tmp_path / "parts"
        study(
            part / "accuracy",
            "",
            [MadeCell("single", 1, 32, step_s=0.5), several("ddp", 2, 64, 0.8)],
        )
        cells = [MadeCell("single", 1, 32, step_s=0.5), several("ddp", 2, 32, 0.6), several("ddp", 2, 64, 0.8)]
        return study(tmp_path, "ddp-large-batch", cells)

    def test_the_three_parts_are_found_by_their_letter(self, analysis: StudyAnalysis) -> None:
        names = [each.id for each in first(analysis).tables if each.rows]
        assert names == ["c1-speedup", "c2-epoch", "c3-bandwidth", "c4-epochs", "c5-efficiency", "c6-messages"]

    def test_losses_and_accuracies_are_those_of_the_accuracy_runs(self, analysis: StudyAnalysis) -> None:
        rows = table(first(analysis), "c4-epochs")
        assert [row["cell"] for row in rows] == ["single-w1-b32", "ddp-w2-b64"]
        assert rows[0]["test_accuracy"] == 0.875
        assert rows[1]["samples"] == 20 * 128

    def test_time_to_accuracy_is_throughput_times_statistical_efficiency(self, analysis: StudyAnalysis) -> None:
        _, row = table(first(analysis), "c5-efficiency")
        throughput, statistical = (128 / 0.8) / (32 / 0.5), (20 * 32) / (20 * 128)
        assert row["throughput_ratio"] == pytest.approx(throughput)
        assert row["statistical_efficiency"] == pytest.approx(statistical)
        assert row["time_to_accuracy_speedup"] == pytest.approx(throughput * statistical)

    def test_a_run_that_diverged_keeps_its_row_with_the_reason_and_without_a_mean(self, tmp_path: Path) -> None:
        error = ErrorRecord(kind="LossNotFiniteError", message="the loss became nan at step 9", rank=0)
        cells = [
            MadeCell("single", 1, 32, step_s=0.5),
            several("ddp", 2, 64, 0.8, state="failed", error=error, losses=lambda step: None if step == 9 else 2.0),
        ]
        study(tmp_path / "parts" / "accuracy", "", cells)
        analysis = study(tmp_path, "ddp-large-batch", [MadeCell("single", 1, 32)])
        found = first(analysis)
        row = table(found, "c4-epochs")[-1]
        assert row["train_loss"] is None, "a mean over the steps that were finite would flatter it"
        assert "the loss became nan" in row["remark"]
        assert any("none (LossNotFiniteError" in said for said in found.paragraphs)
        _, row = table(found, "c5-efficiency")
        assert (row["samples"], row["statistical_efficiency"]) == (None, None)
        assert "the loss became nan" in row["remark"]

    def test_more_threads_than_cores_withhold_the_time_to_accuracy(self, tmp_path: Path) -> None:
        cells = [MadeCell("single", 1, 32, step_s=0.5), several("ddp", 2, 64, 0.8, oversubscribed=True)]
        study(tmp_path / "parts" / "accuracy", "", cells)
        _, row = table(first(study(tmp_path, "ddp-large-batch", cells)), "c5-efficiency")
        assert row["throughput_ratio"] is None
        assert row["time_to_accuracy_speedup"] is None
        assert row["statistical_efficiency"] is not None


class TestD:
    @pytest.fixture
    def analysis(self, tmp_path: Path) -> StudyAnalysis:
        cells = [
            MadeCell("single", 1, 64, step_s=1.0),
            several("gather-scatter", 2, 32, 0.8),
            several("ddp", 2, 32, 0.6),
        ]
        return study(tmp_path, "sync-ladder", cells, global_batch=64)

    def test_a_row_per_rung_and_rank(self, analysis: StudyAnalysis) -> None:
        rows = table(first(analysis), "d-ranks")
        assert [(row["rung"], row["rank"]) for row in rows] == [
            ("(1) single", 0),
            ("(2a) gather-scatter", 0),
            ("(2a) gather-scatter", 1),
            ("(3) ddp", 0),
            ("(3) ddp", 1),
        ]
        assert rows[0]["loss_at_10"] == pytest.approx(2.3 / (1 + 0.05 * 9))
        assert rows[0]["step_s"] == pytest.approx(1.0)
        assert rows[1]["step_s"] == pytest.approx(0.8 * 0.9), "its own steps, not those of the slowest rank"
        assert [row["weights_divergence"] for row in rows] == [None, 0, 0, 0, 0]

    def test_charts_have_a_line_per_rung(self, analysis: StudyAnalysis) -> None:
        assert [drawing.id for drawing in first(analysis).drawings] == ["d-time", "d-loss"]
        for drawing in first(analysis).drawings:
            assert all(name in drawing.wide for name in ("(1) single", "(2a) gather-scatter", "(3) ddp"))

    def test_it_says_that_all_ranks_have_the_same_weights(self, analysis: StudyAnalysis) -> None:
        said = " ".join(first(analysis).paragraphs)
        assert "All ranks of (2a) gather-scatter, (3) ddp ended with the same weights" in said
        assert "Speed-up over one worker with the same global batch (strong scaling): (2a) gather-scatter: 1.25" in said

    def test_ranks_that_are_apart_are_told(self, tmp_path: Path, analysis: StudyAnalysis) -> None:
        run = load_run(tmp_path)
        record = run.cells["ddp-w2-b32"].record
        apart = Divergence(weights=[0.0, 0.25], buffers=[0.0, 0.0])
        record.evaluations = [
            record.evaluations[0].model_copy(update={"divergence": apart, "rank_accuracy": [0.9, 0.1]})
        ]
        write_cell(tmp_path, record)
        found = first(analyse(load_run(tmp_path)))
        assert (
            "The ranks of (3) ddp did not end with the same weights: they are up to 0.250 apart." in found.paragraphs[0]
        )
        assert [row["test_accuracy"] for row in table(found, "d-ranks")][-2:] == [0.9, 0.1]

    def test_weights_that_are_not_finite_are_apart(self, tmp_path: Path, analysis: StudyAnalysis) -> None:
        record = load_run(tmp_path).cells["ddp-w2-b32"].record
        lost = Divergence(weights=[0.0, None], buffers=[0.0, None])
        record.evaluations = [record.evaluations[0].model_copy(update={"divergence": lost})]
        write_cell(tmp_path, record)
        said = " ".join(first(analyse(load_run(tmp_path))).paragraphs)
        assert "The ranks of (3) ddp did not end with the same weights: they are not finite." in said

    def test_the_verdict_speaks_of_strong_scaling(self, analysis: StudyAnalysis) -> None:
        page = render_page(analysis, sections(analysis))
        text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page))
        assert re.search(r"a speed-up of 1.67 .* over single-w1-b64 at the same global batch", text)
        assert "Strong-scaling speed-up" in text
        assert "scaled speed-up of" not in text


def test_wrong_assumptions_stand_beside_ours(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1, 32, step_s=0.5), several("ddp", 2, 32, 0.6)]
    analysis = study(tmp_path, "", cells)
    [found] = [each for section in sections(analysis) for each in section.tables if each.id == "assumptions"]
    rows = {str(row["mistake"]): row for row in to_records(found)}
    assert rows["N counted twice in a speed-up"]["ours"] == "1.67 = T₁/T_N"
    assert rows["N counted twice in a speed-up"]["other"] == "3.33 = N·T₁/T_N"
    assert rows["Steps per epoch not divided by N"]["ours"] == "24 steps"
    assert rows["Steps per epoch not divided by N"]["other"] == "48 steps"
    assert rows["Parameters of the 1000-class model"]["ours"] == "11,173,962"
    assert rows["Parameters of the 1000-class model"]["other"] == "11,689,512"
    assert rows["Elements taken for bytes"]["ours"] == "44.7 MB of gradients"
    assert rows["Elements taken for bytes"]["other"] == "11.2 MB"
    assert rows["One synchronisation counted for a whole epoch"]["ours"] == "1.07 GB per epoch"
    assert "A batch larger than the data set" not in rows


def test_a_sweep_that_the_data_ended_says_what_a_loader_would_have_done(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1, 256, step_s=0.5), MadeCell("single", 1, 1024, step_s=0.5)]
    analysis = study(tmp_path, "batch-sweep", cells, sweep=True)
    [found] = [each for section in sections(analysis) for each in section.tables if each.id == "assumptions"]
    [row] = [row for row in to_records(found) if row["mistake"] == "A batch larger than the data set"]
    assert row["other"] == "b = 4,096"
    assert "1,536" in str(row["ours"])


def test_an_experiment_that_was_made_smaller_says_so(tmp_path: Path) -> None:
    smaller = {**read_study("sync-ladder"), "world_sizes": (1, 2), "global_batch": 64, "train_samples": 512}
    settings = validated(StudySettings, smaller)
    assert deviations(settings) == ["train samples 512 (not set)", "world sizes 1, 2 (1, 4)", "global batch 64 (256)"]
    as_defined = validated(StudySettings, {**read_study("sync-ladder"), "hosts": 4, "data_dir": tmp_path})
    assert deviations(as_defined) == []
    analysis = study(tmp_path, "sync-ladder", [MadeCell("single", 1, 64)], global_batch=64)
    assert first(analysis).paragraphs[-1].startswith("Differs from the preset")
