from dataclasses import replace
from pathlib import Path

import pytest

from made_runs import MadeCell, make_run, messy_cells, usual_cells
from worldsize.analysis.scaling import karp_flatt_estimate
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.report.fact_tables import accuracy_table, provenance_table, warnings_table, wire_table
from worldsize.report.result_tables import compact_table, parts_table, results_table
from worldsize.report.scaling_tables import epoch_table, scaling_table, serial_table
from worldsize.report.tables import Raw, Table, to_markdown, to_records
from worldsize.results.folder import Run, load_run
from worldsize.results.records import STEP_PARTS


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    return analyse(load_run(make_run(tmp_path_factory.mktemp("usual"), usual_cells(noise=0))))


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    folder = tmp_path_factory.mktemp("messy")
    return analyse(load_run(make_run(folder, messy_cells(), never_started=[MadeCell("ddp", 2, 64)])))


def raw(table: Table, cell: str) -> dict[str, Raw]:
    (found,) = [record for record in to_records(table) if record["cell"] == cell]
    return found


def shown(table: Table, cell: str) -> list[str]:
    (found,) = [row for row in table.rows if row[0].text == cell]
    return [entry.plain for entry in found]


def width(table: Table) -> int:
    """What a terminal needs, with two spaces between the columns."""
    lines = [[column.heading for column in table.columns], *([entry.plain for entry in row] for row in table.rows)]
    return sum(max(map(len, column)) for column in zip(*lines, strict=True)) + 2 * (len(table.columns) - 1)


def test_results_of_a_known_run(usual: StudyAnalysis) -> None:
    table = results_table(usual)
    assert [row[0].text for row in table.rows] == usual.record.plan
    assert shown(table, "ddp-w2-b32") == [
        "ddp-w2-b32", "ddp", "2", "32", "64", "556 [556, 556]", "115 [115, 115]", "1.80 [1.80, 1.80]", "single-w1-b32",
        "90.0", "6.00", "–", "complete",
    ]  # fmt: skip
    assert raw(table, "ddp-w2-b32")["scaled_speedup"] == pytest.approx(1.8)
    assert raw(table, "ddp-w2-b32")["step_s"] == pytest.approx(1 / 1.8)
    assert raw(table, "ddp-w2-b32")["efficiency"] == pytest.approx(0.9)


def test_the_baseline_is_called_one_and_has_no_communication(usual: StudyAnalysis) -> None:
    row = raw(results_table(usual), "single-w1-b32")
    assert (row["scaled_speedup"], row["efficiency"], row["exposed_share"]) == (None, None, None)
    assert shown(results_table(usual), "single-w1-b32")[7:11] == ["baseline", "–", "–", "–"]


@pytest.mark.parametrize(
    ("cell", "state"),
    [
        (
            "all-reduce-w2-b32",
            "failed; OutOfMemoryError (rank 1): <script>alert('reason')</script> tried to allocate 2 GiB",
        ),
        ("all-reduce-w4-b32", "interrupted"),
        ("gather-scatter-w2-b32", "complete; no timed step"),
        ("gather-scatter-w4-b32", "running; did not end: the study was killed, or is still running"),
        ("data-parallel-w4-b32", "complete; withheld: more threads than cores in data-parallel-w4-b32"),
        ("ddp-w2-b64", "planned; not started"),
        ("ddp-w2-b32", "complete"),
    ],
)
def test_the_state_says_what_happened(messy: StudyAnalysis, cell: str, state: str) -> None:
    assert shown(results_table(messy), cell)[-1] == state


@pytest.mark.parametrize("cell", ["all-reduce-w2-b32", "gather-scatter-w2-b32", "ddp-w2-b64"])
def test_cells_without_numbers_have_none(messy: StudyAnalysis, cell: str) -> None:
    row = raw(results_table(messy), cell)
    numbers = {
        key: value for key, value in row.items() if key.startswith(("step_s", "samples", "scaled", "eff", "exp"))
    }
    assert len(numbers) == 11
    assert set(numbers.values()) == {None}


