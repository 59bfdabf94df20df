"""Charts of speed-up, of a real step, of bandwidth and of a batch sweep: they show what was made to be true."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from checked import checked_charts as checked_charts
from made_messages import add_link, add_marks, add_messages, with_messages
from made_runs import SHARES, MadeCell, make_run, synchronised, usual_cells
from worldsize.analysis.groups import groups
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.report.charts.bandwidth import bandwidth_chart
from worldsize.report.charts.colours import MESSAGES, PART_COLOURS
from worldsize.report.charts.scaling import scaling_charts
from worldsize.report.charts.sweep import epoch_chart, rate_chart
from worldsize.report.charts.timeline import MAX_PICTURES, Scene, scenes, timeline_chart
from worldsize.report.rank_tables import timeline_table
from worldsize.report.svg import Drawing
from worldsize.report.tables import to_records
from worldsize.results.folder import load_run, write_study
from worldsize.results.records import ErrorRecord

SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str) -> set[str]:
    return {element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")}


def several(strategy: str, n: int, step_s: float, **more: Any) -> MadeCell:
    shares = synchronised(SHARES, 0.2)
    return MadeCell(strategy, n, step_s=step_s, shares=shares, comm_s=0.3 * step_s, overlapped_s=0.1 * step_s, **more)


def rectangles(svg: str, colour: str) -> list[tuple[float, float, float]]:
    """Left edge, width and top of each rectangle of a colour, in pixels."""
    paths = re.findall(rf'd="M([\d.]+),([\d.]+)h(-?[\d.]+)v[^"]*" fill="{re.escape(colour)}"', svg)
    return [(float(x), float(width), float(y)) for x, y, width in paths]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    cells = [
        MadeCell("single", 1, step_s=0.5, noise=0.01),
        MadeCell("ddp", 2, step_s=0.55, noise=0.01),
        MadeCell("ddp", 4, step_s=0.7, noise=0.01),
        MadeCell("single", 1, 64, step_s=0.9, noise=0.01),
    ]
    return analyse(load_run(make_run(tmp_path_factory.mktemp("several"), cells)))


CELLS = (MadeCell("single", 1, step_s=0.4), several("ddp", 2, 0.5), several("all-reduce", 2, 0.8))


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    run = make_run(tmp_path_factory.mktemp("timeline"), CELLS)
    add_marks(run, CELLS[0])
    for cell in CELLS[1:]:
        add_messages(run, cell, count=5)
    return analyse(load_run(run))


@pytest.fixture(scope="module")
def scene(ladder: StudyAnalysis) -> Scene:
    [found] = scenes(ladder, groups(ladder))
    return found


@pytest.fixture(scope="module")
def drawing(scene: Scene) -> Drawing:
    return timeline_chart(scene)


class TestSpeedUp:
    def test_weak_and_strong_are_drawn_with_their_ideal_and_their_baseline(self, grown: StudyAnalysis) -> None:
        weak = scaling_charts(grown, "weak")
        assert [drawing.id for drawing in weak[32]] == ["speedup-weak-b32", "efficiency-weak-b32"]
        speedup, efficiency = weak[32]
        assert {"ideal, N", "1", "2", "4", "Scaled speed-up", "World size N"} <= words(speedup.wide)
        assert {"ideal", "Efficiency (%)", "100"} <= words(efficiency.wide)
        assert "over single-w1-b32" in speedup.description
        assert "Baseline: single-w1-b32" in speedup.note
        assert "ddp, N = 4: 2.8" in speedup.description  # 4 · 0.5 / 0.7
        strong = scaling_charts(grown, "strong")
        assert list(strong) == [64]
        assert "over single-w1-b64" in strong[64][0].description

    def test_one_world_size_is_drawn_by_strategy_the_best_first(self, tmp_path: Path) -> None:
        analysis = analyse(load_run(make_run(tmp_path, usual_cells(noise=0.01))))
        [drawing] = scaling_charts(analysis, "weak")[32]
        assert {"one worker", "ideal", "ddp", "gather-scatter"} <= words(drawing.wide)
        assert any(re.fullmatch(r"1\.\d\d \[1\.\d\d, 1\.\d\d\] \(\d\d\.\d %\)", word) for word in words(drawing.wide))
        assert "The largest has ddp: 1.8" in drawing.description

    def test_what_is_withheld_is_not_drawn(self, tmp_path: Path) -> None:
        cells = [MadeCell("single", 1), MadeCell("ddp", 2, oversubscribed=True)]
        assert scaling_charts(analyse(load_run(make_run(tmp_path, cells))), "weak") == {}


class TestTimeline:
    def test_ranks_stand_under_each_other_the_baseline_and_the_fastest_first(
        self, scene: Scene, drawing: Drawing
    ) -> None:
        assert [step.cell_id for step in scene.steps] == ["single-w1-b32", "ddp-w2-b32", "all-reduce-w2-b32"]
        assert {"rank 0", "rank 1", "ddp, N = 2: 500 ms", "single, N = 1: 400 ms"} <= words(drawing.wide)

    def test_all_steps_have_the_same_axis(self, drawing: Drawing) -> None:
        ends = {}
        for part in ("forward_s", "optimizer_s"):
            for left, width, top in rectangles(drawing.wide, PART_COLOURS[part]):
                ends[round(top), part] = left, width
        forward = [width for (_, part), (_, width) in sorted(ends.items()) if part == "forward_s"]
        # 30 % of 400 ms alone; then 24 % of the ranks' own steps, the first of which is 10 % sooner.
        lengths = [120, 108, 120, 172.8, 192]
        assert forward == pytest.approx([forward[0] * each / 120 for each in lengths], abs=3)

    def test_messages_lie_under_what_they_are_hidden_behind(self, drawing: Drawing) -> None:
        [last_backward] = [
            (left, left + width)
            for left, width, top in rectangles(drawing.wide, PART_COLOURS["backward_s"])
            if top == max(top for _, _, top in rectangles(drawing.wide, PART_COLOURS["backward_s"]))
        ]
        lane = [box for box in rectangles(drawing.wide, MESSAGES)]
        lowest = max(top for _, _, top in lane)
        begin = min(left for left, _, top in lane if top == lowest)
        end = max(left + width for left, width, top in lane if top == lowest)
        assert last_backward[0] < begin < last_backward[1] < end

    def test_it_says_how_it_is_to_be_read(self, drawing: Drawing) -> None:
        assert "nearest the median" in drawing.note
        assert "are drawn where they were recorded" in drawing.note
        assert "drawn as one" in drawing.note

    def test_the_numbers_are_in_a_table(self, scene: Scene) -> None:
        rows = to_records(timeline_table(scene.steps))
        assert [(row["cell"], row["rank"]) for row in rows][:3] == [
            ("single-w1-b32", 0),
            ("ddp-w2-b32", 0),
            ("ddp-w2-b32", 1),
        ]
        assert rows[0]["exposed_sync_s"] is None
        assert rows[2]["exposed_sync_s"] == pytest.approx(0.1)
        assert [row["messages"] for row in rows] == [None, 5, 5, 5, 5]

    def test_a_worker_alone_has_no_picture_and_many_world_sizes_a_limit(self, tmp_path: Path) -> None:
        alone = analyse(load_run(make_run(tmp_path / "alone", [MadeCell("single", 1)])))
        assert scenes(alone, groups(alone)) == []
        many = [MadeCell("data-parallel", n, blocks=1) for n in range(2, 11)]
        found = analyse(load_run(with_messages(make_run(tmp_path / "many", many), many)))
        assert len(scenes(found, groups(found))) == MAX_PICTURES

    def test_many_messages_do_not_make_a_large_picture(self, tmp_path: Path) -> None:
        cell = several("all-reduce", 8, 0.8, blocks=1, block_steps=1, warmup_steps=0)
        run = make_run(tmp_path, [cell])
        add_messages(run, cell, count=2000)
        analysis = analyse(load_run(run))
        [scene] = scenes(analysis, groups(analysis))
        drawing = timeline_chart(scene)
        assert len(drawing.wide) < 60_000


class TestBandwidth:
    CELL = several("ddp", 2, 0.5, rank_spread=0)

    def test_reached_and_peak_stand_beside_each_other(self, tmp_path: Path) -> None:
        run = make_run(tmp_path, [self.CELL])
        add_messages(run, self.CELL, count=5)
        add_link(run, 2, gb_per_s=0.05)
        drawing = bandwidth_chart(analyse(load_run(run)))
        assert drawing is not None
        # Five messages of 1 MB in 150 ms, times 2(N−1)/N = 1.
        assert "0.0333 GB/s · 66.7 % of peak" in words(drawing.wide)
        assert {"reached in training", "peak, measured alone"} <= words(drawing.wide)
        assert "rated payload" not in words(drawing.wide)

    def test_without_a_benchmark_it_says_that_there_is_no_peak(self, tmp_path: Path) -> None:
        run = make_run(tmp_path, [self.CELL])
        add_messages(run, self.CELL, count=5)
        drawing = bandwidth_chart(analyse(load_run(run)))
        assert drawing is not None
        assert "no peak to compare with" in drawing.note
        assert "of peak" not in drawing.wide

    def test_where_nothing_was_sent_there_is_no_chart(self, tmp_path: Path) -> None:
        assert bandwidth_chart(analyse(load_run(make_run(tmp_path, [MadeCell("single", 1)])))) is None


class TestSweep:
    def test_the_knee_and_the_limit_are_marked(self, tmp_path: Path) -> None:
        memory = ErrorRecord(kind="OutOfMemory", message="can't allocate memory", rank=0)
        cells = [
            MadeCell("single", 1, 16, step_s=0.4, noise=0.01),
            MadeCell("single", 1, 64, step_s=1.0, noise=0.01),
            MadeCell("single", 1, 256, step_s=3.95, noise=0.01),
            MadeCell("single", 1, 512, state="failed", error=memory),
        ]
        run = make_run(tmp_path, cells)
        record = load_run(run).study
        record.settings = record.asked.model_copy(update={"sweep": True, "experiment": "batch-sweep"})
        write_study(run, record)
        analysis = analyse(load_run(run))
        for drawing in (rate_chart(analysis.sweeps), epoch_chart(analysis.sweeps, analysis)):
            assert drawing is not None
            assert {"knee: 64", "largest that fits: 256", "does not fit: 512"} <= words(drawing.wide)
            assert "knee: 64; largest that fits: 256; does not fit: 512" in drawing.description
