"""`worldsize compare` as a user, and as continuous integration, types it."""

import json
import sys
from pathlib import Path

import pytest

import worldsize as package
from in_process import worldsize
from made_pairs import DDP, SINGLE, change_study, make_sides
from made_runs import MadeCell, make_run
from worldsize.cli.app import main
from worldsize.results.comparison_records import ComparisonRecord


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a0 to a2 and b0 to b2, where ddp with two workers is 10 % slower in b; c0 to c2 are b, with 2 %."""
    folder = tmp_path_factory.mktemp("runs")
    make_sides(folder, {DDP: 1.1})
    (folder / "more").mkdir()
    _, little = make_sides(folder / "more", {DDP: 1.02})
    for k, run in enumerate(little):
        run.rename(folder / f"c{k}")
    return folder


A, B = "a0,a1,a2", "b0,b1,b2"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, runs: Path) -> Path:
    monkeypatch.chdir(runs)
    return runs


def ended(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status of a command in this process."""
    monkeypatch.setattr(sys, "argv", ["worldsize", *line.split()])
    with pytest.raises(SystemExit) as caught:
        main()
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_gate_takes_no_run_on_both_sides(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs)
    assert ended("compare a0,a1 b0,a1 --fail-above 5%", monkeypatch) == 2
    assert "a1 is given on both sides of a gate" in capsys.readouterr().err


def test_the_gate_of_continuous_integration(runs: Path) -> None:
    """Store a baseline, then hold two runs against it, in processes of their own."""
    saved = worldsize("compare", A, "--save", "baseline.json", cwd=runs)
    assert (saved.returncode, saved.stderr) == (0, "")
    assert saved.stdout == "saved: baseline.json (3 runs; 6 of 6 cells have numbers in all)\n"
    gate = ("--fail-above", "5%", "--markdown", "compare.md")
    failed = worldsize("compare", "baseline.json", B, *gate, cwd=runs)
    assert (failed.returncode, failed.stderr) == (3, "")
    lines = failed.stdout.splitlines()
    assert lines[0] == "FAILED: the gate at 5 %"
    assert lines[1].startswith(f"  fails: {DDP}: slower by ")
    assert max(len(line) for line in lines) <= 80
    assert "\x1b" not in failed.stdout, "colours belong to a terminal"
    said = " ".join(failed.stdout.split())
    assert "B against A, step times of 6 cells: 1 slower, 5 indistinguishable." in said
    assert "The unit is the run" in said
    assert "Provenance and settings are the same." in said
    assert (runs / "compare.md").read_text().startswith("## worldsize: FAILED: the gate at 5 %\n")
    passed = worldsize("compare", "baseline.json", "c0,c1,c2", "--fail-above", "0.05", "--json", cwd=runs)
    assert (passed.returncode, passed.stderr) == (0, "")
    record = ComparisonRecord.model_validate_json(passed.stdout)
    assert record.gate is not None
    assert (record.gate.outcome, record.gate.failed, record.gate.findings) == ("passed", False, [])
    assert (record.a.path, record.b.path) == ("baseline.json", "c0,c1,c2")
    assert [len(side.runs) for side in (record.a, record.b)] == [3, 3]