def test_compact_results_fit_a_terminal(usual: StudyAnalysis, messy: StudyAnalysis) -> None:
    assert width(compact_table(usual)) <= 80
    assert width(compact_table(messy)) <= 80
    words = {row[5].text for row in compact_table(messy).rows}
    assert {"baseline", "failed", "withheld", "planned", "no timed step"} <= words
    assert any(row[0].text.endswith("…") for row in compact_table(messy).rows)


def test_compact_results_of_a_large_study_fit_a_terminal(tmp_path: Path) -> None:
    cells = [
        MadeCell("data-parallel", 1, 8192, step_s=12.34, noise=0.01),
        MadeCell("data-parallel", 128, 8192, step_s=12.8, noise=0.01, warmup_steps=0),
    ]
    assert width(compact_table(analyse(load_run(make_run(tmp_path, cells))))) <= 80


def test_parts_add_up_to_the_mean_step(usual: StudyAnalysis) -> None:
    for record in to_records(parts_table(usual)):
        parts = [record[part] for part in STEP_PARTS]
        assert sum(value for value in parts if isinstance(value, float)) == pytest.approx(record["mean_step_s"])
    assert raw(parts_table(usual), "single-w1-b32")["comm_s"] is None
    assert raw(parts_table(usual), "ddp-w2-b32")["overlapped_share"] == pytest.approx(0.6, abs=0.01)


def test_no_column_is_called_a_bare_speed_up(usual: StudyAnalysis) -> None:
    tables = [results_table(usual), compact_table(usual), scaling_table(usual, "weak"), scaling_table(usual, "strong")]
    headings = [column.label for table in tables for column in table.columns if "speed-up" in column.label.lower()]
    assert headings == ["Scaled speed-up", "Scaled speed-up", "Scaled speed-up", "Strong-scaling speed-up"]


def test_weak_scaling_prints_both_ratios_of_the_identity(usual: StudyAnalysis) -> None:
    row = raw(scaling_table(usual, "weak"), "ddp-w2-b32")
    assert row["epoch_time_ratio"] == pytest.approx(row["speedup"])
    assert "karp_flatt" not in row, "weak scaling has no serial fraction of one point"
    assert (row["baseline"], row["blocks"]) == ("single-w1-b32", 6)


def test_strong_scaling_has_the_pair_of_the_grid(messy: StudyAnalysis) -> None:
    row = raw(scaling_table(messy, "strong"), "ddp-w2-b32")
    assert row["baseline"] == "single-w1-b64"
    assert row["speedup"] == pytest.approx(0.9 / 0.55, rel=0.05)
    ends = (("karp_flatt", "speedup"), ("karp_flatt_low", "speedup_high"), ("karp_flatt_high", "speedup_low"))
    for fraction, of in ends:
        value = row[of]
        assert isinstance(value, float)
        assert row[fraction] == pytest.approx(2 / value - 1)


@pytest.mark.parametrize(
    ("step_s", "low", "high", "shown"),
    [
        pytest.param(0.45 / 0.98, 0.90, 1.07, True, id="not known which is faster"),
        pytest.param(0.45 / 0.90, 0.85, 0.97, False, id="one worker is faster"),
        pytest.param(0.45 / 0.90, None, None, True, id="one block"),
        pytest.param(0.45 / 1.50, 1.40, 1.60, True, id="two are faster"),
    ],
)
def test_a_serial_fraction_is_left_out_only_where_one_worker_is_surely_faster(
    tmp_path: Path, step_s: float, low: float | None, high: float | None, shown: bool
) -> None:
    cells = [MadeCell("single", 1, 64, step_s=0.45), MadeCell("ddp", 2, 32, step_s=step_s)]
    made = analyse(load_run(make_run(tmp_path, cells)))
    [row] = [row for row in made.scaling if row.kind == "strong"]
    assert row.speedup is not None
    estimate = row.speedup.estimate.model_copy(update={"low": low, "high": high})
    narrow = replace(row, speedup=replace(row.speedup, estimate=estimate), karp_flatt=karp_flatt_estimate(estimate, 2))
    table = scaling_table(replace(made, scaling=(narrow,)), "strong")
    [record] = to_records(table)
    assert record["karp_flatt"] == (pytest.approx(2 / estimate.value - 1) if shown else None)
    assert "none where one worker is faster, the whole interval of the speed-up below 1." in table.remarks


