"""The charts, as definitions: a step by part, throughput against world size, loss against step.

One chart per local batch: steps of different local batches do different work, and their times do not compare.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import altair as alt
import polars as pl

from worldsize.analysis.cells import BASELINE_STRATEGY, CellAnalysis
from worldsize.analysis.numbers import number_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.result_tables import MS, PART_LABELS
from worldsize.report.svg import AXIS_LABEL, INK, Chart, Drawing, Size, draw
from worldsize.results.records import PARTS

PART_COLOURS = {
    "data_wait_s": "#E69F00",
    "copy_s": "#CC79A7",
    "forward_s": "#56B4E9",
    "backward_s": "#0072B2",
    "exposed_sync_s": "#D55E00",
    "optimizer_s": "#009E73",
    "other_s": "#999999",
}
"""Okabe and Ito's palette, told apart with any colour vision; compute is blue and green, waiting is warm."""
STRATEGY_COLOURS = {
    "single": "#999999",
    "data-parallel": "#CC79A7",
    "gather-scatter": "#E69F00",
    "all-reduce": "#009E73",
    "ddp": "#0072B2",
}
OTHER_COLOURS = ("#D55E00", "#56B4E9", "#B39B00", "#8C6BB1")
"""For strategies of the user's own."""
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4])
"""One per world size, in order."""
BAR_HEIGHT = 26
ASIDE = 0.06
"""Share of the axis over which the points of one world size are spread sideways, so that none hides another."""
CURVE_POINTS = 500
"""Points per loss curve: more than a screen has columns for."""
CHART_POINTS = 12_000
"""Points of all curves of a chart, so that a page with many cells stays small."""


@dataclass(frozen=True)
class _Point:
    """Throughput of a cell, and where it is drawn."""

    x: float
    rate: float
    low: float
    high: float
    strategy: str


def parts_chart(analysis: StudyAnalysis, batch_size: int) -> Drawing | None:
    """The mean step of each cell with local batch `batch_size` by part, as stacked bars in ms; None without a cell."""
    parts = {_label(cell): cell.summary.parts_s for cell in _measured(analysis, batch_size) if cell.summary}
    if not parts:
        return None
    steps = {label: MS * sum(parts_s.values()) for label, parts_s in parts.items()}
    rows: list[dict[str, float | int | str]] = [
        {"cell": label, "part": PART_LABELS[part], "ms": MS * parts_s[part], "order": order}
        for label, parts_s in parts.items()
        for order, part in enumerate(PARTS)
        if part != "exposed_sync_s" or any(each[part] > 0 for each in parts.values())
    ]
    slowest = max(steps, key=lambda label: steps[label])
    description = (
        f"Stacked bars: the mean step of {len(steps)} configurations at b = {batch_size}, by part. "
        f"The longest is {slowest} with {number_text(steps[slowest])} ms. The table of parts has all numbers."
    )
    return draw(
        f"step-parts-b{batch_size}",
        f"Where a step goes, b = {batch_size}",
        description,
        lambda size: _bars(rows, steps, size),
    )


def throughput_chart(analysis: StudyAnalysis, batch_size: int) -> Drawing | None:
    """Samples/s against world size with 95 % intervals and the ideal line; None for fewer than two world sizes.

    Cells whose speed-up is withheld are left out: beside the ideal line, their place is their speed-up.
    """
    allowed = analysis.record.settings.allow_oversubscribed
    cells = [cell for cell in _measured(analysis, batch_size) if allowed or not cell.oversubscribed]
    if len({cell.world_size for cell in cells}) < 2:
        return None
    best = max(cells, key=lambda cell: cell.summary.samples_per_s.value if cell.summary else 0)
    description = (
        f"Samples per second against world size at b = {batch_size}, with 95 % intervals and the ideal line. "
        f"The most samples per second has {_label(best)}. The table of results has all numbers."
    )
    return draw(
        f"throughput-b{batch_size}",
        f"Throughput against world size, b = {batch_size}",
        description,
        lambda size: _throughput(cells, size),
    )


