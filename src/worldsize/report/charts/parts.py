"""Charts of a step, taken apart: stacked bars, one per cell."""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.groups import Group
from worldsize.analysis.numbers import number_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.charts.colours import PART_COLOURS
from worldsize.report.columns import MS
from worldsize.report.result_tables import PART_LABELS
from worldsize.report.svg import INK, Chart, Drawing, Size, draw, values
from worldsize.results.records import BESIDE_PARTS, PARTS

BAR_HEIGHT, MAX_BAR_HEIGHT = 26, 72
"""Pixels of a bar with the space around it: few of them may be taller."""
PLOT_HEIGHT = 290


@dataclass(frozen=True)
class _Bar:
    """A cell, what its bar is made of, and what stands at its end."""

    label: str
    parts: dict[str, float]
    end: str
    short_end: str

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def cell_label(cell: CellAnalysis) -> str:
    """A cell in a chart where all have the same batch."""
    return f"{cell.strategy}, N = {cell.world_size}" + (f", {cell.label}" if cell.label else "")


def samples_per_s(cell: CellAnalysis) -> float:
    """Its throughput; 0 without numbers."""
    return cell.summary.samples_per_s.value if cell.summary else 0.0


def parts_chart(group: Group) -> Drawing | None:
    """The step of each cell of a group by part in ms, the fastest cell first; None without a cell.

    A bar is as long as elapsed time ÷ steps, by which the throughput goes, and divided as the mean step of a rank is:
    between two of its steps a rank does some work of its own, which belongs to none of the parts.
    """
    taken_apart = (cell for cell in group.measured if cell.breakdown is not None)
    cells = sorted(taken_apart, key=samples_per_s, reverse=True)
    if not cells:
        return None
    bars = [_of_a_step(cell) for cell in cells]
    slowest = max(bars, key=lambda bar: bar.total)
    description = (
        f"Stacked bars: the mean step of {len(bars)} configurations at {group.name}, divided by part as their mean "
        f"step is, the one with the most samples per second first: {bars[0].label} with {bars[0].end}. The longest "
        f"step has {slowest.label} with {number_text(slowest.total)} ms. The table of parts has all numbers."
    )
    return draw(
        f"step-parts-{group.id}",
        f"Where a step goes, {group.name}",
        description,
        lambda size: _drawn(bars, "Mean step (ms)", size),
        table="parts",
        note="The most samples/s come first. A bar is as long as elapsed time ÷ steps, divided as a rank's step is.",
    )


def sample_parts_chart(analysis: StudyAnalysis) -> Drawing | None:
    """Of a batch sweep: the time of one sample by part in ms, by local batch; None with fewer than two batches."""
    cells = [cell for cell in analysis.cells if cell.breakdown is not None]
    if len(cells) < 2:
        return None
    several = len({(cell.strategy, cell.world_size) for cell in cells}) > 1
    bars = [_of_a_sample(cell, several=several) for cell in cells]
    description = (
        f"Stacked bars: the mean time of a worker for one of its samples at {len(bars)} local batches, by part. "
        "The table of parts has the times of whole steps."
    )
    return draw(
        "sample-parts",
        "Where the time of a sample goes, by local batch",
        description,
        lambda size: _drawn(bars, "Mean step of a rank ÷ b (ms)", size),
        table="parts",
        note="A step divided by the samples of the worker: steps of different b do not compare, their samples do.",
    )


def _of_a_step(cell: CellAnalysis) -> _Bar:
    assert cell.summary is not None, "only measured cells are drawn"
    scale = MS * cell.step_scale
    parts = {part: scale * seconds for part, seconds in cell.summary.parts_s.items()}
    rate = number_text(samples_per_s(cell))
    return _Bar(cell_label(cell), parts, f"{rate} samples/s", f"{rate}/s")


def _of_a_sample(cell: CellAnalysis, *, several: bool) -> _Bar:
    assert cell.summary is not None, "only measured cells are drawn"
    scale = MS * cell.step_scale / (cell.batch_size * cell.accumulate)
    parts = {part: scale * seconds for part, seconds in cell.summary.parts_s.items()}
    label = f"{cell_label(cell)}, b = {cell.batch_size:,}" if several else f"b = {cell.batch_size:,}"
    end = f"{number_text(sum(parts.values()))} ms"
    return _Bar(label, parts, end, end)


def _drawn(bars: Sequence[_Bar], title: str, size: Size) -> Chart:
    labels = [bar.label for bar in bars]
    only_there = ("exposed_sync_s", *BESIDE_PARTS)
    drawn = [part for part in PARTS if part not in only_there or any(bar.parts.get(part, 0) > 0 for bar in bars)]
    rows = [
        {"cell": bar.label, "part": PART_LABELS[part], "value": bar.parts[part], "order": order}
        for bar in bars
        for order, part in enumerate(drawn)
        if part in bar.parts
    ]
    colours = alt.Scale(domain=[PART_LABELS[part] for part in drawn], range=[PART_COLOURS[part] for part in drawn])
    legend = alt.Legend(title=None, orient="top", columns=size.part_columns, offset=12)
    ends = [bar.end if size.long_ends else bar.short_end for bar in bars]
    room = size.label_room * max(map(len, ends))
    x = alt.Scale(domain=[0, (1 + room) * max(bar.total for bar in bars)], nice=False)
    y = alt.Y("cell:N", sort=labels, title=None, axis=alt.Axis(grid=False))
    stacked = (
        alt.Chart(values(rows))
        .mark_bar(height={"band": 0.66})
        .encode(
            y=y,
            x=alt.X("value:Q", title=title, scale=x, axis=alt.Axis(tickCount=size.ticks)),
            color=alt.Color("part:N", scale=colours, legend=legend),
            order=alt.Order("order:Q"),
        )
    )
    totals = [{"cell": bar.label, "value": bar.total, "text": end} for bar, end in zip(bars, ends, strict=True)]
    text = alt.Chart(values(totals)).mark_text(align="left", dx=6, color=INK)
    chart: Chart = alt.layer(stacked, text.encode(y=y, x="value:Q", text=alt.Text("text:N")))
    height = max(BAR_HEIGHT, min(MAX_BAR_HEIGHT, PLOT_HEIGHT // len(bars)))
    return chart.properties(width=size.plot_width(max(map(len, labels))), height=height * len(bars))