def test_json_says_all_of_it_and_ends_with_the_same_status(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(f"compare {A} {B} --json --fail-above 5% --judge-by relative", monkeypatch) == 3
    content = json.loads(capsys.readouterr().out)
    [cell] = [cell for cell in content["cells"] if cell["id"] == DDP]
    assert (cell["verdict"], cell["judged_by"], cell["baseline"]) == ("slower", "relative", SINGLE)
    assert cell["relative"]["low"] > 1.05
    assert [finding["cell"] for finding in content["gate"]["findings"]] == [DDP]
    assert content["changes"] == []
    sides = A.split(","), [place / name for name in B.split(",")]
    same = package.compare(*sides, fail_above=0.05, judge_by="relative")
    assert content == json.loads(same.model_dump_json()) | {"b": content["b"]}


def test_without_a_gate_it_ends_with_0(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(f"compare {A} {B}", monkeypatch) == 0
    out = capsys.readouterr().out
    assert out.startswith("B against A, step times of 6 cells: 1 slower")
    assert "gate" not in out


def test_what_changed_and_what_only_one_has_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "a", [MadeCell("single", 1), MadeCell("ddp", 2)])
    make_run(tmp_path / "b", [MadeCell("single", 1), MadeCell("ddp", 4)], never_started=[MadeCell("[red]x:Y", 2)])
    change_study(tmp_path / "b", lambda study: setattr(study.provenance, "torch_version", "[bold]2.14[/bold]"))
    assert ended("compare a b", monkeypatch) == 0
    out = capsys.readouterr().out
    assert "Only in A: ddp-w2-b32." in out
    assert "Only in B: ddp-w4-b32, _red_x_Y-w2-b32 (planned)." in out
    [line] = [line for line in out.splitlines() if line.startswith("software: torch")]
    assert line.split() == ["software:", "torch", "2.13.0+cpu", "[bold]2.14[/bold]"]


def test_one_run_a_side_passes_without_a_claim_and_prints_what_would_settle_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended("compare a0 b0 --fail-above 5% --markdown one.md", monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "NOT KNOWN: the gate at 5 %"
    told = lines[lines.index("To settle it:") + 1 :]
    assert told[1] == "  worldsize study --steps 18 --out a0-2"
    assert told[6] == "  worldsize compare a0,a0-2,a0-3 b0,b0-2,b0-3 --fail-above 5%"
    assert f"    {told[6].strip()}\n" in (place / "one.md").read_text()
    assert ended("compare a0 b0 --fail-above 5% --strict", monkeypatch) == 3


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("a0", ["a second side is missing", "--save FILE"]),
        ("a0 nowhere", ["nowhere does not exist: give a run folder or a stored baseline"]),
        ("a0 more", ["is not a worldsize run folder"]),
        ("a0/study.json b0", ["is a part of a run folder"]),
        ("a0 b0 --fail-above five", ["--fail-above: 'five' was given", "3% or 0.03"]),
        ("a0 b0 --fail-above 5", ["--fail-above: '5' was given", "did you mean 5%?"]),
        ("a0 b0 --fail-above -5%", ["--fail-above: -5% was given", "at least 0%"]),
        ("a0 b0 --fail-above nan", ["--fail-above: nan was given", "finite"]),
        ("a0 b0 --strict", ["give --fail-above as well"]),
        (
            "a0 b0 --judge-by feeling",
            ["--judge-by: 'feeling' was given", "'auto', 'relative', 'plain' or 'normalised'"],
        ),
        ("a0 b0 --save x.json", ["--save stores one side and compares nothing"]),
        ("a0 --save x.json --fail-above 5%", ["--save stores one side and compares nothing"]),
        ("a0 --save more", ["cannot write more: Is a directory", "with --save"]),
        ("a0,a0 b0", ["a0 is given twice on one side"]),
        ("a0, b0", ["names an empty path"]),
        ("a0,nowhere b0", ["nowhere does not exist"]),
        ("a0,empty --save x.json", ["empty has no cell with numbers"]),
        ("empty --save x.json", ["empty has no cell with numbers"]),
    ],
)
def test_mistakes_end_with_2_and_one_or_two_lines(
    place: Path, line: str, told: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "empty" in line and not (place / "empty").exists():
        make_run(place / "empty", [MadeCell("ddp", 2, blocks=0)])
    assert ended(f"compare {line}", monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("worldsize: ")
    assert len(err.splitlines()) in (1, 2)
    for words in told:
        assert words in err
    assert not (place / "x.json").exists()


def test_what_was_found_is_printed_even_where_the_markdown_cannot_be_written(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(f"compare {A} {B} --markdown more", monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out.startswith("B against A")
    assert "Give a file you may write to with --markdown." in err
