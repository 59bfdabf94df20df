"""What fails a build, what is not known, and that a gate which can judge nothing does not pass."""

from dataclasses import replace
from pathlib import Path

import pytest

from made_pairs import DDP, SINGLE, change_study, compared, make_pair, make_sides
from made_runs import MadeCell, make_run
from worldsize.analysis.script_gate import Gated
from worldsize.analysis.script_gate import gate as script_gate
from worldsize.analysis.study import analyse
from worldsize.report.compare_tables import gate_lines
from worldsize.results.comparison_records import ComparisonRecord, Gate
from worldsize.results.folder import load_run
from worldsize.results.provenance import Repository, UserCode, UserFile
from worldsize.results.records import ErrorRecord, Estimate, StudyRecord

ERROR = ErrorRecord(kind="RuntimeError", message="no")


def gate_of(record: ComparisonRecord) -> Gate:
    assert record.gate is not None
    return record.gate


def codes(record: ComparisonRecord) -> list[tuple[str, str | None]]:
    return [(finding.code, finding.cell) for finding in gate_of(record).findings]


def other_machine(study: StudyRecord) -> None:
    study.provenance.host.cpu_model = "Another processor"


def other_model(study: StudyRecord) -> None:
    study.training[2].name = "vgg11"


@pytest.mark.parametrize(("factor", "status"), [(1.10, 3), (1.02, 0), (1.0, 0), (0.8, 0)])
def test_ten_percent_slower_fails_and_two_percent_does_not(tmp_path: Path, factor: float, status: int) -> None:
    record = compared(*make_sides(tmp_path, {DDP: factor}), fail_above=0.05)
    assert record.exit_status == status
    assert codes(record) == ([("slower", DDP)] if status else [])
    assert gate_of(record).outcome == ("failed" if status else "passed")


def test_without_a_limit_nothing_fails(tmp_path: Path) -> None:
    record = compared(*make_pair(tmp_path, {DDP: 2.0}))
    assert (record.gate, record.exit_status) == (None, 0)


def test_one_run_a_side_is_not_known_and_says_what_would_settle_it(tmp_path: Path) -> None:
    """The issue's own case: two runs of the same commit, and an interval of the blocks that excludes the limit."""
    a, b = make_pair(tmp_path, {SINGLE: 1.355}, noise=0.01)
    record, strict = (compared(a, b, fail_above=0.05, strict=strict) for strict in (False, True))
    assert codes(record) == [("one-run", None)]
    assert (record.exit_status, strict.exit_status) == (0, 3)
    assert gate_lines(gate_of(record))[0] == "NOT KNOWN: the gate at 5 %"
    message = gate_of(record).findings[0].message
    assert "how far two runs of the same commit lie apart is not known" in message
    assert f"the largest: {SINGLE}, slower by 35" in message
    assert gate_of(record).settle == [
        "# A, worldsize at commit 0123456789ab:",
        f"worldsize study --steps 18 --out {a}-2",
        f"worldsize study --steps 18 --out {a}-3",
        "# B, worldsize at commit 0123456789ab:",
        f"worldsize study --steps 18 --out {b}-2",
        f"worldsize study --steps 18 --out {b}-3",
        f"worldsize compare {a},{a}-2,{a}-3 {b},{b}-2,{b}-3 --fail-above 5%",
    ]


def test_what_would_settle_it_names_the_code_that_each_side_was_made_with(tmp_path: Path) -> None:
    """The user's own first: worldsize's is the same on both sides as often as not."""
    a, b = make_pair(tmp_path, {}, noise=0.01)
    files = [UserFile(name="net.py", path="/net.py", sha256="0" * 64)]
    tracked = UserCode(files=files, repositories=[Repository(folder="/", commit=f"{'b' * 40}+dirty")])
    for run, code in ((a, UserCode(files=files)), (b, tracked)):
        change_study(run, lambda study, code=code: setattr(study.provenance, "user_code", code))  # type: ignore[misc]
    headings = [line for line in gate_of(compared(a, b, fail_above=0.05)).settle if line.startswith("#")]
    assert headings == [
        "# A, with your files as they were then, worldsize at commit 0123456789ab:",
        "# B, your code at commit bbbbbbbbbbbb+dirty, worldsize at commit 0123456789ab:",
    ]


