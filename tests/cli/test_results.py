"""What a command ends with: in the terminal, and as JSON."""

import io
import json
import re
import stat
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from in_process import worldsize
from made_runs import MadeCell, make_run, messy_cells, usual_cells
from worldsize.analysis.advice import Advice, Gain
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.cli import results
from worldsize.cli.output import finite
from worldsize.cli.report import show_in_browser
from worldsize.cli.results import (
    MAX_WARNINGS,
    content,
    print_results,
    report_and_print,
    terminal_tables,
    warning_lines,
)
from worldsize.report.tables import Table
from worldsize.results.folder import load_run, write_study
from worldsize.results.records import ErrorRecord, WarningRecord

COMMAND = "worldsize study --strategies single,ddp --world-sizes 1,2 --batch-sizes 32,64,128 --threads-per-worker 1"
ADVICE = Advice(
    code="communication-bound",
    cell_id="ddp-w2-b32",
    finding="ddp with 2 workers waits 212 ms of each step for messages, and the link is already at its peak rate.",
    evidence=(),
    cause="The link carries no more.",
    next_step="Take a larger local batch, so that each exchange is paid for by more computing.",
    command=COMMAND,
    gain=Gain("at most 1.31 times the samples/s", "the step without its exposed communication, as measured here"),
)


def analysed(folder: Path, **changes: Any) -> StudyAnalysis:
    return analyse(load_run(make_run(folder, usual_cells(), **changes)))


def advised(monkeypatch: pytest.MonkeyPatch, *advice: Advice) -> None:
    monkeypatch.setattr(results, "advise", lambda analysis: advice)


def printed(analysis: StudyAnalysis) -> list[str]:
    console = Console(file=io.StringIO(), width=80, highlight=False, markup=False)
    with console.capture() as capture:
        print_results(analysis, Path("run/report/index.html"), console)
    return capture.get().splitlines()


def swept(folder: Path) -> StudyAnalysis:
    """A batch sweep: b = 16 is the knee, 100 the largest, 120 did not fit, and 64 was only tried."""
    error = ErrorRecord(kind="OutOfMemory", message="no memory", rank=0)
    cells = [
        MadeCell("single", 1, 16, step_s=0.5),
        MadeCell("single", 1, 64, blocks=0, warmup_steps=0),
        MadeCell("single", 1, 100, step_s=3.1, noise=0.01),
        MadeCell("single", 1, 120, state="failed", error=error, blocks=0),
    ]
    run = load_run(make_run(folder, cells))
    settings = run.study.asked.model_copy(update={"sweep": True, "experiment": "batch-sweep"})
    write_study(folder, run.study.model_copy(update={"settings": settings}))
    return analyse(load_run(folder))


def test_the_verdict_first_then_the_advice_then_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advised(monkeypatch, ADVICE, replace(ADVICE, code="other"))
    lines = printed(analysed(tmp_path))
    assert lines[0] == ""
    assert lines[1].startswith("2 workers are 1.8")
    order = [
        "Finding: ddp with 2",
        "Next:    Take a larger",
        f"    {COMMAND}",
        "Effect:  at most 1.31",
        "1 more in the",
    ]
    order += ["Results", "report: run/report/index.html"]
    places = [next(i for i, line in enumerate(lines) if line.startswith(part)) for part in order]
    assert places == sorted(places)
    assert lines[-1] == "report: run/report/index.html"
    assert max(len(line) for line in lines if COMMAND not in line) <= 80
    joined = " ".join(" ".join(lines).split())
    assert "samples/s (the step without its exposed communication, as measured here)" in joined


def test_a_command_can_be_copied_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = f"{COMMAND} --data-dir /a/folder/{'deep/' * 30} --out runs/[next]"
    advised(monkeypatch, replace(ADVICE, command=long, gain=None))
    lines = printed(analysed(tmp_path))
    assert f"    {long}" in lines
    assert not [line for line in lines if line.startswith("Gain")]


def test_without_advice_nothing_stands_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advised(monkeypatch)
    assert not [line for line in printed(analysed(tmp_path)) if line.startswith(("Finding", "Next", "Gain"))]


def width(table: Table) -> int:
    grid = [[c.heading for c in table.columns], *([entry.plain for entry in row] for row in table.rows)]
    return sum(max(map(len, column)) for column in zip(*grid, strict=True)) + 2 * (len(table.columns) - 1)


@pytest.mark.parametrize("make", [usual_cells, messy_cells, lambda: [MadeCell("ddp", 2, noise=0.01)]])
def test_every_table_fits_80_columns(tmp_path: Path, make: Any) -> None:
    tables = list(terminal_tables(analyse(load_run(make_run(tmp_path, make())))))
    assert {table.id for table in tables} >= {"compact"}
    assert [(table.id, width(table)) for table in tables if width(table) > 80] == []


def test_a_sweep_has_columns_of_its_own_and_its_knee_marked(tmp_path: Path) -> None:
    analysis = swept(tmp_path)
    lines = [line.split() for line in printed(analysis)]
    assert ["b", "Fits", "ms/step", "Samples/s", "Of", "best", "%", "Peak", "memory", "GiB"] in lines
    assert ["16", "yes", "500", "32.0", "99.2", "–", "←", "knee"] in lines
    assert ["64", "yes", "–", "–", "–", "–"] in lines
    assert lines[[line[:1] for line in lines].index(["100"])][-2:] == ["←", "largest"]
    assert ["120", "no", "–", "–", "–", "–"] in lines
    assert "Strategy" not in {line[0] for line in lines if line}
    assert max(width(table) for table in terminal_tables(analysis)) <= 80


