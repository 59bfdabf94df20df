"""Runs with known truth: the ratios are found, blocks of two runs are never paired, other work is not judged."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from made_pairs import DDP, SINGLE, cell_of, change_study, compared, make_pair, make_sides, quantity_of, slowed
from made_runs import MadeCell, make_run, usual_cells
from worldsize.analysis.compare.blocks import unpaired_ratio
from worldsize.analysis.compare.sides import read_snapshot
from worldsize.analysis.levels import ratio_estimate
from worldsize.analysis.study import analyse
from worldsize.results.comparison_records import Change
from worldsize.results.folder import load_run, write_cell
from worldsize.results.records import ErrorRecord, StudyRecord


def turns(t: float) -> float:
    """A machine whose turns differ twofold, all cells of a turn alike."""
    return 1.0 + (int(t) * 5 % 8) / 8


def changes_of(record: list[Change]) -> set[tuple[str, str, str]]:
    return {(change.what, change.old, change.new) for change in record}


def test_exact_ratios_are_recovered(tmp_path: Path) -> None:
    record = compared(*make_sides(tmp_path, {DDP: 1.1}, noise=0.0), judge_by="relative")
    cell = cell_of(record)
    assert cell.plain is not None
    assert cell.relative is not None
    assert cell.plain.value == pytest.approx(1.1)
    assert cell.relative.value == pytest.approx(1.1)
    assert (cell.verdict, cell.judged_by, cell.baseline) == ("slower", "relative", SINGLE)
    ratios = {quantity.name: quantity.ratio.value for quantity in cell.quantities if quantity.ratio}
    wanted = dict.fromkeys(("step_s", "exposed_sync_s", "data_wait_s", "compute_s"), 1.1)
    wanted |= dict.fromkeys(("samples_per_s", "scaled_speedup", "efficiency"), 1 / 1.1)
    wanted |= {"test_accuracy": 1.0, "test_loss": 1.0}
    assert ratios == pytest.approx(wanted)
    speedup = quantity_of(cell, "scaled_speedup")
    assert [speedup.old, speedup.new] == pytest.approx([1.8, 1.8 / 1.1])
    assert [each.verdict for each in record.cells if each is not cell] == ["indistinguishable"] * 5
    assert cell.relative_error is not None
    assert cell.relative_error.runs == (3, 3)


def test_values_are_those_of_the_reports_of_the_two_runs(tmp_path: Path) -> None:
    a, b = make_pair(tmp_path, {DDP: 1.1}, noise=0.02)
    cell = cell_of(compared(a, b))
    for run, side in ((a, "old"), (b, "new")):
        analysis = analyse(load_run(run))
        [reported] = [each for each in analysis.cells if each.id == DDP]
        row = analysis.scaling_of(reported)
        assert reported.summary is not None
        assert row is not None
        assert row.speedup is not None
        assert getattr(quantity_of(cell, "step_s"), side) == pytest.approx(reported.summary.step_s.value)
        assert getattr(quantity_of(cell, "scaled_speedup"), side) == pytest.approx(row.speedup.estimate.value)
        assert getattr(quantity_of(cell, "exposed_sync_s"), side) == reported.summary.parts_s["exposed_sync_s"]


def test_blocks_of_two_runs_are_never_paired(tmp_path: Path) -> None:
    """Both runs have the same (session, block) and the same drift: pairing would find exactly 1.1 with certainty."""
    a, b = make_pair(tmp_path, {DDP: 1.1}, drift=turns)
    before, after = ({cell.id: cell.blocks for cell in analyse(load_run(run)).cells}[DDP] for run in (a, b))
    assert before.keys() == after.keys()
    paired = ratio_estimate(after, before)
    assert paired.paired
    assert paired.estimate.low == pytest.approx(1.1)
    apart = unpaired_ratio(after, before)
    assert apart.value == pytest.approx(1.1)
    assert apart.low is not None
    assert apart.high is not None
    assert apart.low < 0.95 < 1.25 < apart.high
    cell = cell_of(compared(a, b, judge_by="plain"))
    assert cell.plain is not None
    assert (cell.plain.value, cell.plain.low, cell.plain.high) == pytest.approx((apart.value, apart.low, apart.high))
    assert cell.verdict == "not known", "one run a side"


def test_relative_to_the_baseline_cell_the_drift_within_a_run_cancels(tmp_path: Path) -> None:
    cell = cell_of(compared(*make_pair(tmp_path, {DDP: 1.1}, drift=turns)))
    assert cell.relative is not None
    assert cell.relative.low == pytest.approx(1.1)
    assert cell.judged_by == "relative"


def test_another_machine_cancels_in_the_relative_ratio_only(tmp_path: Path) -> None:
    record = compared(*make_sides(tmp_path, {}, drift_b=lambda _: 2.0), judge_by="relative")
    for cell in record.cells:
        assert cell.plain is not None
        assert cell.plain.value == pytest.approx(2, rel=0.02)
        assert cell.verdict == ("slower" if cell.id == SINGLE else "indistinguishable")
    assert "1 slower, 5 indistinguishable" in record.verdict
    assert f"Largest slowdown: {SINGLE}, step time × 2.0" in record.verdict


def test_noise_is_not_told_apart(tmp_path: Path) -> None:
    record = compared(*make_sides(tmp_path, {}, noise=0.05))
    assert {cell.verdict for cell in record.cells} == {"indistinguishable"}
    assert record.verdict == "B against A, step times of 6 cells: 6 indistinguishable."
    assert record.changes == []


def test_one_block_of_one_run_has_no_interval(tmp_path: Path) -> None:
    cell = cell_of(compared(*make_pair(tmp_path, {DDP: 1.5}, blocks=1)))
    assert cell.plain is not None
    assert cell.plain.value == pytest.approx(1.5)
    assert cell.plain.low is None


def test_a_speedup_that_a_report_withholds_is_no_relative_ratio(tmp_path: Path) -> None:
    """Other threads than the baseline, or more threads than cores (method.md §6, §8)."""
    single = MadeCell("single", 1)
    others = [MadeCell("ddp", 2, threads=2), MadeCell("all-reduce", 2, oversubscribed=True), MadeCell("ddp", 4)]
    runs = [make_run(tmp_path / name, [single, *others]) for name in "ab"]
    found = {cell.id: (cell.baseline, cell.judged_by) for cell in compared(*runs).cells}
    assert found == {
        SINGLE: (None, "plain"),
        DDP: (None, "plain"),
        "all-reduce-w2-b32": (None, "plain"),
        "ddp-w4-b32": (SINGLE, "relative"),
    }


def test_the_baseline_cell_must_have_numbers_in_both_runs(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1), MadeCell("ddp", 1), MadeCell("ddp", 2)]
    a = make_run(tmp_path / "a", cells)
    b = make_run(tmp_path / "b", [replace(cells[0], blocks=0), *cells[1:]])
    assert cell_of(compared(a, b)).baseline == "ddp-w1-b32"
    b = make_run(tmp_path / "c", cells[2:])
    assert cell_of(compared(a, b)).baseline is None


def test_with_the_global_batch_kept_the_baseline_has_that_batch(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1, 64, step_s=0.9), MadeCell("ddp", 2, 32)]
    a, b = (make_run(tmp_path / name, slowed(cells, {DDP: each})) for name, each in (("a", 1.0), ("b", 1.25)))
    cell = cell_of(compared(a, b))
    assert cell.baseline == "single-w1-b64"
    speedup = quantity_of(cell, "strong_speedup")
    assert [speedup.old, speedup.new] == pytest.approx([1.8, 1.8 / 1.25])


def other_model(study: StudyRecord) -> None:
    study.training[2].parameters += 1


def other_data(study: StudyRecord) -> None:
    study.training[1].shape = (3, 64, 64)


def other_optimizer(study: StudyRecord) -> None:
    study.settings = study.asked.model_copy(update={"optimizer": "muon"})


def other_precision(study: StudyRecord) -> None:
    study.settings = study.asked.model_copy(update={"precision": "bf16"})


@pytest.mark.parametrize(
    ("change", "word", "named"),
    [
        (other_model, "model", ("model parameters", "11,173,962", "11,173,963")),
        (other_data, "data", ("data shape", "3×32×32", "3×64×64")),
        (other_precision, "precision", ("precision", "fp32", "bf16")),
        (other_optimizer, "optimizer", ("optimizer", "sgd", "muon")),
    ],
)
def test_other_work_is_shown_and_not_judged(
    tmp_path: Path, change: Callable[[StudyRecord], None], word: str, named: tuple[str, str, str]
) -> None:
    a, b = make_pair(tmp_path, {DDP: 3.0})
    change_study(b, change)
    record = compared(a, b)
    assert changes_of(record.changes) == {named}
    for cell in record.cells:
        assert (cell.verdict, cell.judged_by, cell.other_work) == ("not judged", None, [word])
        assert {quantity.direction for quantity in cell.quantities} == {None}
    assert quantity_of(cell_of(record), "step_s").new == pytest.approx(0.5 * 2 / 1.8 * 3)
    assert record.verdict == f"Nothing can be judged: no common cell is the same work (other {word})."


def test_each_difference_of_provenance_and_settings_is_named(tmp_path: Path) -> None:
    a, b = make_pair(tmp_path, {})

    def change(study: StudyRecord) -> None:
        study.provenance.torch_version = "2.14.0"
        study.provenance.commit = None
        study.provenance.host.hostname = "other"
        study.provenance.host.gpus = ("A GPU",)
        study.provenance.environment = {"OMP_NUM_THREADS": "2", "NCCL_DEBUG": "INFO"}
        study.settings = study.asked.model_copy(
            update={"loader": "per-sample", "compile": True, "strategies": ("single", "ddp")}
        )
        study.training[1].train_samples = 1000
        study.sessions.append(study.provenance)

    change_study(b, change)
    record = compared(a, b)
    everything = "single, data-parallel, gather-scatter, all-reduce, ddp, bucketed"
    assert changes_of(record.changes) == {
        ("torch", "2.13.0+cpu", "2.14.0"),
        ("commit of worldsize", "0123456789abcdef", "unknown"),
        ("host", "node", "other"),
        ("GPUs", "none", "A GPU"),
        ("OMP_NUM_THREADS", "1", "2"),
        ("NCCL_DEBUG", "none", "INFO"),
        ("loader", "batched", "per-sample"),
        ("compile", "no", "yes"),
        ("strategies", everything, "single, ddp"),
        ("training samples", "1,536", "1,000"),
        ("sessions", "1", "2"),
    }
    assert not record.same_machine
    assert "The machines are of different kinds: plain and normalised ratios compare them as well." in record.caveats
    assert {cell.verdict for cell in record.cells} == {"not known"}, "other settings are judged, where runs are enough"


def test_the_name_of_the_host_makes_no_other_machine(tmp_path: Path) -> None:
    a, b = make_pair(tmp_path, {})
    change_study(b, lambda study: setattr(study.provenance.host, "hostname", "other"))
    assert compared(a, b).same_machine


def test_placement_that_changed_names_its_cells(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1), MadeCell("ddp", 2), MadeCell("all-reduce", 2)]
    a = make_run(tmp_path / "a", cells)
    some = make_run(tmp_path / "b", [cells[0], replace(cells[1], threads=2), replace(cells[2], threads=2)])
    every = make_run(tmp_path / "c", [replace(cell, threads=2) for cell in cells])
    [found] = compared(a, some).changes
    assert (found.what, found.old, found.new) == ("threads per worker", "1", "2")
    assert found.where == "ddp-w2-b32, all-reduce-w2-b32"
    assert compared(a, every).changes[0].where == "all common cells"


def test_cells_without_numbers_and_cells_of_one_run_keep_their_place(tmp_path: Path) -> None:
    error = ErrorRecord(kind="OutOfMemoryError", message="no\nmemory", rank=1)
    a = make_run(tmp_path / "a", [MadeCell("single", 1), MadeCell("ddp", 2), MadeCell("bucketed", 2)])
    failed = MadeCell("ddp", 2, state="failed", error=error)
    b = make_run(tmp_path / "b", [MadeCell("single", 1), failed], never_started=[MadeCell("ddp", 4)])
    record = compared(a, b)
    cell = cell_of(record)
    assert (cell.verdict, cell.measured, cell.plain) == ("no numbers", (True, False), None)
    assert cell.remark == "B: OutOfMemoryError (rank 1): no memory"
    assert [(lone.run, lone.id, lone.measured) for lone in record.lone_cells] == [
        ("A", "bucketed-w2-b32", True),
        ("B", "ddp-w4-b32", False),
    ]
    assert "1 cell of both sides is not judged" in record.verdict


def test_peak_memory_and_training_are_single_numbers(tmp_path: Path) -> None:
    a, b = make_pair(tmp_path, {})
    for run, peak, accuracy in ((a, 1000, 0.5), (b, 1500, 0.4)):
        record = load_run(run).cells[DDP].record
        record.peak_memory_bytes = peak
        record.evaluations[-1].test_accuracy = accuracy
        write_cell(run, record)
    cell = cell_of(compared(a, b))
    for name, ratio in (("peak_memory_bytes", 1.5), ("test_accuracy", 0.8)):
        quantity = quantity_of(cell, name)
        assert quantity.ratio is not None
        assert quantity.ratio.value == pytest.approx(ratio)
        assert quantity.ratio.low is None
        assert quantity.direction == "not known"


def test_parts_of_an_experiment_are_compared_with_each_other(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1), MadeCell("ddp", 2)]
    a, b = (make_run(tmp_path / name, cells) for name in "ab")
    make_run(a / "parts" / "accuracy", cells)
    make_run(b / "parts" / "accuracy", slowed(cells, {DDP: 1.2}))
    make_run(a / "parts" / "gone", cells[1:])
    for run in (b, b / "parts" / "accuracy"):
        change_study(run, lambda study: setattr(study.provenance, "torch_version", "3"))
    record = compared(a, b)
    assert [cell.id for cell in record.cells] == [SINGLE, DDP, f"accuracy/{SINGLE}", f"accuracy/{DDP}"]
    assert cell_of(record, f"accuracy/{DDP}").baseline == f"accuracy/{SINGLE}"
    [part] = [cell for cell in record.cells if cell.id == f"accuracy/{DDP}"]
    assert part.plain is not None
    assert part.plain.value == pytest.approx(1.2)
    assert [lone.id for lone in record.lone_cells] == [f"gone/{DDP}"]
    assert [change.what for change in record.changes] == ["torch"], "named once, not once per part"


def test_a_part_of_a_step_that_was_0_in_a_block_has_no_ratio(tmp_path: Path) -> None:
    cells = [replace(cell, shares={**cell.shares, "data_wait_s": 0.0}) for cell in usual_cells()]
    for cell in cells:
        cell.shares["other_s"] += 0.02
    a, b = (make_run(tmp_path / name, cells) for name in "ab")
    quantity = quantity_of(cell_of(compared(a, b)), "data_wait_s")
    assert (quantity.old, quantity.new, quantity.ratio, quantity.direction) == (0, 0, None, "same")


def test_one_worker_has_no_exposed_communication_to_compare(tmp_path: Path) -> None:
    a, b = make_pair(tmp_path, {})
    names = {quantity.name for quantity in cell_of(compared(a, b), SINGLE).quantities}
    assert "exposed_sync_s" not in names
    assert all(block.exposed_sync_s is None for block in read_snapshot(a).cells[0].blocks)
