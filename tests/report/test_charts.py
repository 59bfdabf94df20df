import io
import re
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from PIL import Image

from checked import checked_charts as checked_charts
from made_runs import MadeCell, make_run, messy_cells, usual_cells
from worldsize.analysis.groups import Group, groups
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.report.charts.colours import PART_COLOURS
from worldsize.report.charts.loss import loss_chart, thinned
from worldsize.report.charts.parts import parts_chart, sample_parts_chart
from worldsize.report.charts.scaling import throughput_chart
from worldsize.report.result_tables import PART_LABELS
from worldsize.report.svg import INK, Drawing, inline, png
from worldsize.results.folder import load_run
from worldsize.results.records import STEP_PARTS


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    return analyse(load_run(make_run(tmp_path_factory.mktemp("usual"), usual_cells(noise=0.01))))


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    return analyse(load_run(make_run(tmp_path_factory.mktemp("messy"), messy_cells())))


def group(analysis: StudyAnalysis, batch: int = 32) -> Group:
    [found] = [each for each in groups(analysis) if each.batch == batch]
    return found


def all_charts(analysis: StudyAnalysis) -> list[Drawing | None]:
    found = group(analysis)
    return [parts_chart(found), throughput_chart(analysis, found), loss_chart(found, 1)]


def words(svg: str) -> set[str]:
    """All texts that are drawn; fails on an SVG that is not well-formed."""
    return {element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}


def drawn(drawing: Drawing | None) -> Drawing:
    assert drawing is not None
    return drawing


def test_bars_show_every_cell_part_and_total(usual: StudyAnalysis) -> None:
    drawing = drawn(parts_chart(group(usual)))
    for svg in (drawing.wide, drawing.narrow):
        assert {"single, N = 1", "ddp, N = 1", "ddp, N = 2", "gather-scatter, N = 2"} <= words(svg)
        assert {PART_LABELS[part] for part in STEP_PARTS} <= words(svg)
    assert any(re.fullmatch(r"\d+(\.\d)? samples/s", word) for word in words(drawing.wide))
    assert any(re.fullmatch(r"\d+(\.\d)?/s", word) for word in words(drawing.narrow))


def test_the_configuration_with_the_most_samples_comes_first(usual: StudyAnalysis) -> None:
    drawing = drawn(parts_chart(group(usual)))
    assert drawing.description.index("first: ddp, N = 2") < drawing.description.index("The longest step")
    heights = {
        (element.text or ""): float(re.findall(r"[\d.]+", element.get("transform") or "")[1])
        for element in ElementTree.fromstring(drawing.wide).iter("{http://www.w3.org/2000/svg}text")
        if ", N = " in (element.text or "")
    }
    assert sorted(heights, key=lambda label: heights[label]) == [
        "ddp, N = 2",
        "all-reduce, N = 2",
        "gather-scatter, N = 2",
        "data-parallel, N = 2",
        "single, N = 1",
        "ddp, N = 1",
    ]


def test_batches_are_compared_by_the_time_of_a_sample(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1, 10, step_s=0.4), MadeCell("single", 1, 40, step_s=0.8)]
    shown = words(drawn(sample_parts_chart(analyse(load_run(make_run(tmp_path, cells))))).wide)
    assert {"b = 10", "b = 40", "40.0 ms", "20.0 ms"} <= shown


def test_bars_are_as_long_as_the_parts(tmp_path: Path) -> None:
    shares = {"forward_s": 0.25, "backward_s": 0.5, "optimizer_s": 0.25}
    analysis = analyse(load_run(make_run(tmp_path, [MadeCell("single", 1, shares=shares)])))
    svg = drawn(parts_chart(group(analysis))).wide
    lengths = {}
    for part in shares:
        # A bar is a path that starts with a move and then draws its length: "M0,4h150v18…".
        bar = re.search(rf'd="M[^h]*h([\d.]+)v[^"]*" fill="{PART_COLOURS[part]}"', svg)
        assert bar is not None
        lengths[part] = float(bar[1])
    assert lengths["backward_s"] == pytest.approx(2 * lengths["forward_s"], rel=0.02)
    assert lengths["optimizer_s"] == pytest.approx(lengths["forward_s"], rel=0.02)


def test_throughput_has_the_ideal_line_and_world_sizes(usual: StudyAnalysis) -> None:
    shown = words(drawn(throughput_chart(usual, group(usual))).wide)
    assert {"ideal, N × single", "1", "2", "Samples/s", "World size N", "ddp"} <= shown


def test_throughput_leaves_out_what_is_withheld(messy: StudyAnalysis) -> None:
    shown = words(drawn(throughput_chart(messy, group(messy))).wide)
    assert "ddp" in shown
    assert "data-parallel" not in shown