def test_a_command_that_is_not_ours_is_not_printed_to_be_pasted(tmp_path: Path) -> None:
    """A run folder may come from anybody: only words of a command of worldsize, quoted, and no line of its own."""
    a, b = make_pair(tmp_path, {}, noise=0.01)
    change_study(a, lambda study: setattr(study.provenance, "command", ("rm", "-rf", "/")))
    change_study(
        b, lambda study: setattr(study.provenance, "command", ("worldsize", "study", "a;b", "--out=x", "--resume"))
    )
    change_study(b, lambda study: setattr(study.provenance, "commit", "a\nrm b"))
    lines = gate_of(compared(a, b, fail_above=0.05)).settle
    assert lines[0] == f"# A: 2 more run(s), made as the first, worldsize at commit 0123456789ab, in {a}-2, {a}-3"
    assert lines[1:3] == ["# B:", f"worldsize study 'a;b' --out {b}-2"]


def test_what_may_be_chance_is_not_known(tmp_path: Path) -> None:
    """10 % slower in one of two runs, and as much faster in the other run of A: no more than runs differ by."""
    a, b = make_sides(tmp_path, {DDP: 1.10}, runs=2)
    _, more = make_sides(tmp_path / "more", {DDP: 1.10}, runs=1)
    lenient, strict = (compared([a[0], *more], b, fail_above=0.04, strict=strict) for strict in (False, True))
    assert codes(lenient)[0] == ("maybe-slower", DDP)
    assert "but no more than runs of the same commit may differ by" in gate_of(lenient).findings[0].message
    assert (lenient.exit_status, strict.exit_status) == (0, 3)
    assert "More than 20 runs a side would be needed" in gate_of(lenient).settle[0]


def test_the_baseline_cell_is_judged_like_any_other(tmp_path: Path) -> None:
    sides = make_sides(tmp_path, {SINGLE: 1.2})
    for judge_by in ("auto", "plain", "relative"):
        record = compared(*sides, fail_above=0.05, judge_by=judge_by)
        assert codes(record) == [("slower", SINGLE)]
        assert "faster" not in {cell.verdict for cell in record.cells}, "relative to it all others gained"


def test_a_slower_machine_of_the_same_kind_fails_whatever_is_asked_for(tmp_path: Path) -> None:
    """All runs of B on it: machine and code are indistinguishable, and a gate must not sleep."""
    sides = make_sides(tmp_path, {}, drift_b=lambda _: 1.5)
    assert codes(compared(*sides, fail_above=0.05, judge_by="relative")) == [("slower", SINGLE)]
    assert len(codes(compared(*sides, fail_above=0.05, judge_by="plain"))) == 6


def test_a_machine_of_another_kind_fails_only_who_asks_for_plain_ratios(tmp_path: Path) -> None:
    a, b = make_sides(tmp_path, {DDP: 1.3}, drift_b=lambda _: 1.5)
    for run in b:
        change_study(run, other_machine)
    record = compared(a, b, fail_above=0.05)
    assert codes(record) == [("slower", DDP), ("other-machine", SINGLE)]
    assert [finding.weight for finding in gate_of(record).findings] == ["fails", "not known"]
    assert gate_of(compared(a, b, fail_above=0.05, judge_by="plain")).findings[0].code == "slower"
    assert ("slower", SINGLE) in codes(compared(a, b, fail_above=0.05, judge_by="plain"))


def test_strict_cannot_prove_a_baseline_cell_on_another_machine(tmp_path: Path) -> None:
    a, b = make_sides(tmp_path, {}, runs=2)
    for run in b:
        change_study(run, other_machine)
    lenient, strict = (compared(a, b, fail_above=0.05, strict=strict) for strict in (False, True))
    assert (codes(lenient), lenient.exit_status) == ([], 0)
    assert (codes(strict), strict.exit_status) == ([("other-machine", SINGLE)], 3)
    assert "More runs would not settle it" in gate_of(strict).settle[0]


def test_other_machines_without_a_baseline_cell_leave_nothing_certain(tmp_path: Path) -> None:
    a, b = make_sides(tmp_path, {DDP: 2.0}, runs=2, cells=[MadeCell("ddp", 2, noise=0.01)])
    for run in b:
        change_study(run, other_machine)
    record = compared(a, b, fail_above=0.05)
    assert codes(record) == [("other-machine", DDP)]
    assert (gate_of(record).outcome, record.exit_status) == ("not known", 0)


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
    assert codes(record)[:2] == [("failed", DDP), ("missing", "all-reduce-w2-b32")], (
        "bucketed had no numbers before either"
    )
    assert record.exit_status == 3
    assert "no numbers any more (B: RuntimeError: no)" in gate_of(record).findings[0].message


