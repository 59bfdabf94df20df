"""Step times over the short computation beside them: what it finds, and what it must not hide (method.md §11)."""

from dataclasses import replace
from pathlib import Path

import pytest

import worldsize
from made_runs import make_run, usual_cells
from made_sides import Maker, Truth
from worldsize.analysis.compare.sides import read_side, snapshot
from worldsize.report.compare_tables import compact_cells
from worldsize.results.baseline_records import StoredRun
from worldsize.results.comparison_records import ComparisonRecord

CELLS = ("single-w1-b64", "ddp-w1-b64", "ddp-w2-b64")
MOODY = Truth(between=0.01, gives=0.05, reference_s=0.005)
"""Runs of one commit differ by 5 %, and all but 1 % of it is what the machine gives."""
CALM = Truth(between=0.01, reference_s=0.005)
CHANCE_OF_60 = 7
"""What one in twenty gives in sixty but for 2 % of all sixties."""


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "made", 5, CELLS)


def slower(truth: Truth, factor: float = 1.1) -> Truth:
    return replace(truth, factors=dict.fromkeys(CELLS, factor))


def found(record: ComparisonRecord) -> bool:
    return any(cell.verdict == "slower" for cell in record.cells)


def test_ten_percent_are_found_on_a_machine_that_gives_five_percent_more_or_less(maker: Maker) -> None:
    """Three runs a side, and all cells slow down, so that relative times show nothing."""
    records = [maker.compared(MOODY, slower(MOODY), 3, fail_above=0.05) for _ in range(40)]
    assert sum(map(found, records)) >= 38
    assert sum({cell.judged_by for cell in record.cells} == {"normalised"} for record in records) >= 38
    bare = replace(MOODY, reference_s=None)
    assert sum(found(maker.compared(bare, slower(bare), 3)) for _ in range(40)) <= 25, "what it finds without"


def test_equal_sides_give_an_alarm_once_in_twenty(maker: Maker) -> None:
    records = [maker.compared(MOODY, MOODY, 3, fail_above=0.05) for _ in range(60)]
    alarms = [cell.verdict in ("slower", "faster") for record in records for cell in record.cells]
    assert sum(alarms) <= CHANCE_OF_60
    assert sum(record.exit_status != 0 for record in records) <= CHANCE_OF_60


def test_what_slows_steps_and_computation_alike_is_no_verdict_and_no_pass(maker: Maker) -> None:
    """A thread that code left spinning beside the steps, or another machine of the same kind: nobody can tell."""
    record = maker.compared(CALM, replace(CALM, machine=1.2, computation=1.2), 3, fail_above=0.05)
    assert {cell.verdict for cell in record.cells} == {"indistinguishable"}
    assert record.gate is not None
    assert record.gate.outcome == "not known"
    assert {each.code for each in record.gate.findings} == {"machine"}
    assert all("the machine may be why" in each.message for each in record.gate.findings)
    assert record.gate.settle[0].startswith("# The machine was not the same")
    assert record.gate.settle[-1] == "worldsize compare a-4,a-5,a-6 b-4,b-5,b-6 --fail-above 5%"
    parts = [each.direction for cell in record.cells for each in cell.quantities if each.name == "compute_s"]
    assert parts == ["indistinguishable"] * len(CELLS)
    assert any("The short computation beside the steps took × 1.2" in caveat for caveat in record.caveats)
    asked = maker.compared(CALM, replace(CALM, machine=1.2, computation=1.2), 3, fail_above=0.05, judge_by="plain")
    assert asked.exit_status == 3, "unless plain step times are asked for"
    gained = maker.compared(CALM, replace(CALM, machine=0.8, computation=0.8), 3)
    assert {cell.verdict for cell in gained.cells} == {"indistinguishable"}


def test_nor_if_normalised_times_are_asked_for(maker: Maker) -> None:
    record = maker.compared(
        CALM, replace(CALM, machine=1.2, computation=1.2), 3, fail_above=0.05, judge_by="normalised"
    )
    assert record.gate is not None
    assert record.gate.outcome == "not known"


def test_a_faster_machine_hides_no_slower_code(maker: Maker) -> None:
    record = maker.compared(CALM, slower(replace(CALM, machine=0.8, computation=0.8), 1.25), 3, fail_above=0.05)
    assert record.gate is not None
    assert record.gate.outcome == "not known"
    assert all("a faster machine may hide it" in each.message for each in record.gate.findings)


def test_a_moody_machine_passes_nothing_that_plain_times_contradict(maker: Maker) -> None:
    """The computation is not told apart there for certain, so steps are judged by it, and 20 % may be the code's."""
    records = [
        maker.compared(MOODY, replace(MOODY, machine=1.2, computation=1.2), 3, fail_above=0.05) for _ in range(30)
    ]
    outcomes = [record.gate.outcome for record in records if record.gate is not None]
    assert outcomes.count("passed") <= 1
    assert outcomes.count("failed") <= 1


def test_equal_code_gives_no_more_alarms_where_the_machine_moved(maker: Maker) -> None:
    records = [maker.compared(CALM, replace(CALM, machine=1.2, computation=1.2), 3) for _ in range(60)]
    assert sum(cell.verdict in ("slower", "faster") for record in records for cell in record.cells) <= CHANCE_OF_60


