"""Training loss against step."""

from collections.abc import Sequence

import altair as alt
import polars as pl

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.groups import Group
from worldsize.report.charts.colours import strategy_scale
from worldsize.report.svg import AXIS_LABEL, Chart, Drawing, Size, draw, values

DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4])
"""One per world size, in order."""
CURVE_POINTS = 500
"""Points per loss curve: more than a screen has columns for."""
CHART_POINTS = 12_000
"""Points of all curves of a page, so that one with many cells stays small."""


def loss_chart(group: Group, cells_of_the_page: int) -> Drawing | None:
    """Training loss against step, one line per cell of a group; None without a loss."""
    drawn = [cell for cell in group.cells if not cell.losses.is_empty()]
    points = max(2, min(CURVE_POINTS, CHART_POINTS // max(1, cells_of_the_page)))
    rows = [
        {"step": step, "loss": loss, "strategy": cell.strategy, "n": f"N = {cell.world_size}", "cell": cell.id}
        for cell in drawn
        for step, loss in thinned(cell.losses, points).iter_rows()
    ]
    if not rows:
        return None
    description = (
        f"Training loss against step of {len(drawn)} configurations at {group.name}; curves that coincide hide each "
        "other. The table of loss and accuracy has the last values."
    )
    longest = max(cell.losses.height for cell in drawn)
    note = f"Curves are drawn from means of consecutive steps, at most {points} of {longest:,}."
    return draw(
        f"loss-{group.id}",
        f"Loss against step, {group.name}",
        description,
        lambda size: _curves(rows, drawn, size),
        table="accuracy",
        note=note if longest > points else "",
    )


def thinned(curve: pl.DataFrame, points: int) -> pl.DataFrame:
    """At most `points` rows of step and a value: the mean of each run of consecutive steps, at its last step."""
    value = curve.columns[1]
    finite = curve.filter(pl.col(value).is_finite())
    width = max(1, -(-finite.height // points))
    return (
        finite.with_row_index("row")
        .group_by(pl.col("row") // width, maintain_order=True)
        .agg(pl.col("step").last(), pl.col(value).mean())
        .select("step", value)
    )


def _curves(rows: Sequence[dict[str, float | str]], cells: Sequence[CellAnalysis], size: Size) -> Chart:
    strategies = list(dict.fromkeys(cell.strategy for cell in cells))
    worlds = [f"N = {n}" for n in sorted({cell.world_size for cell in cells})]
    dashes = alt.Scale(domain=worlds, range=[DASHES[i % len(DASHES)] for i in range(len(worlds))])
    legend = alt.Legend(title=None, orient="top", columns=size.legend_columns, symbolType="stroke", offset=32)
    chart: Chart = (
        alt.Chart(values(rows))
        .mark_line(strokeWidth=1.3)
        .encode(
            x=alt.X("step:Q", title="Step", axis=alt.Axis(tickCount=size.ticks, grid=False, format=",d")),
            y=alt.Y("loss:Q", title="Training loss", scale=alt.Scale(zero=False)),
            color=alt.Color("strategy:N", scale=strategy_scale(strategies), legend=legend),
            strokeDash=alt.StrokeDash("n:N", scale=dashes, legend=legend),
            detail=alt.Detail("cell:N"),
        )
    )
    return chart.properties(width=size.plot_width(AXIS_LABEL), height=size.height)
