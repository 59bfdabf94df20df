"""What is found in an analysis is found once, however many tables, files and lines of the terminal show it."""

import inspect
import io
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rich.console import Console

from made_runs import make_run, usual_cells
from worldsize.analysis.advice import advise
from worldsize.analysis.decision import decision
from worldsize.analysis.groups import groups
from worldsize.analysis.headline import headline
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.verdict import verdict
from worldsize.cli.results import content, print_results
from worldsize.report.write import write_report
from worldsize.results.folder import load_run


def everything(run: Path, analysis: StudyAnalysis) -> None:
    page = write_report(run, analysis)
    print_results(analysis, page, Console(file=io.StringIO()))
    content(analysis)


def test_a_report_finds_its_verdict_and_its_advice_once(tmp_path: Path) -> None:
    analysis = analyse(load_run(make_run(tmp_path, usual_cells(noise=0.01))))
    codes: dict[CodeType, str] = {
        inspect.unwrap(function).__code__: function.__name__
        for function in (headline, decision, advise, verdict, groups)
    }
    calls = Counter[str]()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes:
            calls[codes[frame.f_code]] += 1

    sys.setprofile(count)
    try:
        everything(tmp_path, analysis)
    finally:
        sys.setprofile(None)
    assert calls == dict.fromkeys(("headline", "decision", "advise", "verdict", "groups"), 1)


def test_what_was_found_belongs_to_one_analysis(tmp_path: Path) -> None:
    first, second = (
        analyse(load_run(make_run(tmp_path / name, cells)))
        for name, cells in (("all", usual_cells()), ("one", usual_cells()[:1]))
    )
    assert headline(first) is headline(first)
    assert headline(second) is None
    assert verdict(first) != verdict(second)
