"""Bandwidth of each cell beside what its link can do (method.md §5, §12)."""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import GB, number_text, percent_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.charts.colours import MESSAGES
from worldsize.report.charts.parts import cell_label
from worldsize.report.comm_tables import link_peak, link_rate
from worldsize.report.svg import INK, Chart, Drawing, Size, draw, values

ROW_HEIGHT = 30
REACHED, MEASURED, RATED = "reached in training", "peak, measured alone", "rated payload"


@dataclass(frozen=True)
class _Row:
    """Rates of a cell in GB/s; None where one is not known."""

    label: str
    reached: float
    measured: float | None
    rated: float | None

    @property
    def end(self) -> str:
        share = f" · {percent_text(self.reached / self.measured)} of peak" if self.measured else ""
        return f"{number_text(self.reached)} GB/s{share}"


def bandwidth_chart(analysis: StudyAnalysis) -> Drawing | None:
    """Bus bandwidth of each cell, the peak of its collective and the link's rate; None where nothing was sent."""
    found = [(cell, rate) for cell in analysis.cells if (rate := _reached(cell)) is not None]
    if not found:
        return None
    several = len({cell.batch_size for cell, _ in found}) > 1
    rows = [_row(analysis, cell, rate, several=several) for cell, rate in found]
    best = max(rows, key=lambda row: row.reached)
    known = any(row.measured for row in rows)
    description = (
        f"Bus bandwidth of {len(rows)} configurations while they train, as bars; marks are the peak that the "
        f"collective benchmark measured on the same link and the link's rated payload rate, where they are known. "
        f"The most has {best.label}: {best.end}. The table of communication has all numbers."
    )
    note = (
        "Peak: the best bus bandwidth of the same kind of collective on the same link, measured before the cells and "
        "alone. Messages beside compute, or small ones, reach less."
        if known
        else "No collective benchmark was run on this link before the cells, so there is no peak to compare with."
    )
    return draw(
        "bandwidth",
        "Bandwidth against the link's peak",
        description,
        lambda size: _drawn(rows, size),
        table="communication",
        note=note,
    )


def _reached(cell: CellAnalysis) -> float | None:
    return cell.communication.busbw_bytes_per_s if cell.communication else None


def _row(analysis: StudyAnalysis, cell: CellAnalysis, rate: float, *, several: bool) -> _Row:
    peak, rated = link_peak(analysis, cell), link_rate(analysis, cell)
    label = f"{cell_label(cell)}, b = {cell.batch_size:,}" if several else cell_label(cell)
    return _Row(label, rate / GB, peak / GB if peak else None, rated / GB if rated else None)


def _drawn(rows: Sequence[_Row], size: Size) -> Chart:
    labels = [row.label for row in rows]
    ends = [row.end if size.long_ends else number_text(row.reached) for row in rows]
    top = max(value for row in rows for value in (row.reached, row.measured, row.rated) if value)
    scale = alt.Scale(domain=[0, top * (1 + size.label_room * max(map(len, ends)))], nice=False)
    x = alt.X("value:Q", title="Bus bandwidth (GB/s)", scale=scale, axis=alt.Axis(tickCount=size.ticks))
    y = alt.Y("cell:N", sort=labels, title=None, axis=alt.Axis(grid=False))
    kinds = {REACHED: MESSAGES, MEASURED: "#D55E00", RATED: "#009E73"}
    marks = [
        {"cell": row.label, "value": value, "what": what}
        for row in rows
        for what, value in ((MEASURED, row.measured), (RATED, row.rated))
        if value
    ]
    shown = [REACHED, *(what for what in (MEASURED, RATED) if any(mark["what"] == what for mark in marks))]
    legend = alt.Legend(title=None, orient="top", columns=size.part_columns, symbolType="square", offset=12)
    colour = alt.Color("what:N", scale=alt.Scale(domain=shown, range=[kinds[what] for what in shown]), legend=legend)
    reached = [{"cell": row.label, "value": row.reached, "what": REACHED} for row in rows]
    texts = [
        {"cell": row.label, "value": max(filter(None, (row.reached, row.measured, row.rated))), "text": end}
        for row, end in zip(rows, ends, strict=True)
    ]
    ticks = alt.Chart(values(marks)).mark_tick(thickness=3, size=22, opacity=1)
    text = alt.Chart(values(texts)).mark_text(align="left", dx=8, color=INK)
    layers = [
        alt.Chart(values(reached)).mark_bar(height={"band": 0.5}).encode(x=x, y=y, color=colour),
        *([ticks.encode(x=x, y=y, color=colour)] if marks else []),
        text.encode(x=x, y=y, text=alt.Text("text:N")),
    ]
    chart: Chart = alt.layer(*layers)
    return chart.properties(width=size.plot_width(max(map(len, labels))), height=ROW_HEIGHT * len(rows))