def test_without_one_worker_there_is_no_ideal_line(tmp_path: Path) -> None:
    analysis = analyse(load_run(make_run(tmp_path, [MadeCell("ddp", 2), MadeCell("ddp", 4)])))
    assert not [word for word in words(drawn(throughput_chart(analysis, group(analysis))).wide) if "ideal" in word]


def test_one_world_size_has_no_throughput_chart(messy: StudyAnalysis) -> None:
    assert throughput_chart(messy, group(messy, 64)) is None


def test_loss_has_a_line_per_cell(usual: StudyAnalysis) -> None:
    svg = drawn(loss_chart(group(usual), 1)).wide
    assert {"N = 1", "N = 2", "ddp", "Training loss", "Step"} <= words(svg)
    curves = [path for path in re.findall(r'<path[^>]* d="(M[^"]*)"', svg) if path.count("L") >= 18]
    assert len(curves) == len(usual.cells)


def test_charts_without_anything_to_draw_are_absent(tmp_path: Path) -> None:
    analysis = analyse(load_run(make_run(tmp_path, [MadeCell("ddp", 2, blocks=0, warmup_steps=0)])))
    assert all_charts(analysis) == [None, None, None]


def test_charts_say_in_words_what_they_show(usual: StudyAnalysis) -> None:
    root = ElementTree.fromstring(drawn(parts_chart(group(usual))).wide)
    assert root.get("role") == "img"
    label = root.get("aria-label") or ""
    assert label.startswith("Where a step goes, b = 32. Stacked bars")
    assert "data-parallel, N = 2" in label


def test_charts_have_no_background_script_or_address(messy: StudyAnalysis) -> None:
    for chart in all_charts(messy):
        for svg in (drawn(chart).wide, drawn(chart).narrow):
            assert "<script" not in svg
            assert not set(re.findall(r"https?://[^\"' ]+", svg)) - {
                "http://www.w3.org/2000/svg",
                "http://www.w3.org/1999/xlink",
            }
            assert not re.search(r'fill="(white|#fff(fff)?)"', svg)


def test_a_png_is_the_drawing_on_white_at_twice_its_size(usual: StudyAnalysis) -> None:
    drawing = drawn(parts_chart(group(usual)))
    image = Image.open(io.BytesIO(png(drawing)))
    root = ElementTree.fromstring(drawing.wide)
    assert image.size == (2 * int(root.get("width") or 0), 2 * int(root.get("height") or 0))
    opaque = image.convert("RGBA")
    assert opaque.getchannel("A").getextrema() == (255, 255), "nothing of the page below shines through"
    colours = {colour: count for count, colour in opaque.convert("RGB").getcolors(1 << 24) or []}
    assert max(colours, key=lambda colour: colours[colour]) == (255, 255, 255)
    blue = tuple(bytes.fromhex(PART_COLOURS["backward_s"][1:]))
    assert colours[blue] > 10_000, "the bars are there"
    assert png(drawing) == png(drawing)


def test_names_from_users_show_as_text(messy: StudyAnalysis) -> None:
    hostile = "<script>alert('strategy')</script>:Mine"
    assert any(hostile[:20] in word for word in words(drawn(throughput_chart(messy, group(messy))).wide))


def test_on_the_page_text_takes_the_pages_colour_and_font(usual: StudyAnalysis) -> None:
    svg = drawn(parts_chart(group(usual))).wide
    page = inline(svg)
    assert f'fill="{INK}"' in svg
    assert INK not in page
    assert 'fill="currentColor"' in page
    assert 'font-family="inherit"' in page
    assert "sans-serif" not in page


def relative_luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_of_a_chart_file_is_readable_on_white_and_on_black() -> None:
    ink = relative_luminance(INK)
    assert min(1.05 / (ink + 0.05), (ink + 0.05) / 0.05) > 4


def test_long_curves_are_thinned_to_means() -> None:
    losses = pl.DataFrame({"step": range(1003), "loss": [float(step % 2) for step in range(1003)]})
    thin = thinned(losses, 500)
    assert thin.height <= 500
    assert thin["step"].to_list()[-1] == 1002
    assert thin["loss"].mean() == pytest.approx(0.5, abs=0.01)
    assert thinned(losses.head(10), 500).height == 10


def test_losses_that_are_not_finite_are_not_drawn() -> None:
    losses = pl.DataFrame({"step": [0, 1, 2], "loss": [2.0, None, float("nan")]})
    assert thinned(losses, 500).rows() == [(0, 2.0)]
