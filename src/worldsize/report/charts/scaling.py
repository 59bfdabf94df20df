"""Charts against the world size: throughput, speed-up and efficiency, each with 95 % intervals and the ideal."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import altair as alt

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.groups import Group
from worldsize.analysis.numbers import estimate_text, number_text
from worldsize.analysis.scaling import Kind, ScalingRow
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.charts.colours import strategy_scale
from worldsize.report.charts.parts import cell_label, samples_per_s
from worldsize.report.svg import AXIS_LABEL, INK, Chart, Drawing, Size, draw, values
from worldsize.results.records import Estimate
from worldsize.traits import BASELINE_STRATEGY

SHIFT = 0.06
"""Share of the axis over which the points of one world size are spread sideways, so that none hides another."""
PERCENT = 100
ROW_HEIGHT = 34
NAMES: dict[Kind, str] = {"weak": "Scaled speed-up", "strong": "Strong-scaling speed-up"}


@dataclass(frozen=True)
class _Point:
    """A value with its interval, and where it is drawn."""

    x: float
    value: float
    low: float
    high: float
    strategy: str


@dataclass(frozen=True)
class _Plot:
    """Points against the world size, and the line that they would lie on at best."""

    title: str
    """Of the vertical axis."""
    points: list[_Point]
    ideal: list[tuple[float, float]]
    """Two points of the line; none where nothing is known of it."""
    ideal_name: str


def throughput_chart(analysis: StudyAnalysis, group: Group) -> Drawing | None:
    """Samples/s against world size with 95 % intervals and the ideal line; None for fewer than two world sizes.

    Cells whose speed-up is withheld are left out: beside the ideal line, their place is their speed-up.
    """
    allowed = analysis.record.asked.allow_oversubscribed
    cells = [cell for cell in group.measured if allowed or not cell.oversubscribed]
    if len({cell.world_size for cell in cells}) < 2:
        return None
    best = max(cells, key=samples_per_s)
    description = (
        f"Samples per second against world size at {group.name}, with 95 % intervals and the ideal line. "
        f"The most samples per second has {cell_label(best)}: {number_text(samples_per_s(best))}. "
        "The table of results has all numbers."
    )
    values = [(cell, cell.summary.samples_per_s) for cell in cells if cell.summary]
    largest = max(cell.world_size for cell in cells)
    alone, name = _alone(cells)
    ends = [(0.0, 0.0), (largest, largest * alone)] if name else []
    plot = _Plot("Samples/s", _points(values, 1.0), ends, f"ideal, N × {name}")
    return draw(
        f"throughput-{group.id}",
        f"Throughput against world size, {group.name}",
        description,
        lambda size: _drawn(plot, size),
        table="results",
        row=f"{group.kind}-{group.id}",
    )


def scaling_charts(analysis: StudyAnalysis, kind: Kind) -> dict[int, list[Drawing]]:
    """Speed-up and efficiency of each batch that has some in a kind of scaling; the baselines are named."""
    rows = [row for row in analysis.scaling if row.kind == kind and row.speedup is not None]
    batches = dict.fromkeys(_batch(row) for row in rows if row.cell.world_size > 1)
    return {batch: _of_one_batch(kind, [row for row in rows if _batch(row) == batch], batch) for batch in batches}


def _batch(row: ScalingRow) -> int:
    return row.cell.batch_size if row.kind == "weak" else row.cell.global_batch


def _of_one_batch(kind: Kind, rows: list[ScalingRow], batch: int) -> list[Drawing]:
    symbol = "b" if kind == "weak" else "B"
    name, place = f"{symbol} = {batch:,}", f"{kind}-{symbol}{batch}"
    over = " or ".join(dict.fromkeys(row.baseline.id for row in rows if row.baseline))
    note = f"Baseline: {over}. Bars are 95 % intervals."
    if len({row.cell.world_size for row in rows if row.cell.world_size > 1}) < 2:
        return [_by_strategy(kind, rows, (name, place, over))]
    best = max(rows, key=_speedup)
    said = (
        f"with 95 % intervals and the ideal line, {name}, over {over}. The largest has {cell_label(best.cell)}: "
        f"{_numbers(best)}. The table of {kind} scaling has all numbers."
    )
    plots = {
        "speedup": (NAMES[kind], _speedup_plot(kind, rows)),
        "efficiency": ("Efficiency", _efficiency_plot(rows)),
    }
    return [
        draw(
            f"{what}-{place}",
            f"{title} against world size, {name}",
            f"{title} against world size, {said}",
            lambda size, plot=plot: _drawn(plot, size),  # type: ignore[misc]
            table=f"{kind}-scaling",
            note=note,
            row=place,
        )
        for what, (title, plot) in plots.items()
    ]


def _speedup_plot(kind: Kind, rows: Sequence[ScalingRow]) -> _Plot:
    largest = max(row.cell.world_size for row in rows)
    values = [*_baselines(rows), *((row.cell, row.speedup.estimate) for row in rows if row.speedup)]
    return _Plot(NAMES[kind], _points(values, 1.0), [(0, 0), (largest, largest)], "ideal, N")


def _efficiency_plot(rows: Sequence[ScalingRow]) -> _Plot:
    largest = max(row.cell.world_size for row in rows)
    values = [*_baselines(rows), *((row.cell, row.efficiency.estimate) for row in rows if row.efficiency)]
    return _Plot("Efficiency (%)", _points(values, PERCENT), [(0, PERCENT), (1.1 * largest, PERCENT)], "ideal")


def _baselines(rows: Sequence[ScalingRow]) -> list[tuple[CellAnalysis, Estimate]]:
    """Each baseline at its own speed-up, 1 by definition."""
    cells = {row.baseline.id: row.baseline for row in rows if row.baseline}
    return [(cell, Estimate(value=1, samples=1)) for cell in cells.values()]


def _points(values: Sequence[tuple[CellAnalysis, Estimate]], factor: float) -> list[_Point]:
    strategies = list(dict.fromkeys(cell.strategy for cell, _ in values))
    largest = max(cell.world_size for cell, _ in values)
    found = []
    for cell, estimate in values:
        shift = (strategies.index(cell.strategy) / max(1, len(strategies) - 1) - 0.5) * SHIFT * largest
        value = factor * estimate.value
        low, high = (value if bound is None else factor * bound for bound in (estimate.low, estimate.high))
        found.append(_Point(cell.world_size + shift, value, low, high, cell.strategy))
    return found


def _drawn(plot: _Plot, size: Size) -> Chart:
    strategies = list(dict.fromkeys(point.strategy for point in plot.points))
    worlds = sorted({round(point.x) for point in plot.points})
    tops = [*(point.high for point in plot.points), *(y for _, y in plot.ideal)]
    x = alt.X(
        "x:Q",
        title="World size N",
        scale=alt.Scale(domain=[-SHIFT * worlds[-1], 1.1 * worlds[-1]], nice=False),
        axis=alt.Axis(values=worlds, format="d", grid=False),
    )
    y = alt.Y(
        "value:Q",
        title=plot.title,
        scale=alt.Scale(domain=[0, 1.1 * max(tops)], nice=False),
        axis=alt.Axis(tickCount=size.ticks),
    )
    legend = alt.Legend(title=None, orient="top", columns=size.legend_columns, offset=32)
    shapes = alt.Shape("strategy:N", scale=alt.Scale(domain=strategies), legend=legend)
    base = alt.Chart(values([asdict(point) for point in plot.points])).encode(
        x=x, y=y, color=alt.Color("strategy:N", scale=strategy_scale(strategies), legend=legend)
    )
    layers = [
        base.mark_line(strokeWidth=1.5),
        base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title=plot.title), y2=alt.Y2("high:Q")),
        base.mark_point(filled=True, size=60, opacity=1).encode(shape=shapes),
    ]
    chart: Chart = alt.layer(*_ideal(plot, x, y), *layers)
    return chart.properties(width=size.plot_width(AXIS_LABEL), height=size.height)


def _ideal(plot: _Plot, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """The ideal line and its name at its end; nothing without one."""
    if not plot.ideal:
        return []
    names = ["", plot.ideal_name]
    ends = [{"x": at, "value": value, "text": name} for (at, value), name in zip(plot.ideal, names, strict=True)]
    line = alt.Chart(values(ends)).encode(x=x, y=y)
    text = line.mark_text(align="right", dx=-8, dy=-6, color=INK).encode(text=alt.Text("text:N"))
    return [line.mark_line(color=INK, strokeDash=[4, 4], strokeWidth=1.2), text]


def _alone(cells: Sequence[CellAnalysis]) -> tuple[float, str]:
    """Samples/s and strategy of the cell of one worker, the one without a wrapper if there is one; 0 and "" if none."""
    alone = [cell for cell in cells if cell.world_size == 1]
    found = sorted(alone, key=lambda cell: cell.strategy != BASELINE_STRATEGY)
    return (samples_per_s(found[0]), found[0].strategy) if found else (0.0, "")


def _by_strategy(kind: Kind, rows: Sequence[ScalingRow], names: tuple[str, str, str]) -> Drawing:
    """Where all have one world size: the speed-up of each strategy, between the baseline's 1 and the ideal N."""
    name, place, over = names
    several = [row for row in rows if row.cell.world_size > 1]
    ranked = sorted(several, key=_speedup, reverse=True)
    world_size = ranked[0].cell.world_size
    description = (
        f"{NAMES[kind]} of {len(ranked)} strategies with {world_size} workers at {name} over {over}, with 95 % "
        f"intervals, between 1 (the baseline) and {world_size} (ideal). The largest has {ranked[0].cell.strategy}: "
        f"{_numbers(ranked[0])}. The table of {kind} scaling has all numbers."
    )
    return draw(
        f"speedup-{place}",
        f"{NAMES[kind]} with {world_size} workers, {name}",
        description,
        lambda size: _dots(kind, ranked, size),
        table=f"{kind}-scaling",
        note=f"Baseline: {over}. Bars are 95 % intervals; in brackets the efficiency, speed-up ÷ N.",
        row=place,
    )


