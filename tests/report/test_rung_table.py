"""Which strategy pays off, in the report, in files, as JSON and in a terminal."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from advised import SINGLE, study
from made_runs import MadeCell
from made_trainings import Course, make_trainings
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.cli.results import content, print_results
from worldsize.report.contents import sections
from worldsize.report.rung_table import OWN_WEIGHTS_MARK, rung_table
from worldsize.report.tables import shown, to_markdown, to_records
from worldsize.report.write import write_report
from worldsize.results.folder import load_run
from worldsize.traits import TRAITS

LEVEL = (0.5, 0.6, 0.7, 0.8)


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    """By steps, with one seed."""
    cells = [
        SINGLE,
        MadeCell("all-reduce", 2, step_s=0.8, rank_spread=0),
        MadeCell("ddp", 2, step_s=0.6, rank_spread=0),
        MadeCell("ddp-bf16", 2, step_s=0.3, rank_spread=0, losses=lambda step: 2.31 / (1 + 0.05 * step)),
        MadeCell("bucketed-fp16", 2, step_s=0.4, rank_spread=0, losses=lambda step: None if step > 9 else 2.0),
    ]
    return study(tmp_path_factory.mktemp("timed"), cells, hosts=2, link="100mbit")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    """Of whole epochs, with three seeds."""
    exact = Course(2, 16, [LEVEL] * 3)
    lossy = Course(2, 16, [LEVEL] * 3, step_s=0.05, strategy="ddp-bf16", loss_above=(0.049, 0.05, 0.051))
    folder = tmp_path_factory.mktemp("trained")
    return analyse(load_run(make_trainings(folder, [exact, lossy], seeds=3)))


def test_each_strategy_has_a_row_and_one_is_the_reference(timed: StudyAnalysis) -> None:
    rows = to_records(rung_table(timed))
    assert [(row["cell"], row["training"]) for row in rows] == [
        ("all-reduce-w2-b32", "exact"),
        ("ddp-w2-b32", "exact, the reference"),
        ("ddp-bf16-w2-b32", "one seed"),
        ("bucketed-fp16-w2-b32", "loss no longer finite"),
    ]
    assert {row["reference"] for row in rows} == {"ddp-w2-b32"}
    ratios = [row["speed_ratio"] for row in rows]
    assert ratios[1] is None
    assert [ratios[0], *ratios[2:]] == [pytest.approx(0.75), pytest.approx(2.0), pytest.approx(1.5)]
    assert [row["loss_is"] for row in rows] == [None, None, "one seed", "higher"]
    assert rows[2]["loss_samples"] == 1280
    assert rows[2]["loss_difference_low"] is None


def test_differences_of_several_seeds_have_intervals(trained: StudyAnalysis) -> None:
    row = to_records(rung_table(trained))[1]
    assert row["loss_difference"] == pytest.approx(0.05)
    assert row["loss_difference_low"] == pytest.approx(0.05 - 4.303 * 0.001 / 3**0.5, rel=1e-3)
    assert (row["accuracy_difference"], row["accuracy_is"], row["seeds"]) == (0, "indistinguishable", 3)
    assert row["training"] == "loss higher, accuracy indistinguishable"
    assert "+0.0500 [0.0475, 0.0525]" in to_markdown(rung_table(trained))


def test_what_is_not_known_has_no_column_for_people(timed: StudyAnalysis, trained: StudyAnalysis) -> None:
    of_steps, of_epochs = ({column.label for column in shown(rung_table(each)).columns} for each in (timed, trained))
    assert of_epochs - of_steps == {"Accuracy difference"}
    assert {"Seeds", "Loss difference"} <= of_steps


def test_it_is_a_section_with_files_of_its_own_and_in_json(timed: StudyAnalysis, tmp_path: Path) -> None:
    (section,) = (each for each in sections(timed) if each.id == "rungs")
    (said,) = section.paragraphs
    assert said.startswith("ddp-bf16 with 2 workers at b = 32 is the fastest of its N and b. Against ddp, ")
    # The last quarter of 20 steps: 0.01 / (1 + 0.05·step), mean over steps 15 to 19.
    assert "the training loss after 1,280 samples differs by +0.00541 from that of ddp (one seed; no interval)" in said
    page = write_report(timed.run.folder, timed)
    assert 'id="rungs"' in page.read_text()
    assert "### Which strategy pays off" in (page.parent / "summary.md").read_text()
    assert (page.parent / "rungs.csv").read_text().count("\n") == 5
    assert json.loads(json.dumps(content(timed)))["rungs"][2]["cell"] == "ddp-bf16-w2-b32"


def test_a_study_of_exact_strategies_has_none(tmp_path: Path) -> None:
    exact = study(tmp_path, [SINGLE, MadeCell("ddp", 2, step_s=0.6)])
    assert "rungs" not in {each.id for each in sections(exact)}
    assert content(exact)["rungs"] == []


@pytest.mark.parametrize("width", [80, 60, 40])
def test_no_line_is_wider_than_the_terminal(timed: StudyAnalysis, trained: StudyAnalysis, width: int) -> None:
    for analysis, seen in ((timed, ("2.00", "1,280 samples")), (trained, ("+0.0500", "[0.0475,"))):
        console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
        with console.capture() as capture:
            print_results(analysis, Path("run/report/index.html"), console)
        lines = capture.get().splitlines()
        copied = ("report: ", "    worldsize ")
        assert max(len(line) for line in lines if not line.startswith(copied)) <= width
        assert "Which strategy pays off" in lines
        text = " ".join(" ".join(lines[lines.index("Which strategy pays off") :]).split())
        assert all(each in text for each in seen)
        assert "ddp-bf16" in text
        assert width < 80 or analysis is trained or "bucketed-fp16 " in text, "names that differ at their end are whole"


def test_own_weights_are_marked_and_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRAITS, "ddp-bf16", TRAITS["ddp-bf16"].model_copy(update={"travels": "weights"}))
    exact = MadeCell("ddp", 2, step_s=0.6)
    analysis = study(tmp_path, [SINGLE, exact, replace(exact, strategy="ddp-bf16", step_s=0.3)])
    table = rung_table(analysis)
    assert to_records(table)[1]["loss_is"] == "not known"
    assert f"0{OWN_WEIGHTS_MARK}" in [entry.text for entry in table.rows[1]]
    assert "the unit of comparison is samples and accuracy" in table.note
