"""The chart of a forecast: samples/s against the world size, with bands, and what was measured."""

from collections.abc import Sequence
from typing import NamedTuple

import altair as alt

from worldsize.analysis.numbers import number_text
from worldsize.report.charts.colours import strategy_scale
from worldsize.report.svg import AXIS_LABEL, INK, Chart, Drawing, Size, draw, values
from worldsize.results.forecast_records import ForecastReport

TITLE = "Samples/s, predicted"


class Measured(NamedTuple):
    """A cell that was measured."""

    strategy: str
    world_size: int
    samples_per_s: float


class Point(NamedTuple):
    """A predicted value with its band."""

    strategy: str
    world_size: int
    value: float
    low: float
    high: float


def forecast_chart(report: ForecastReport, measured: Sequence[Measured]) -> Drawing | None:
    """Lines with bands by strategy, points where cells were measured; None for fewer than two world sizes."""
    rows = [
        Point(row.strategy, row.world_size, row.samples_per_s.value, row.samples_per_s.low, row.samples_per_s.high)
        for row in report.rows
    ]
    if len({*(each.world_size for each in rows), *(each.world_size for each in measured)}) < 2:
        return None
    best = max(report.rows, key=lambda row: row.samples_per_s.value)
    description = (
        "Predicted samples per second against world size, with the band in which nine in ten steps lie; points were "
        f"measured. The most has {best.strategy} with {best.world_size} workers: "
        f"{number_text(best.samples_per_s.value)}. The table of the forecast has all numbers."
    )
    note = "Lines and bands are predicted (nine in ten steps lie in the band); points are measured."
    return draw(
        "forecast-chart", TITLE, description, lambda size: _drawn(rows, measured, size), table="forecast", note=note
    )


def _drawn(rows: Sequence[Point], measured: Sequence[Measured], size: Size) -> Chart:
    strategies = list(dict.fromkeys([*(each.strategy for each in rows), *(each.strategy for each in measured)]))
    sizes = sorted({*(each.world_size for each in rows), *(each.world_size for each in measured)})
    x = alt.X(
        "world_size:Q",
        title="World size N",
        scale=alt.Scale(type="log", base=2),
        axis=alt.Axis(values=sizes, format="d", grid=False),
    )
    legend = alt.Legend(title=None, orient="top", columns=size.legend_columns, offset=32, symbolOpacity=1)
    colour = alt.Color("strategy:N", scale=strategy_scale(strategies), legend=legend)
    grow = alt.Scale(type="log", nice=False)
    y = alt.Y("value:Q", title="Samples/s", scale=grow, axis=alt.Axis(tickCount=size.ticks))
    base = alt.Chart(values([row._asdict() for row in rows])).encode(x=x, color=colour)
    seen = [{**each._asdict(), "value": each.samples_per_s} for each in measured]
    points = alt.Chart(values(seen)).encode(x=x, color=colour)
    layers = [
        base.mark_area(opacity=0.2).encode(y=alt.Y("low:Q", title="Samples/s", scale=grow), y2=alt.Y2("high:Q")),
        base.mark_line(strokeWidth=1.5, strokeDash=[6, 3]).encode(y=y),
        points.mark_point(filled=True, size=70, opacity=1, stroke=INK).encode(y=y),
    ]
    chart: Chart = alt.layer(*(layers if measured else layers[:2]))
    return chart.properties(width=size.plot_width(AXIS_LABEL), height=size.height)
