"""`worldsize comm`: progress on stderr, results alone on stdout."""

import importlib
import io
import math
import re
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from made_reports import made_link
from worldsize.analysis.comm_report import comm_report
from worldsize.cli import comm_display
from worldsize.cli.app import main
from worldsize.cli.comm_display import CommDisplay
from worldsize.config import CommSettings
from worldsize.results.comm_records import CommRecord, CommReport, CommSample
from worldsize.study.comm_budget import cases as planned
from worldsize.study.sampling import Ask, Case, Sampling, Together

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Clock:
    """A clock that is told."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def ask_of(clock: Clock) -> Ask:
    """A link of 100 MB/s between two workers, which takes the clock's time."""

    def ask(case: Case, *, calls: int, block: int) -> Together:
        length_s = calls * case.size_bytes / 1e8
        clock.now_s += length_s
        times = {"begin_ns": 0, "end_ns": round(1e9 * length_s), "clock_error_ns": 0}
        return [
            CommSample(collective=case.collective, size_bytes=case.size_bytes, calls=calls, wrong_elements=0, **times)
        ] * 2

    return ask


def sampling(clock: Clock, display: CommDisplay, budget_s: float = 4.0) -> Sampling:
    """The benchmark of that link."""
    cases = [Case(name, size) for name in ("all-reduce", "gather") for size in (2**16, 2**20, 2**22)]
    end_s = clock.now_s + budget_s
    return Sampling(cases, ask_of(clock), samples=None, left_s=lambda: end_s - clock.now_s, heard=display.sampled)


def test_in_a_pipe_each_round_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with CommDisplay(4.0, clock) as display:
        display.starting(2)
        sampling(clock, display).run()
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "  starting 2 workers"
    for phase in ("one call of each size: 6 of 6 sizes", "round 1 of 7: 6", "round 2 of 7: 6", "round 7 of 7: 6"):
        assert phase in err
    assert "of 4 s" in err
    assert max(map(len, lines)) <= 80
    assert len(lines) < 16


@pytest.mark.parametrize(("width", "row"), [(80, r"4 MiB +0\.100 +0\.100"), (100, r"4 MiB +0\.100 ±0% +0\.100 ±0%")])
def test_on_a_terminal_a_table_grows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, row: str
) -> None:
    terminal = {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1", "TERM": "xterm", "COLUMNS": str(width)}
    for name, value in terminal.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(comm_display, "BETWEEN_S", 0.0)
    clock = Clock()
    with CommDisplay(None, clock) as display:
        display.starting(2)
        asked = sampling(clock, display)
        small = asked.cases[0]
        asked._first_call(small)
        first = ESCAPE.sub("", capsys.readouterr().err)
        asked.run()
        later = ESCAPE.sub("", capsys.readouterr().err)
    assert "GB/s" in first
    assert "64 KiB" in first
    assert "4 MiB" not in first
    assert re.search(row, later)


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_of_all_collectives_fits_the_terminal(width: int) -> None:
    clock = Clock()
    names = CommSettings().collectives
    cases = [case for case in planned(CommSettings()) if case.size_bytes in (1024, 2**22)]
    assert {case.collective for case in cases} > {*names}
    found = Sampling(cases, ask_of(clock), samples=3, left_s=lambda: math.inf)
    found.run()
    file = io.StringIO()
    Console(file=file, width=width).print(comm_display.grid(found, 2, wide=width >= comm_display.WIDE))
    lines = file.getvalue().splitlines()
    assert len(lines) == 3
    assert all(name in lines[0] for name in names)
    assert "…" not in file.getvalue()


def test_a_quick_row_of_samples_is_drawn_seldom(capsys: pytest.CaptureFixture[str]) -> None:
    """Each drawing makes new intervals, and the ranks wait meanwhile."""
    clock = Clock()
    with CommDisplay(4.0, clock) as display:
        found = sampling(clock, display)
        found._in_rounds = lambda samples: None  # type: ignore[method-assign]
        found._widest_first = lambda: None  # type: ignore[method-assign]
        found.run()
        capsys.readouterr()
        found.widening = True
        for _ in range(50):
            clock.now_s += comm_display.LINE_S / 10
            display.sampled(found)
        assert 4 <= len(capsys.readouterr().err.splitlines()) <= 5


def test_json_holds_the_table_and_progress_goes_to_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With real workers, in a short budget."""
    line = "comm --collectives broadcast,gather --top 64KiB --budget 4s --threads-per-worker 1 --json --out raw.json"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["worldsize", *line.split()])
    # A budget begins with the process of the command, which is that of all these tests.
    monkeypatch.setattr(importlib.import_module("worldsize.study.budget"), "began_s", time.monotonic)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    out, err = capsys.readouterr()
    report = CommReport.model_validate_json(out)
    raw = CommRecord.model_validate_json(Path("raw.json").read_text())
    assert report == comm_report(raw)
    assert [row.size_bytes for row in report.table] == 2 * [1024, 4096, 16384, 65536]
    assert all(row.wrong_elements == 0 and math.isfinite(row.busbw_gb_per_s.value) for row in report.table)
    assert "starting 2 workers" in err
    assert "one call of each size: 8 of 8 sizes" in err


def test_the_tables_and_the_json_have_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    record = made_link(2)
    comm_display.print_comm(record)
    out = capsys.readouterr().out
    row = comm_report(record).table[-1]
    assert f"{1e3 * row.time_s.value:.0f} [" in out
    assert f"{row.busbw_gb_per_s.value:.3f}" in out