def test_a_cell_that_was_cut_short_fails_whatever_its_few_steps_say(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1), MadeCell("ddp", 2)]
    a = make_run(tmp_path / "a", cells)
    b = make_run(tmp_path / "b", [cells[0], replace(cells[1], state="interrupted", blocks=1)])
    record = compared(a, b, fail_above=0.05)
    assert codes(record) == [("cut-short", DDP), ("one-run", None)]
    assert record.exit_status == 3


def test_a_cell_that_fails_in_one_run_of_b_fails_the_gate_unless_a_has_such_runs_too(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1, noise=0.01), MadeCell("ddp", 2, noise=0.01)]
    broken = [cells[0], replace(cells[1], state="failed", error=ERROR)]
    a, b = make_sides(tmp_path, {}, cells=cells)
    b[1] = make_run(tmp_path / "broken", broken)
    record = compared(a, b, fail_above=0.05)
    assert codes(record) == [("failed", DDP)]
    assert "in some runs (B2: RuntimeError: no)" in gate_of(record).findings[0].message
    a[0] = make_run(tmp_path / "before", broken, seed=99)
    assert codes(compared(a, b, fail_above=0.05)) == []


def test_what_was_not_seen_is_not_proved_and_strict_means_proved(tmp_path: Path) -> None:
    sides = make_sides(tmp_path, {}, noise=0.4, runs=2)
    lenient, strict = (compared(*sides, fail_above=0.2, strict=strict) for strict in (False, True))
    assert "not-ruled-out" in {code for code, _ in codes(lenient)}
    assert (lenient.exit_status, strict.exit_status) == (0, 3)
    assert gate_lines(gate_of(lenient))[0] == "passed, but not proved: the gate at 20 %"
    assert gate_lines(gate_of(strict))[0] == "NOT KNOWN: the gate at 20 %, strict"
    proved = compared(*make_sides(tmp_path / "quiet", {}), fail_above=0.05, strict=True)
    assert (codes(proved), proved.exit_status) == ([], 0)
    assert gate_lines(gate_of(proved)) == ["passed: the gate at 5 %, strict"]


def test_new_cells_and_sizes_that_a_sweep_chose_do_not_fail(tmp_path: Path) -> None:
    sizes = [[MadeCell("single", 1, size) for size in each] for each in ((8, 32, 120), (8, 32, 116))]
    a, b = (make_run(tmp_path / name, cells) for name, cells in zip("ab", sizes, strict=True))
    assert compared(a, b, fail_above=0.05).exit_status == 3
    for run in (a, b):
        change_study(run, lambda study: setattr(study, "settings", study.asked.model_copy(update={"sweep": True})))
    assert codes(compared(a, b, fail_above=0.05)) == [("one-run", None)]


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
    a, b = (make_run(tmp_path / name, [MadeCell("ddp", 2, noise=0.01)], seed=seed) for seed, name in enumerate("ab"))
    record = compared(a, b, fail_above=0.05, judge_by="relative")
    assert record.exit_status == 3
    assert "only relative ratios were asked for" in record.verdict


@pytest.mark.parametrize(("launches", "outcome"), [(1, "not known"), (2, "failed")])
def test_one_launch_of_a_script_decides_nothing(tmp_path: Path, launches: int, outcome: str) -> None:
    cells = [MadeCell(name, 2, step_s=step_s, noise=0.01) for name, step_s in (("ddp", 0.1), ("all-reduce", 0.15))]
    run = load_run(make_run(tmp_path / "run", cells))
    asked = run.study.asked.model_copy(update={"strategies": ("ddp", "all-reduce"), "fail_above": 0.05})
    run.study.settings = asked
    analysis = analyse(run)
    launched = tuple(replace(cell, launches={key: key[1] % launches for key in cell.blocks}) for cell in analysis.cells)
    (found,) = script_gate(replace(analysis, cells=launched))
    assert found.outcome == outcome
    assert ("by one launch" in found.text) == (launches == 1)


@pytest.mark.parametrize(
    ("high", "said"), [(1.4, "passed, but not proved: new-w1 takes"), (1.02, "passed: new-w1 takes")]
)
def test_a_gate_between_scripts_says_where_it_has_proved_nothing(high: float, said: str) -> None:
    ratio = Estimate(value=1.01, low=0.8, high=high, samples=10)
    assert Gated("old-w1", "new-w1", 0.05, "passed", ratio, "takes 1 % more").text.startswith(f"gate at 5 %: {said}")