def loss_chart(analysis: StudyAnalysis, batch_size: int) -> Drawing | None:
    """Training loss against step, one line per cell with local batch `batch_size`; None without a loss."""
    cells = [cell for cell in analysis.cells if cell.batch_size == batch_size]
    points = max(2, min(CURVE_POINTS, CHART_POINTS // max(1, len(cells))))
    rows = [
        {"step": step, "loss": loss, "strategy": cell.strategy, "n": f"N = {cell.world_size}", "cell": cell.id}
        for cell in cells
        for step, loss in thinned(cell.losses, points).iter_rows()
    ]
    if not rows:
        return None
    drawn = [cell for cell in cells if not cell.losses.is_empty()]
    description = (
        f"Training loss against step of {len(drawn)} configurations at b = {batch_size}; curves that coincide hide "
        "each other. The table of loss and accuracy has the last values."
    )
    return draw(
        f"loss-b{batch_size}",
        f"Loss against step, b = {batch_size}",
        description,
        lambda size: _curves(rows, drawn, size),
    )


def thinned(losses: pl.DataFrame, points: int) -> pl.DataFrame:
    """At most `points` rows of step and loss: the mean of each run of consecutive steps, at its last step."""
    finite = losses.filter(pl.col("loss").is_finite())
    width = max(1, -(-finite.height // points))
    return (
        finite.with_row_index("row")
        .group_by(pl.col("row") // width, maintain_order=True)
        .agg(pl.col("step").last(), pl.col("loss").mean())
        .select("step", "loss")
    )


def _measured(analysis: StudyAnalysis, batch_size: int) -> list[CellAnalysis]:
    return [cell for cell in analysis.cells if cell.batch_size == batch_size and cell.summary is not None]


def _label(cell: CellAnalysis) -> str:
    return f"{cell.strategy}, N = {cell.world_size}"


def _bars(rows: Sequence[dict[str, float | int | str]], steps: dict[str, float], size: Size) -> Chart:
    drawn = [part for part in PARTS if any(row["part"] == PART_LABELS[part] for row in rows)]
    colours = alt.Scale(domain=[PART_LABELS[part] for part in drawn], range=[PART_COLOURS[part] for part in drawn])
    legend = alt.Legend(title=None, orient="top", columns=size.part_columns, offset=12)
    x = alt.Scale(domain=[0, (1 + size.label_room) * max(steps.values())], nice=False)
    y = alt.Y("cell:N", sort=list(steps), title=None, axis=alt.Axis(grid=False))
    bars = (
        alt.Chart(alt.InlineData(list(rows)))
        .mark_bar(height={"band": 0.7})
        .encode(
            y=y,
            x=alt.X("ms:Q", title="Mean step of a rank (ms)", scale=x, axis=alt.Axis(tickCount=size.ticks)),
            color=alt.Color("part:N", scale=colours, legend=legend),
            order="order:Q",
        )
    )
    totals = [{"cell": label, "ms": step, "text": number_text(step)} for label, step in steps.items()]
    text = alt.Chart(alt.InlineData(totals)).mark_text(align="left", dx=5, color=INK)
    chart: Chart = alt.layer(bars, text.encode(y=y, x="ms:Q", text="text:N"))
    return chart.properties(width=size.plot_width(max(map(len, steps))), height=BAR_HEIGHT * len(steps))


def _throughput(cells: Sequence[CellAnalysis], size: Size) -> Chart:
    strategies = list(dict.fromkeys(cell.strategy for cell in cells))
    largest = max(cell.world_size for cell in cells)
    points = [_point(cell, strategies, largest) for cell in cells]
    ideal, name = _ideal(cells)
    top = 1.1 * max(largest * ideal, *(point.high for point in points))
    worlds = sorted({cell.world_size for cell in cells})
    x = alt.X(
        "x:Q",
        title="World size N",
        scale=alt.Scale(domain=[0, 1.1 * largest], nice=False),
        axis=alt.Axis(values=worlds, format="d", grid=False),
    )
    y = alt.Y("rate:Q", title="Samples/s", scale=alt.Scale(domain=[0, top], nice=False))
    legend = alt.Legend(title=None, orient="top", columns=size.legend_columns, offset=28)
    shapes = alt.Shape("strategy:N", scale=alt.Scale(domain=strategies), legend=legend)
    base = alt.Chart(alt.InlineData([asdict(point) for point in points])).encode(
        x=x, y=y, color=alt.Color("strategy:N", scale=_strategy_scale(strategies), legend=legend)
    )
    layers = [
        base.mark_line(strokeWidth=1.5),
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title="Samples/s"), y2="high:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(shape=shapes),
    ]
    if name:
        ends = [{"x": 0, "rate": 0, "text": ""}, {"x": largest, "rate": largest * ideal, "text": f"ideal, N × {name}"}]
        line = alt.Chart(alt.InlineData(ends)).encode(x=x, y=y)
        text = line.mark_text(align="right", dx=-8, dy=-4, color=INK).encode(text="text:N")
        layers = [line.mark_line(color=INK, strokeDash=[4, 4], strokeWidth=1.2), text, *layers]
    chart: Chart = alt.layer(*layers)
    return chart.properties(width=size.plot_width(AXIS_LABEL), height=size.height)


def _curves(rows: Sequence[dict[str, float | str]], cells: Sequence[CellAnalysis], size: Size) -> Chart:
    strategies = list(dict.fromkeys(cell.strategy for cell in cells))
    worlds = [f"N = {n}" for n in sorted({cell.world_size for cell in cells})]
    dashes = alt.Scale(domain=worlds, range=[DASHES[i % len(DASHES)] for i in range(len(worlds))])
    legend = alt.Legend(title=None, orient="top", columns=size.legend_columns, symbolType="stroke", offset=28)
    chart: Chart = (
        alt.Chart(alt.InlineData(list(rows)))
        .mark_line(strokeWidth=1.3)
        .encode(
            x=alt.X("step:Q", title="Step", axis=alt.Axis(tickCount=size.ticks, grid=False, format=",d")),
            y=alt.Y("loss:Q", title="Training loss", scale=alt.Scale(zero=False)),
            color=alt.Color("strategy:N", scale=_strategy_scale(strategies), legend=legend),
            strokeDash=alt.StrokeDash("n:N", scale=dashes, legend=legend),
            detail="cell:N",
        )
    )
    return chart.properties(width=size.plot_width(AXIS_LABEL), height=size.height)


def _point(cell: CellAnalysis, strategies: Sequence[str], largest: int) -> _Point:
    assert cell.summary is not None
    rate = cell.summary.samples_per_s
    aside = (strategies.index(cell.strategy) / max(1, len(strategies) - 1) - 0.5) * ASIDE * largest
    return _Point(cell.world_size + aside, rate.value, rate.low or rate.value, rate.high or rate.value, cell.strategy)


def _ideal(cells: Sequence[CellAnalysis]) -> tuple[float, str]:
    """Samples/s and strategy of the cell of one worker, the one without a wrapper if there is one; 0 and "" if none."""
    alone = sorted(
        (cell for cell in cells if cell.world_size == 1), key=lambda cell: cell.strategy != BASELINE_STRATEGY
    )
    if not alone or alone[0].summary is None:
        return 0.0, ""
    return alone[0].summary.samples_per_s.value, alone[0].strategy


def _strategy_scale(strategies: Sequence[str]) -> alt.Scale:
    others = [name for name in strategies if name not in STRATEGY_COLOURS]
    spare = {name: OTHER_COLOURS[i % len(OTHER_COLOURS)] for i, name in enumerate(others)}
    return alt.Scale(domain=list(strategies), range=[{**STRATEGY_COLOURS, **spare}[name] for name in strategies])
