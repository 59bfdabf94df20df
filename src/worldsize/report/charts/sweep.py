"""Charts of a batch sweep: a value against the local batch, with the knee and the limit marked (method.md §9)."""

from collections.abc import Callable, Sequence

import altair as alt

from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.sweep import BatchSweep, SweepRow
from worldsize.report.svg import AXIS_LABEL, INK, Chart, Drawing, Size, draw, values

SWEEP_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")

WORD = 0.6
"""Of the room that a label at the end of a bar takes: here it is a share of what is left of the axis."""

Points = list[dict[str, float | str]]
Value = Callable[[SweepRow], tuple[float, float | None, float | None] | None]
"""Value with its interval; None where there is none."""


def rate_chart(sweeps: Sequence[BatchSweep]) -> Drawing | None:
    """Throughput against b; None with fewer than two batches."""
    return _chart("a-throughput-against-b", "A. Throughput against b", "Samples/s", sweeps, _rate)


def epoch_chart(sweeps: Sequence[BatchSweep], analysis: StudyAnalysis) -> Drawing | None:
    """Time of an epoch against b; None with fewer than two batches."""
    title = f"A. Time of an epoch against b, D = {analysis.record.training[1].train_samples:,}"
    return _chart("a-epoch-against-b", title, "Epoch without data wait (s)", sweeps, _epoch)


def _rate(row: SweepRow) -> tuple[float, float | None, float | None] | None:
    rate = row.cell.summary.samples_per_s if row.cell.summary else None
    return (rate.value, rate.low, rate.high) if rate else None


def _epoch(row: SweepRow) -> tuple[float, float | None, float | None] | None:
    return None if row.epoch_s is None else (row.epoch_s, None, None)


def _chart(name: str, title: str, label: str, sweeps: Sequence[BatchSweep], value: Value) -> Drawing | None:
    points = _points(sweeps, value)
    if len(points) < 2:
        return None
    batches = sorted(float(point["b"]) for point in points)
    marks = _marks(sweeps[0]) if len(sweeps) == 1 else []
    said = "".join(f"; {mark['text']}" for mark in marks)
    description = (
        f"{label} against the local batch b, from b = {batches[0]:,.0f} to {batches[-1]:,.0f}{said}. Table A has all "
        "numbers."
    )
    bars = any(point["low"] != point["high"] for point in points)
    return draw(
        name,
        title,
        description,
        lambda size: _drawn(points, marks, label, size),
        table="a-batch-sweep",
        note="Bars are 95 % intervals." if bars else "",
    )


def _points(sweeps: Sequence[BatchSweep], value: Value) -> Points:
    return [
        {
            "b": row.cell.batch_size,
            "y": found[0],
            "low": found[0] if found[1] is None else found[1],
            "high": found[0] if found[2] is None else found[2],
            "sweep": f"{sweep.strategy}, N = {sweep.world_size}",
        }
        for sweep in sweeps
        for row in sweep.rows
        if (found := value(row)) is not None
    ]


def _marks(sweep: BatchSweep) -> Points:
    """The batches that the sweep was made to find, and what stands at them."""
    wanted = (
        ("knee", sweep.knee),
        ("largest that fits", sweep.largest),
        ("does not fit", sweep.too_large),
    )
    texts: dict[int, list[str]] = {}
    for text, b in wanted:
        if b is not None:
            texts.setdefault(b, []).append(text)
    return [{"b": b, "text": f"{', '.join(names)}: {b:,}"} for b, names in texts.items()]


def _drawn(points: Points, marks: Points, label: str, size: Size) -> Chart:
    names = list(dict.fromkeys(str(point["sweep"]) for point in points))
    batches = sorted({float(point["b"]) for point in [*points, *marks]})
    x = alt.X(
        "b:Q",
        title="Local batch b",
        scale=alt.Scale(type="log", base=2, domain=[0.85 * batches[0], _right_end(marks, batches, size)], nice=False),
        axis=alt.Axis(grid=False, values=_ticks(batches), format=",d"),
    )
    y = alt.Y("y:Q", title=label, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=size.ticks))
    legend = None if len(names) == 1 else alt.Legend(title=None, orient="top", columns=size.legend_columns, offset=32)
    scale = alt.Scale(domain=names, range=[SWEEP_COLOURS[i % len(SWEEP_COLOURS)] for i in range(len(names))])
    base = alt.Chart(values(points)).encode(x=x, y=y, color=alt.Color("sweep:N", scale=scale, legend=legend))
    lines = alt.Chart(values(marks)).encode(x=x)
    layers = [
        *([lines.mark_rule(color=INK, strokeDash=[3, 4])] if marks else []),
        *_words(marks, x, batches, size),
        base.mark_line(strokeWidth=1.6),
        base.mark_rule(strokeWidth=1.6).encode(y=alt.Y("low:Q", title=label), y2=alt.Y2("high:Q")),
        base.mark_point(filled=True, size=60, opacity=1),
    ]
    chart: Chart = alt.layer(*layers)
    return chart.properties(width=size.plot_width(AXIS_LABEL), height=size.height)


def _words(marks: Points, x: alt.X, batches: Sequence[float], size: Size) -> list[alt.Chart]:
    """The words at the marks, one line higher for each; those of the last mark stand behind it."""
    made = []
    for line, mark in enumerate(marks):
        left = mark["b"] != batches[0] and (line + 1 < len(marks) or mark["b"] != batches[-1])
        text = alt.Chart(values([mark])).mark_text(
            align="right" if left else "left", baseline="top", dx=-6 if left else 6, color=INK
        )
        made.append(text.encode(x=x, y=alt.value(size.height - 20 - 18 * line), text=alt.Text("text:N")))
    return made


def _right_end(marks: Points, batches: Sequence[float], size: Size) -> float:
    """Where the axis ends: with room for the words behind the last mark, if that is the last batch."""
    characters = len(str(marks[-1]["text"])) if marks and marks[-1]["b"] == batches[-1] else 0
    beyond: float = (batches[-1] / batches[0]) ** (WORD * size.label_room * characters)
    return 1.1 * batches[-1] * beyond


def _ticks(batches: Sequence[float]) -> list[float]:
    """Batches that are at least a factor of 1.6 apart, so that their numbers do not touch."""
    found: list[float] = []
    for b in batches:
        if not found or b >= 1.6 * found[-1]:
            found.append(b)
    return found
