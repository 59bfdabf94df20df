"""Where two ways to judge a cell lie on either side of the limit, a gate does not know (method.md §11)."""

from dataclasses import replace
from pathlib import Path

import pytest

from made_sides import Maker, Truth
from worldsize.results.baseline_records import StoredCell
from worldsize.results.comparison_records import ComparisonRecord, Finding

SINGLE, DDP = "single-w1-b64", "ddp-w2-b64"
CELLS = (SINGLE, DDP)
CALM = Truth(between=0.001, within=0.0005, reference_s=0.005)
UNTIMED = replace(CALM, reference_s=None)


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "made", 7, CELLS)


@pytest.fixture
def alone(tmp_path: Path) -> Maker:
    """Cells of one worker: exchange varies from run to run."""
    return Maker(tmp_path / "made", 7, (SINGLE,))


def coded(truth: Truth, factor: float) -> Truth:
    """All cells take so many times as long for their code."""
    return replace(truth, factors=dict.fromkeys(CELLS, factor))


def findings(record: ComparisonRecord) -> list[Finding]:
    assert record.gate is not None
    return [each for each in record.gate.findings if each.weight != "note"]


@pytest.mark.parametrize(
    ("machine", "code", "judge_by", "why"),
    [
        pytest.param(0.87, 1.20, "auto", "a faster machine may hide it", id="a faster machine hides slower code"),
        pytest.param(1.18, 1.02, "auto", "the machine may be why", id="a slower machine seems slower code"),
        pytest.param(1.05, 1.03, "normalised", "the machine may be why", id="normalised within the limit"),
    ],
)
def test_what_is_slower_is_not_known_to_be_within_the_limit_either(
    alone: Maker, machine: float, code: float, judge_by: str, why: str
) -> None:
    b = coded(replace(CALM, machine=machine, computation=machine), code)
    record = alone.compared(CALM, b, 4, fail_above=0.05, strict=True, judge_by=judge_by)
    assert {cell.verdict for cell in record.cells} == {"slower"}
    assert {(each.code, each.weight) for each in findings(record)} == {("machine", "not known")}
    assert all(why in each.message for each in findings(record))
    assert record.exit_status == 3


def test_slower_code_on_a_machine_that_did_not_move_fails(maker: Maker) -> None:
    record = maker.compared(CALM, coded(CALM, 1.2), 4, fail_above=0.05)
    assert {(each.code, each.weight) for each in findings(record)} == {("slower", "fails")}


def relative(maker: Maker, single: float, ddp: float, **settings: object) -> ComparisonRecord:
    b = replace(UNTIMED, factors={SINGLE: single, DDP: ddp})
    return maker.compared(UNTIMED, b, 4, fail_above=0.05, judge_by="relative", **settings)


@pytest.mark.parametrize("strict", [False, True])
def test_a_little_on_top_of_what_the_baseline_lost_is_more_than_the_limit(maker: Maker, *, strict: bool) -> None:
    """4 % more than one worker, which takes 3 % longer itself: a step takes 1.071 times as long."""
    record = relative(maker, 1.03, 1.03 * 1.04, strict=strict)
    [found] = findings(record)
    assert (found.code, found.cell, found.weight) == ("baseline", DDP, "not known")
    assert "together more than the limit" in found.message
    assert record.exit_status == (3 if strict else 0)
    assert record.gate is not None
    assert "--judge-by plain" in record.gate.settle[0]


def test_what_the_baseline_gained_fails_no_other_cell(maker: Maker) -> None:
    """15 % more than one worker, which takes 10 % less: a step takes 1.035 times as long, which is allowed."""
    record = relative(maker, 0.90, 0.90 * 1.15)
    [found] = findings(record)
    assert (found.code, found.cell, found.weight) == ("baseline", DDP, "not known")
    assert "by itself it may be within the limit" in found.message
    assert record.exit_status == 0


def test_a_baseline_that_only_varies_hides_nothing(maker: Maker) -> None:
    """8 % more than one worker, whose own step may be as long as it was: its noise is no reason not to fail."""
    a = [
        run.model_copy(update={"cells": [stretched(c, f) for c in run.cells]})
        for run, f in zip(maker.side(UNTIMED, 4), (1.0, 1.07, 0.98, 1.05), strict=True)
    ]
    b = [
        run.model_copy(update={"cells": [stretched(c, f, 1.08) for c in run.cells]})
        for run, f in zip(maker.side(UNTIMED, 4), (0.93, 1.02, 0.95, 1.03), strict=True)
    ]
    record = maker.judged(a, b, fail_above=0.05, judge_by="relative")
    assert [(each.code, each.cell) for each in findings(record)] == [("slower", DDP)]
    assert record.exit_status == 3


def stretched(cell: StoredCell, machine: float, ddp: float = 1.0) -> StoredCell:
    factor = machine * (ddp if cell.id == DDP else 1.0)
    return cell.model_copy(
        update={"blocks": [block.model_copy(update={"step_s": factor * block.step_s}) for block in cell.blocks]}
    )


def test_a_baseline_beyond_the_limit_is_said_of_the_baseline_alone(maker: Maker) -> None:
    assert [(each.code, each.cell) for each in findings(relative(maker, 1.2, 1.2))] == [("slower", SINGLE)]


def test_both_within_the_limit_pass_also_where_that_must_be_proved(maker: Maker) -> None:
    record = relative(maker, 1.01, 1.01 * 1.02, strict=True)
    assert (findings(record), record.exit_status) == ([], 0)
