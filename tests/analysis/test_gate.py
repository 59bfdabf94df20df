"""What fails a build, what is only a maybe, and that a gate which can judge nothing does not pass."""

from dataclasses import replace
from pathlib import Path

import pytest

from made_pairs import DDP, SINGLE, change_study, compared, make_pair
from made_runs import MadeCell, make_run
from worldsize.report.compare_tables import gate_lines
from worldsize.results.comparison_records import ComparisonRecord, Gate
from worldsize.results.records import ErrorRecord, StudyRecord

ERROR = ErrorRecord(kind="RuntimeError", message="no")


def gate_of(record: ComparisonRecord) -> Gate:
    assert record.gate is not None
    return record.gate


def codes(record: ComparisonRecord) -> list[tuple[str, str | None]]:
    return [(finding.code, finding.cell) for finding in gate_of(record).findings]


def other_machine(study: StudyRecord) -> None:
    study.provenance.host.cpu_model = "Another processor"


def other_model(study: StudyRecord) -> None:
    study.model.name = "vgg11"


@pytest.mark.parametrize(("factor", "status"), [(1.10, 3), (1.02, 0), (1.0, 0), (0.8, 0)])
def test_ten_percent_slower_fails_and_two_percent_does_not(tmp_path: Path, factor: float, status: int) -> None:
    record = compared(*make_pair(tmp_path, {DDP: factor}, noise=0.01), fail_above=0.05)
    assert record.exit_status == status
    assert codes(record) == ([("slower", DDP)] if status else [])


def test_without_a_limit_nothing_fails(tmp_path: Path) -> None:
    record = compared(*make_pair(tmp_path, {DDP: 2.0}))
    assert (record.gate, record.exit_status) == (None, 0)


def test_an_interval_that_reaches_below_the_limit_is_a_maybe(tmp_path: Path) -> None:
    """Slower for certain, but not by 8 % for certain."""
    runs = make_pair(tmp_path, {DDP: 1.1}, noise=0.05)
    lenient, strict = (compared(*runs, fail_above=0.08, strict=strict) for strict in (False, True))
    assert [cell.verdict for cell in lenient.cells if cell.id == DDP] == ["slower"]
    assert (lenient.exit_status, strict.exit_status) == (0, 3)
    assert ("maybe-slower", DDP) in codes(lenient)
    [finding] = [each for each in gate_of(lenient).findings if each.cell == DDP]
    assert "but not certainly by more than 8.00 %" in finding.message


def test_without_intervals_nothing_is_certain_and_the_gate_says_so(tmp_path: Path) -> None:
    runs = make_pair(tmp_path, {DDP: 1.5}, blocks=1)
    lenient, strict = (compared(*runs, fail_above=0.05, strict=strict) for strict in (False, True))
    assert codes(lenient) == [("maybe-slower", DDP), ("nothing-certain", None)]
    assert "but there is no interval" in gate_of(lenient).findings[0].message
    assert (lenient.exit_status, strict.exit_status) == (0, 3)


def test_the_baseline_cell_is_judged_by_itself(tmp_path: Path) -> None:
    record = compared(*make_pair(tmp_path, {SINGLE: 1.2}, noise=0.005), fail_above=0.05)
    assert codes(record) == [("slower", SINGLE)], "all others became faster relative to it"


def test_a_slower_machine_fails_the_plain_ratio_and_not_the_relative_one(tmp_path: Path) -> None:
    runs = make_pair(tmp_path, {}, noise=0.005, drift_b=lambda _: 1.5)
    assert codes(compared(*runs, fail_above=0.05)) == [("slower", SINGLE)]
    assert codes(compared(*runs, fail_above=0.05, judge_by="relative")) == []
    assert compared(*runs, fail_above=0.05, judge_by="relative", strict=True).exit_status == 0
    assert len(codes(compared(*runs, fail_above=0.05, judge_by="plain"))) == 6


def test_a_machine_of_another_kind_fails_only_who_asks_for_plain_ratios(tmp_path: Path) -> None:
    a, b = make_pair(tmp_path, {DDP: 1.3}, noise=0.005, drift_b=lambda _: 1.5)
    change_study(b, other_machine)
    record = compared(a, b, fail_above=0.05)
    assert codes(record) == [("slower", DDP), ("other-machine", SINGLE)]
    assert [finding.fails for finding in gate_of(record).findings] == [True, False]
    assert gate_of(compared(a, b, fail_above=0.05, judge_by="plain")).findings[0].code == "slower"
    assert all(each.fails for each in gate_of(compared(a, b, fail_above=0.05, strict=True)).findings)