def test_what_was_not_timed_in_turn_is_remarked(messy: StudyAnalysis) -> None:
    assert shown(scaling_table(messy, "weak"), "gather-scatter-w4-b32")[-1] == "not timed in turn with its baseline"


def test_serial_fraction_names_law_batch_and_world_sizes(messy: StudyAnalysis) -> None:
    (row,) = [row for row in serial_table(messy).rows if row[1].text == "ddp"]
    assert [entry.text for entry in row[:5]] == ["weak", "ddp", "b = 32", "1, 2, 4", "Gustafson"]


def test_epoch_table_has_the_difference_of_the_two_splits(usual: StudyAnalysis) -> None:
    row = raw(epoch_table(usual), "ddp-w2-b32")
    assert isinstance(row["inferred_comm_s"], float)
    assert isinstance(row["measured_exposed_s"], float)
    assert row["difference_s"] == pytest.approx(row["inferred_comm_s"] - row["measured_exposed_s"])
    assert row["inferred_comm_s"] == pytest.approx(0.1 * 24 / 1.8)


def test_bytes_on_the_wire_with_formula_and_epoch(usual: StudyAnalysis) -> None:
    row = raw(wire_table(usual), "ddp-w2-b32")
    assert (row["payload_bytes"], row["formula"], row["steps_per_epoch"]) == (44_695_848, "2(N−1)/N·S", 24)
    assert row["busiest_rank_bytes_per_epoch"] == 24 * 44_695_848
    assert shown(wire_table(usual), "ddp-w2-b32")[1] == "44.7"
    assert "single-w1-b32" not in [record["cell"] for record in to_records(wire_table(usual))]


def test_loss_and_accuracy(usual: StudyAnalysis, messy: StudyAnalysis) -> None:
    row = raw(accuracy_table(usual), "ddp-w2-b32")
    assert row["train_loss"] == pytest.approx(sum(2.3 / (1 + 0.05 * step) for step in range(10, 20)) / 10)
    assert (row["test_accuracy"], row["test_samples"]) == (0.875, 261)
    assert (row["epochs_begun"], row["evaluated_after_step"]) == (1, 20)
    assert raw(accuracy_table(messy), "all-reduce-w4-b32")["test_accuracy"] is None


def test_an_equal_warning_is_shown_once_with_its_places(messy: StudyAnalysis) -> None:
    (row,) = [row for row in warnings_table(messy).rows if row[0].text == "busy-machine"]
    assert row[1].text == "single-w1-b32, single-w1-b64"


def test_provenance_names_machine_versions_data_and_command(usual: StudyAnalysis) -> None:
    table = to_markdown(provenance_table(usual))
    for fact in (
        "worldsize study --steps 18",
        "2.13.0+cpu",
        "A processor",
        "8.00 GiB",
        "OMP_NUM_THREADS=1",
        "embedded",
    ):
        assert fact in table


def test_provenance_lists_each_session(tmp_path: Path) -> None:
    analysis = analyse(load_run(make_run(tmp_path, usual_cells())))
    record = analysis.record.model_copy(update={"sessions": [analysis.record.provenance]})
    run = Run(analysis.run.folder, record, analysis.run.cells)
    items = [row[0].text for row in provenance_table(replace(analysis, run=run)).rows]
    assert items[-1] == "Session 1 (--resume)"