def test_a_cell_without_the_computation_is_judged_as_if_no_cell_had_it(maker: Maker) -> None:
    """Normalised times of the others say nothing of it, and relative ones find it on a machine like this."""
    moody = replace(MOODY, gives=0.08)
    slow = replace(moody, factors={CELLS[2]: 1.12})
    found_it = 0
    for _ in range(30):
        a, b = ([without(run, CELLS[2]) for run in maker.side(truth, 3)] for truth in (moody, slow))
        found_it += any(cell.id == CELLS[2] and cell.verdict == "slower" for cell in maker.judged(a, b).cells)
    assert found_it >= 25


def without(run: StoredRun, name: str) -> StoredRun:
    """The run, in which one cell did not time the computation."""
    cells = [
        cell.model_copy(update={"blocks": [block.model_copy(update={"reference_s": None}) for block in cell.blocks]})
        if cell.id == name
        else cell
        for cell in run.cells
    ]
    return run.model_copy(update={"cells": cells})


def test_runs_that_lack_it_on_one_side_say_so(maker: Maker) -> None:
    a, b = [without(run, CELLS[0]) for run in maker.side(CALM, 3)], maker.side(CALM, 3)
    record = maker.judged(a, b)
    assert record.cells[0].normalised is None
    assert "the short computation was not timed in all blocks of all runs" in record.cells[0].remark


def test_runs_of_one_side_with_another_computation_are_not_divided_by_it(maker: Maker) -> None:
    a, b = maker.side(MOODY, 3), maker.side(MOODY, 3)
    record = maker.judged(a, [b[0], changed(b[1], "threads"), changed(b[2], "threads")])
    assert "normalised" not in {cell.judged_by for cell in record.cells}


@pytest.mark.parametrize("judge_by", ["auto", "plain", "relative", "normalised"])
def test_steps_of_no_time_are_nothing_to_judge(maker: Maker, judge_by: str) -> None:
    still = [
        run.model_copy(
            update={
                "cells": [
                    cell.model_copy(
                        update={"blocks": [block.model_copy(update={"step_s": 0.0}) for block in cell.blocks]}
                    )
                    for cell in run.cells
                ]
            }
        )
        for run in maker.side(CALM, 3)
    ]
    record = maker.judged(maker.side(CALM, 3), still, judge_by=judge_by)
    assert record.verdict.startswith("Nothing can be judged: ")


def test_a_terminal_shows_the_ratio_that_is_judged_by(maker: Maker) -> None:
    tables = [compact_cells(maker.compared(MOODY, MOODY, 3, judge_by=judge_by)) for judge_by in ("normalised", "plain")]
    assert [any("Normalised" in column.label for column in table.columns) for table in tables] == [True, False]


def test_slower_code_on_a_slower_machine_is_slower(maker: Maker) -> None:
    record = maker.compared(CALM, slower(replace(CALM, machine=1.1, computation=1.1), 1.15), 3, fail_above=0.05)
    assert {cell.verdict for cell in record.cells} == {"slower"}
    assert record.exit_status == 3


@pytest.mark.parametrize("change", ["torch", "threads"])
def test_another_computation_is_none_to_divide_by(maker: Maker, change: str) -> None:
    a, b = maker.side(MOODY, 3), [changed(run, change) for run in maker.side(slower(MOODY, 1.3), 3)]
    assert "normalised" not in {cell.judged_by for cell in maker.judged(a, b).cells}
    asked = maker.judged(a, b, judge_by="normalised")
    assert {cell.judged_by for cell in asked.cells} == {"normalised"}, "unless it is asked for"


def changed(run: StoredRun, what: str) -> StoredRun:
    if what == "torch":
        return run.model_copy(update={"provenance": run.provenance.model_copy(update={"torch_version": "9.0"})})
    environment = {**run.provenance.environment, "OMP_NUM_THREADS": "7"}
    return run.model_copy(update={"provenance": run.provenance.model_copy(update={"environment": environment})})


def test_runs_without_the_computation_have_no_normalised_times(tmp_path: Path) -> None:
    runs = read_side([make_run(tmp_path / str(k), usual_cells(), seed=k) for k in range(4)])
    record = Maker(tmp_path / "made", 1).judged(runs[:2], runs[2:], judge_by="normalised", fail_above=0.05)
    assert {cell.verdict for cell in record.cells} == {"not judged"}
    assert "the short computation beside the steps was not timed in all runs" in record.verdict
    assert record.exit_status == 3


def test_a_study_of_so_many_steps_times_it(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(192, 10))\n"
    )
    run = worldsize.study(
        out=tmp_path / "run",
        model=f"{tmp_path / 'net.py'}:net",
        data="synthetic:3x8x8:10:64",
        strategies="single",
        world_sizes=1,
        batch_sizes=4,
        steps=6,
        evaluate="never",
        report=False,
    )
    [cell] = snapshot(run).cells
    assert all(block.reference_s is not None and block.reference_s > 0 for block in cell.blocks)
    assert cell.summary is not None
    assert cell.summary.timed_steps == 6