def warned(count: int, *codes: str) -> list[WarningRecord]:
    return [
        WarningRecord(code=code, message=f"{code} {n}: {'far too long ' * 20}") for code in codes for n in range(count)
    ]


def test_warnings_are_short_and_counted_the_grave_ones_first(tmp_path: Path) -> None:
    lines = printed(analysed(tmp_path, warnings=warned(3, "drift", "busy", "data-differ", "load", "other")))
    begins = [i for i, line in enumerate(lines) if line.startswith("warning (")]
    assert [re.findall(r"\): (\S+) 0:", lines[i]) for i in begins] == [["data-differ"], ["drift"], ["busy"]]
    assert len(begins) == MAX_WARNINGS
    assert begins == list(range(begins[0], begins[0] + 2 * MAX_WARNINGS, 2)), "two lines each"
    assert all(lines[i + 1].endswith("… (and 2 like it)") for i in begins)
    assert lines[begins[-1] + 2] == "6 more; all in full in the report."
    assert max(len(line) for line in lines if not line.startswith("    worldsize ")) <= 80, (
        "but a command, to be copied"
    )


def test_a_short_warning_is_told_to_its_first_line_end() -> None:
    warning = WarningRecord(code="busy-machine", message="the load was 2\nBusiest now: nothing.")
    assert warning_lines(("study", warning), 0, 80) == ["warning (study): the load was 2"]
    assert warning_lines(("study", warning), 1, 80) == ["warning (study): the load was 2 (and 1 like it)"]


def test_no_warning_no_word_of_it(tmp_path: Path) -> None:
    assert "warning" not in " ".join(printed(analysed(tmp_path)))


def test_json_holds_verdict_advice_results_and_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advised(monkeypatch, ADVICE)
    found = content(analysed(tmp_path, warnings=warned(1, "busy")))
    assert found["verdict"].startswith("2 workers are 1.8")
    assert found["workers"] == "several"
    assert [(each["code"], each["command"]) for each in found["advice"]] == [("communication-bound", COMMAND)]
    rows = {row["cell"]: row for row in found["results"]}
    assert list(rows) == list(found["cells"]) == found["study"]["plan"]
    assert rows["ddp-w2-b32"]["scaled_speedup"] == pytest.approx(1.8, rel=0.02)
    assert [(each["where"], each["code"]) for each in found["warnings"]] == [("study", "busy")]
    assert (found["sweeps"], found["parts"]) == ([], {})


def test_json_of_a_sweep(tmp_path: Path) -> None:
    [sweep] = content(swept(tmp_path))["sweeps"]
    assert (sweep["strategy"], sweep["world_size"], sweep["knee"], sweep["largest"]) == ("single", 1, 16, 100)
    assert [(row["local_batch"], row["step_s"]) for row in sweep["rows"]][:2] == [(16, 0.5), (64, None)]


def test_json_of_a_part_is_in_its_study(tmp_path: Path) -> None:
    make_run(tmp_path / "parts" / "accuracy", [MadeCell("ddp", 2)])
    found = content(analysed(tmp_path))
    assert [row["cell"] for row in found["parts"]["accuracy"]["results"]] == ["ddp-w2-b32"]


def test_what_is_not_finite_is_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, [MadeCell("single", 1)])
    study = load_run(run).study
    study.settings = study.asked.model_copy(update={"weight_decay": float("nan")})
    analysis = replace(analyse(load_run(run)), run=load_run(run))
    analysis.run.study = study

    def refuse(name: str) -> None:
        raise ValueError(name)

    text = json.dumps(finite(content(analysis)))
    assert json.loads(text, parse_constant=refuse)["study"]["settings"]["weight_decay"] is None


@pytest.fixture
def browser(tmp_path: Path) -> Path:
    """A browser that writes down what it is asked to open."""
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\nprintf "%s" "$1" > "{tmp_path}/opened"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_report_opens_its_page_and_json_stays_alone_on_stdout(tmp_path: Path, browser: Path) -> None:
    make_run(tmp_path / "a run", messy_cells())
    done = worldsize("report", "a run", "--open", "--json", cwd=tmp_path, BROWSER=str(browser))
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["report"] == "a run/report/index.html"
    page = tmp_path / "a run" / "report" / "index.html"
    assert (tmp_path / "opened").read_text() == page.as_uri()
    assert page.is_file()


def test_without_a_browser_the_path_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webbrowser, "_tryorder", [])
    show_in_browser(tmp_path / "index.html")
    assert capsys.readouterr().err == f"no browser could be opened here; the page is {tmp_path / 'index.html'}\n"


def test_nothing_is_printed_where_nothing_could_be_read(tmp_path: Path) -> None:
    done = worldsize("report", tmp_path, "--json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("worldsize: ")


def test_the_report_that_is_written_is_the_one_that_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = report_and_print(make_run(tmp_path, [MadeCell("single", 1)]), as_json=False).page
    assert page == tmp_path / "report" / "index.html"
    assert page.is_file()
    assert f"report: {page}" in capsys.readouterr().out