def _dots(kind: Kind, rows: Sequence[ScalingRow], size: Size) -> Chart:
    points = [
        {**asdict(point), "label": _name(row), "text": _end(row, size)}
        for row in rows
        for point in _points([(row.cell, row.speedup.estimate)] if row.speedup else [], 1.0)
    ]
    labels = [str(point["label"]) for point in points]
    world_size = rows[0].cell.world_size
    top = 1.06 * max(world_size, *(float(point["high"]) for point in points))
    x = alt.X(
        "value:Q",
        title=NAMES[kind],
        scale=alt.Scale(domain=[0, top], nice=False),
        axis=alt.Axis(tickCount=size.ticks, grid=False),
    )
    y = alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(grid=True, gridDash=[1, 3]))
    colour = alt.Color("strategy:N", scale=strategy_scale([row.cell.strategy for row in rows]), legend=None)
    base = alt.Chart(values(points)).encode(y=y)
    marks = [{"value": 1, "text": "one worker"}, {"value": world_size, "text": "ideal"}]
    rules = alt.Chart(values(marks)).encode(x=x)
    chart: Chart = alt.layer(
        rules.mark_rule(color=INK, strokeDash=[4, 4]),
        rules.mark_text(baseline="bottom", color=INK).encode(y=alt.value(-5), text=alt.Text("text:N")),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=NAMES[kind]), x2=alt.X2("high:Q"), color=colour),
        base.mark_point(filled=True, size=80, opacity=1).encode(x=x, color=colour),
        base.mark_text(align="left", dx=8, color=INK).encode(x=alt.value("width"), text=alt.Text("text:N")),
    )
    beside = max(map(len, labels)) + max(len(str(point["text"])) for point in points)
    return chart.properties(width=size.plot_width(beside), height=ROW_HEIGHT * len(rows))


def _name(row: ScalingRow) -> str:
    return f"{row.cell.strategy}, {row.cell.label}" if row.cell.label else row.cell.strategy


def _speedup(row: ScalingRow) -> float:
    return row.speedup.estimate.value if row.speedup else 0.0


def _end(row: ScalingRow, size: Size) -> str:
    """What stands at a point: its number, and where there is room its interval and its efficiency."""
    return _numbers(row) if size.long_ends else f"{number_text(_speedup(row))}{_efficiency(row)}"


def _efficiency(row: ScalingRow) -> str:
    return f" ({number_text(PERCENT * row.efficiency.estimate.value)} %)" if row.efficiency else ""


def _numbers(row: ScalingRow) -> str:
    return f"{estimate_text(row.speedup.estimate)}{_efficiency(row)}" if row.speedup else ""
