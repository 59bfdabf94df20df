from pathlib import Path

import pytest

from made_messages import with_messages
from made_runs import MadeCell, make_run, messy_cells, usual_cells
from worldsize.analysis.study import analyse
from worldsize.errors import OutputError
from worldsize.report.latex import to_latex
from worldsize.report.result_tables import results_table
from worldsize.report.write import write_report
from worldsize.results.folder import load_run
from worldsize.results.records import WarningRecord

TABLES = {
    "results",
    "parts",
    "parts-by-rank",
    "timeline",
    "messages",
    "weak-scaling",
    "strong-scaling",
    "serial-fraction",
    "communication",
    "epoch",
    "wire",
    "memory",
    "accuracy",
    "assumptions",
    "same-training",
    "warnings",
    "provenance",
}


CELLS = usual_cells(noise=0.02)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a usual run."""
    return write_report(with_messages(make_run(tmp_path_factory.mktemp("usual"), CELLS), CELLS))


def test_writes_page_tables_and_charts_into_the_run_folder(page: Path) -> None:
    assert page.name == "index.html"
    assert (page.parent.name, (page.parent.parent / "study.json").exists()) == ("report", True)
    names = {path.name for path in page.parent.iterdir()}
    tables = {f"{table}.csv" for table in TABLES}
    filled = {f"{Path(name).stem}.md" for name in tables if (page.parent / name).read_text().count("\n") > 1}
    assert {"results.md", "parts.md"} <= filled
    latex = {f"{Path(name).stem}.tex" for name in filled}
    charts = {
        f"{chart}.{kind}"
        for chart in (
            "step-parts-b32",
            "throughput-b32",
            "loss-b32",
            "speedup-weak-b32",
            "timeline-b32-w2",
            "bandwidth",
        )
        for kind in ("svg", "png")
    }
    others = {"index.html", "summary.md", "samples.parquet", "messages.parquet"}
    assert names == tables | filled | latex | charts | others
    assert 20_000 < page.stat().st_size < 5_000_000


def test_the_page_offers_each_table_and_chart_in_all_its_forms(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in ("results.csv", "results.md", "results.tex", "loss-b32.svg", "loss-b32.png", "samples.parquet"):
        assert f'href="{name}"' in text
    latex = page.with_name("results.tex").read_text(encoding="utf-8")
    assert latex == to_latex(results_table(analyse(load_run(page.parent.parent))))


def test_every_file_that_the_page_links_to_is_there(tmp_path: Path) -> None:
    page = write_report(make_run(tmp_path, messy_cells()))
    links = set(part.split('"')[0] for part in page.read_text(encoding="utf-8").split('href="')[1:])
    files = {link for link in links if not link.startswith(("#", "data:"))}
    assert len(files) > 20
    assert [link for link in files if not (page.parent / link).exists()] == []


def test_charts_of_each_local_batch_that_of_the_verdict_first(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1, b, step_s=s) for b, s in ((32, 0.5), (64, 0.9))]
    cells += [MadeCell("ddp", 2, b, step_s=s) for b, s in ((32, 0.6), (64, 0.95))]
    page = write_report(make_run(tmp_path, cells)).read_text(encoding="utf-8")
    assert page.index('id="step-parts-b64"') < page.index("<table") < page.index('id="step-parts-b32"')


def test_a_report_made_again_from_the_same_samples_is_the_same(page: Path) -> None:
    first = {path.name: path.read_bytes() for path in page.parent.iterdir()}
    write_report(page.parent.parent)
    assert {path.name: path.read_bytes() for path in page.parent.iterdir()} == first


def test_a_warning_that_is_gone_is_gone_from_the_files(tmp_path: Path) -> None:
    warning = WarningRecord(code="busy-machine", message="load 3.5 on 2 cores")
    path = write_report(make_run(tmp_path, [], warnings=[warning])).with_name("warnings.csv")
    assert "busy-machine" in path.read_text(encoding="utf-8")
    write_report(make_run(tmp_path, []))
    assert path.read_text(encoding="utf-8") == "code,where,message\n"


def test_summary_has_the_verdict_and_only_tables_with_rows(page: Path) -> None:
    summary = page.with_name("summary.md").read_text(encoding="utf-8")
    assert summary.startswith("# made\n\n2 workers are 1.7")
    assert "### Results" in summary
    assert "### Strong scaling" not in summary
    assert "## What limits it, and what to try\n\n1. " in summary
    assert "\n       worldsize " in summary
    assert "![Where a step goes, b = 32](step-parts-b32.svg)" in summary


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="not a worldsize run folder"):
        write_report(tmp_path)


def test_a_report_that_cannot_be_written_is_the_users_to_solve(tmp_path: Path) -> None:
    run = make_run(tmp_path, [MadeCell("single", 1)])
    (run / "report").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write"):
        write_report(run)
