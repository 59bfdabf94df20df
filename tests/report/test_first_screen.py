"""The first screen answers: verdict, three numbers, the chart that fits the study, and the first advice."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from made_messages import add_link, add_messages
from made_runs import SHARES, MadeCell, make_run, synchronised, usual_cells
from reading import Page
from worldsize.analysis.advice import Advice, Evidence, Gain
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.report.contents import lead, sections
from worldsize.report.page import render_page
from worldsize.results.folder import load_run, write_study
from worldsize.results.records import RankPlace

HOSTILE = "<script>alert('advice')</script>"


def advice(number: int, **more: Any) -> Advice:
    told: dict[str, Any] = {
        "code": f"made-{number}",
        "cell_id": "ddp-w2-b32",
        "finding": f"Finding {number}.",
        "evidence": (Evidence(f"Label {number}", f"Value {number}"),),
        "cause": f"Cause {number}.",
        "next_step": f"Step {number}.",
        "command": f"worldsize study --steps {number}",
        "gain": Gain(f"Gain {number}", f"Basis {number}."),
    }
    return Advice(**{**told, **more})


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    run = make_run(tmp_path_factory.mktemp("usual"), usual_cells(noise=0.01))
    for cell in usual_cells(noise=0.01)[3:]:
        add_messages(run, cell, count=3)
    add_link(run, 2)
    return analyse(load_run(run))


@pytest.fixture(scope="module")
def page(usual: StudyAnalysis) -> Page:
    return Page(render_page(usual, sections(usual), [advice(1), advice(2), advice(3)]))


def test_the_first_advice_stands_on_the_first_screen_all_of_it(page: Page) -> None:
    told = [
        "Finding 1.",
        "Step 1.",
        "worldsize study --steps 1",
        "Gain 1",
        "Basis 1.",
        "Label 1",
        "Value 1",
        "Cause 1.",
    ]
    places = [page.text.index(each) for each in told]
    assert places == sorted(places)
    assert places[-1] < page.text.index("Finding 2.")
    first_table = page.text.index("N workers with b samples each per step")
    assert page.text.index("What limits it, and what to try") < page.text.index("Finding 2.") < first_table
    assert page.text.index("Finding 3.") < first_table


def test_further_advice_gives_its_reasons_first(page: Page) -> None:
    told = ["Finding 2.", "Label 2", "Value 2", "Cause 2.", "Step 2.", "worldsize study --steps 2", "Gain 2"]
    places = [page.text.index(each) for each in told]
    assert places == sorted(places)


def test_the_header_says_on_how_many_nodes_it_ran(tmp_path: Path) -> None:
    analysis = analyse(load_run(make_run(tmp_path, usual_cells(noise=0.01))))
    assert " nodes · " not in Page(render_page(analysis, sections(analysis), [])).text
    for cell in analysis.cells:
        assert cell.record is not None
        cell.record.ranks = [RankPlace(host=f"n{rank}", cores=(0,)) for rank in range(cell.world_size)]
    assert "2 nodes · " in Page(render_page(analysis, sections(analysis), [])).text


def test_a_command_is_code_and_advice_is_text(usual: StudyAnalysis) -> None:
    hostile = advice(1, finding=HOSTILE, command=HOSTILE, gain=None)
    html = render_page(usual, sections(usual), [hostile])
    page = Page(html)
    assert "<script" not in html.lower()
    assert page.text.count(HOSTILE) == 2
    assert "<pre><code><span>&lt;script&gt;alert(" in html
    assert ">Effect<" not in page.text


def test_a_command_keeps_every_space_so_that_it_can_be_copied(usual: StudyAnalysis) -> None:
    command = "worldsize study  --data-dir 'a  b'"
    html = render_page(usual, sections(usual), [advice(1, command=command)])
    [code] = re.findall(r"<code>(.*?)</code>", html, re.DOTALL)
    assert unescape(re.sub(r"<[^>]*>", "", code)) == command


def test_without_advice_nothing_pretends_to_be_some(usual: StudyAnalysis) -> None:
    page = Page(render_page(usual, sections(usual), []))
    assert "What to try first" not in page.text
    assert "What limits it, and what to try" not in page.text


def test_advice_without_a_command_has_no_empty_code(usual: StudyAnalysis) -> None:
    page = Page(render_page(usual, sections(usual), [advice(1, command=None)]))
    assert not page.all("pre")


def leads(folder: Path, cells: list[MadeCell], **settings: Any) -> str:
    run = make_run(folder, cells)
    record = load_run(run).study
    record.settings = record.asked.model_copy(update=settings)
    write_study(run, record)
    analysis = analyse(load_run(run))
    found = lead(analysis, sections(analysis))
    assert found is not None
    return found.id


def test_the_chart_of_the_first_screen_fits_the_study(tmp_path: Path) -> None:
    alone, two, four = MadeCell("single", 1), MadeCell("ddp", 2), MadeCell("ddp", 4)
    other = MadeCell("all-reduce", 2, step_s=0.6)
    assert leads(tmp_path / "strategies", [alone, two, other]) == "step-parts-b32"
    assert leads(tmp_path / "sizes", [alone, two, four]) == "throughput-b32"
    large = MadeCell("single", 1, 64, step_s=0.9)
    assert leads(tmp_path / "strong", [large, two, other], global_batch=64) == "step-parts-B64"
    sweep = {"sweep": True, "experiment": "batch-sweep"}
    assert leads(tmp_path / "sweep", [alone, large], **sweep) == "a-throughput-against-b"


def test_a_chart_stands_once_on_a_page(page: Page, usual: StudyAnalysis) -> None:
    drawn = [attributes["id"] for attributes in page.all("figure")]
    assert len(drawn) == len(set(drawn))
    assert set(drawn) == {drawing.id for section in sections(usual) for drawing in section.drawings}


def test_the_page_does_not_grow_with_ranks_and_steps(tmp_path: Path) -> None:
    sizes = []
    for ranks, blocks in ((20, 1), (120, 4)):
        shares = synchronised(SHARES, 0.2)
        cell = MadeCell("ddp", ranks, shares=shares, comm_s=0.15, overlapped_s=0.05, blocks=blocks)
        run = make_run(tmp_path / str(ranks), [MadeCell("single", 1), cell])
        add_messages(run, cell, count=10)
        analysis = analyse(load_run(run))
        sizes.append(len(render_page(analysis, sections(analysis))))
    assert sizes[1] < 1.15 * sizes[0]
    assert sizes[1] < 500_000