def test_other_machines_without_a_baseline_cell_leave_nothing_certain(tmp_path: Path) -> None:
    a, b = (make_run(tmp_path / name, [MadeCell("ddp", 2, step_s=step_s)]) for name, step_s in (("a", 1.0), ("b", 2.0)))
    change_study(b, other_machine)
    record = compared(a, b, fail_above=0.05)
    assert codes(record) == [("other-machine", DDP), ("nothing-certain", None)]
    assert record.exit_status == 0


def test_cells_that_failed_or_are_gone_fail(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1), MadeCell("ddp", 2), MadeCell("all-reduce", 2)]
    a = make_run(tmp_path / "a", [*cells, MadeCell("bucketed", 2, state="failed", error=ERROR)])
    b = make_run(
        tmp_path / "b",
        [
            cells[0],
            replace(cells[1], state="failed", error=ERROR),
            MadeCell("bucketed", 2, state="failed", error=ERROR),
        ],
        never_started=[MadeCell("ddp", 4)],
    )
    record = compared(a, b, fail_above=0.05)
    assert codes(record) == [("failed", DDP), ("missing", "all-reduce-w2-b32")], "bucketed had no numbers before either"
    assert record.exit_status == 3
    assert "no numbers any more (B: RuntimeError: no)" in gate_of(record).findings[0].message


def test_a_cell_that_was_cut_short_fails_whatever_its_few_steps_say(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1), MadeCell("ddp", 2)]
    a = make_run(tmp_path / "a", cells)
    b = make_run(tmp_path / "b", [cells[0], replace(cells[1], state="interrupted", blocks=1)])
    record = compared(a, b, fail_above=0.05)
    assert codes(record) == [("cut-short", DDP)]
    assert record.exit_status == 3


def test_what_was_not_seen_is_not_proved(tmp_path: Path) -> None:
    record = compared(*make_pair(tmp_path, {}, noise=0.3), fail_above=0.05)
    assert record.exit_status == 0
    assert "not-ruled-out" in {code for code, _ in codes(record)}
    assert gate_lines(gate_of(record))[0] == "passed, but nothing is proved: the gate at 5 %"


def test_strict_fails_where_nothing_can_be_certain(tmp_path: Path) -> None:
    runs = make_pair(tmp_path, {DDP: 1.04}, blocks=1)
    lenient, strict = (compared(*runs, fail_above=0.05, strict=strict) for strict in (False, True))
    assert codes(strict) == [("nothing-certain", None)]
    assert (lenient.exit_status, strict.exit_status) == (0, 3)


def test_new_cells_and_sizes_that_a_sweep_chose_do_not_fail(tmp_path: Path) -> None:
    sizes = [[MadeCell("single", 1, size) for size in each] for each in ((8, 32, 120), (8, 32, 116))]
    a, b = (make_run(tmp_path / name, cells) for name, cells in zip("ab", sizes, strict=True))
    assert compared(a, b, fail_above=0.05).exit_status == 3
    for run in (a, b):
        change_study(run, lambda study: setattr(study, "settings", study.settings.model_copy(update={"sweep": True})))
    assert codes(compared(a, b, fail_above=0.05)) == []


def test_a_gate_that_can_judge_nothing_fails(tmp_path: Path) -> None:
    a, b = make_pair(tmp_path, {})
    change_study(b, other_model)
    record = compared(a, b, fail_above=0.05)
    assert record.exit_status == 3
    assert codes(record)[0] == ("nothing-judged", None)
    assert gate_of(record).findings[0].message.endswith("no common cell is the same work (other model)")
    lone = make_run(tmp_path / "c", [MadeCell("bucketed", 4)])
    assert ("nothing-judged", None) in codes(compared(lone, a, fail_above=0.05))


def test_only_relative_ratios_without_a_baseline_cell_judge_nothing(tmp_path: Path) -> None:
    a, b = (make_run(tmp_path / name, [MadeCell("ddp", 2)]) for name in "ab")
    record = compared(a, b, fail_above=0.05, judge_by="relative")
    assert record.exit_status == 3
    assert "only relative ratios were asked for" in record.verdict
