"""Memory in the report: the peak beside the results, and what it is made of."""

import json

import pytest

from made_runs import MadeCell, make_run
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.cli.results import content
from worldsize.report.memory_table import memory_table
from worldsize.report.result_tables import results_table
from worldsize.report.tables import to_records
from worldsize.report.write import write_report
from worldsize.results.folder import load_run, write_cell
from worldsize.results.memory_records import MemoryParts

MIB = 2**20
PARTS = MemoryParts(
    rank=1,
    parameter_bytes=100 * MIB,
    buffer_bytes=MIB,
    gradient_bytes=100 * MIB,
    optimizer_bytes=200 * MIB,
    copy_bytes=100 * MIB,
    before_bytes=11 * MIB,
)
PEAK = 768 * MIB
TOLD = MadeCell("ddp", 2)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    run = make_run(tmp_path_factory.mktemp("memory"), [MadeCell("single", 1), TOLD])
    record = load_run(run).cells[TOLD.id].record
    write_cell(run, record.model_copy(update={"peak_memory_bytes": PEAK, "memory": PARTS}))
    return analyse(load_run(run))


def test_the_peak_stands_beside_the_results(study: StudyAnalysis) -> None:
    at = [column.heading for column in results_table(study).columns].index("Peak memory (GiB)")
    assert [row[at].text for row in results_table(study).rows] == ["–", "0.750"]


def test_the_parts_add_up_to_the_peak(study: StudyAnalysis) -> None:
    (row,) = to_records(memory_table(study))
    assert (row["cell"], row["rank"], row["peak_memory_bytes"]) == (TOLD.id, 1, PEAK)
    assert row["rest_bytes"] == (768 - 512) * MIB
    names = ("parameter", "buffer", "gradient", "optimizer", "copy", "before", "rest")
    assert sum(int(row[f"{name}_bytes"] or 0) for name in names) == PEAK
    assert [entry.text for entry in memory_table(study).rows[0]][2:] == [
        "100", "1.00", "100", "200", "100", "11.0", "256", "768",
    ]  # fmt: skip


def test_page_files_and_json_have_them(study: StudyAnalysis) -> None:
    page = write_report(study.run.folder, study)
    assert "Memory, taken apart" in page.read_text(encoding="utf-8")
    assert (page.parent / "memory.csv").read_text(encoding="utf-8").startswith("cell,rank,parameter_bytes,")
    assert json.loads(json.dumps(content(study)))["memory"] == to_records(memory_table(study))
