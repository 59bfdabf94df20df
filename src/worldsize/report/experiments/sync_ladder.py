"""Experiment D, `sync-ladder`: one node, then several, and three ways to synchronise."""

from collections.abc import Sequence
from dataclasses import replace

import altair as alt
import polars as pl

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import estimate_text, number_text, percent_text
from worldsize.analysis.ranks import ranks, step_times
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.charts.loss import CURVE_POINTS, thinned
from worldsize.report.profile_tables import profile_table, profiled
from worldsize.report.result_tables import CELL, MS, PERCENT
from worldsize.report.section import Section
from worldsize.report.svg import AXIS_LABEL, Chart, Drawing, Size, draw, values
from worldsize.report.tables import Column, Entry, Table, integer, number, text
from worldsize.results.records import Evaluation

RUNGS = {"single": "1", "gather-scatter": "2a", "all-reduce": "2b", "ddp": "3"}
"""How the rungs are numbered; strategies beside them have no number."""
PRINT_AT = (20, 40)
MOST_RANKS = 16
"""Ranks of a rung up to which all are shown."""
DASHES = ([1, 0], [10, 6], [6, 10], [3, 13])


def section(analysis: StudyAnalysis) -> Section:
    """Tables per rank and per rung, two charts, and what the numbers say."""
    return Section(
        "experiment-d",
        "D. A ladder of ways to synchronise",
        tuple(drawing for drawing in (_time_chart(analysis), _loss_chart(analysis)) if drawing),
        (rank_table(analysis), timeline_table(analysis), *_profile(analysis)),
        tuple(part for part in (_same_weights(analysis), _speed(analysis), _bytes(analysis)) if part),
    )


def rung(cell: CellAnalysis) -> str:
    """Name of a rung: its number and its strategy."""
    number_ = RUNGS.get(cell.strategy)
    return f"({number_}) {cell.strategy}" if number_ else cell.strategy


def print_steps(analysis: StudyAnalysis) -> tuple[int, int]:
    """After which steps the loss is printed: 20 and 40, or half and all of a shorter run."""
    most = max((cell.losses.height for cell in analysis.cells), default=0)
    return PRINT_AT if most >= PRINT_AT[-1] else (max(1, most // 2), max(1, most))


def rank_table(analysis: StudyAnalysis) -> Table:
    """Loss, accuracy and step time of each rank."""
    first, second = print_steps(analysis)
    columns = (
        Column("Rung", ("rung",), align="left"),
        Column("N", ("world_size",)),
        Column("b", ("local_batch",)),
        Column("Rank", ("rank",)),
        Column(f"Loss at step {first}", (f"loss_at_{first}",)),
        Column(f"Loss at step {second}", (f"loss_at_{second}",)),
        Column("Mean training loss", ("mean_loss",)),
        Column("Mean training accuracy", ("mean_accuracy",), "%"),
        Column("Test loss", ("test_loss",)),
        Column("Test accuracy", ("test_accuracy",), "%"),
        Column("Mean step without the first", ("step_s",), "ms"),
        Column("Weights, distance from rank 0", ("weights_divergence",)),
    )
    rows: list[tuple[Entry, ...]] = []
    chosen: list[int] = []
    for cell in analysis.cells:
        if cell.id not in analysis.run.cells:
            continue
        first_row = len(rows)
        last = cell.record.evaluations[-1] if cell.record and cell.record.evaluations else None
        for seen in ranks(analysis.run.cells[cell.id], (first, second)):
            rows.append(
                (
                    text(rung(cell)),
                    *(integer(value) for value in (cell.world_size, cell.batch_size, seen.rank)),
                    number(seen.loss_at[first]),
                    number(seen.loss_at[second]),
                    number(seen.mean_loss),
                    number(seen.mean_accuracy, PERCENT),
                    number(last.test_loss if last else None),
                    number(_accuracy(last, seen.rank), PERCENT),
                    number(seen.step_s, MS),
                    _distance(last, seen.rank),
                )
            )
        chosen += [first_row + place for place in standing_out(rows[first_row:])]
    note = (
        "Training loss and accuracy are those of the rank's own samples, over all steps. The test set is run when a "
        "rung has ended, with the BatchNorm statistics of rank 0; ranks that hold the same weights share it and have "
        "the same result. Distance: |w − w₀| ÷ |w₀| over all parameters, 0 where every bit is the same."
    )
    whole = Table("d-ranks", "D(1) Each rank", columns, tuple(rows), note)
    if len(chosen) == len(rows):
        return whole
    which = f"{note} Of more than {MOST_RANKS} ranks, rank 0 and those with the largest or smallest number of a column."
    return replace(whole, note=which, chosen=tuple(chosen))


def standing_out(rows: Sequence[tuple[Entry, ...]]) -> list[int]:
    """Places of the rows to show: all of a few, else the first one and where a column is largest or smallest."""
    if len(rows) <= MOST_RANKS:
        return list(range(len(rows)))
    found = {0}
    for column in zip(*rows, strict=True):
        values = [(value, place) for place, entry in enumerate(column) if isinstance(value := entry.raw[0], float)]
        if values and min(values)[0] < max(values)[0]:
            found |= {min(values)[1], max(values)[1]}
    return sorted(found)


def _profile(analysis: StudyAnalysis) -> tuple[Table, ...]:
    """The same shares from the profiler's traces, if there are any."""
    if not profiled(analysis):
        return ()
    return (replace(profile_table(analysis), id="d-profile", title="D(3) The same from a profiler's trace"),)


def _accuracy(last: Evaluation | None, rank: int) -> float | None:
    if last is None:
        return None
    return last.test_accuracy if last.rank_accuracy is None else last.rank_accuracy[rank]


def _distance(last: Evaluation | None, rank: int) -> Entry:
    if last is None or last.divergence is None:
        return number(None)
    return number(last.divergence.weights[rank])


def timeline_table(analysis: StudyAnalysis) -> Table:
    """Share of compute and of communication in a step of each rung, and whether they overlap."""
    columns = (
        Column("Rung", ("rung",), align="left"),
        CELL,
        Column("Mean step", ("mean_step_s",), "ms"),
        Column("Compute", ("compute_share",), "%"),
        Column("Exposed communication", ("exposed_share",), "%"),
        Column("All communication", ("comm_share",), "%"),
        Column("Of it overlapped", ("overlapped_share",), "%"),
        Column("Wait, mean over ranks", ("wait_s",), "ms"),
        Column("Transfer", ("transfer_s",), "ms"),
    )
    rows = []
    for cell in analysis.cells:
        if cell.summary is None or cell.breakdown is None:
            continue
        shares, step_s = cell.breakdown.shares, sum(cell.summary.parts_s.values())
        several = cell.world_size > 1
        rows.append(
            (
                text(rung(cell)),
                text(cell.id),
                number(step_s, MS),
                number(shares["forward_s"] + shares["backward_s"] + shares["optimizer_s"], PERCENT),
                number(shares["exposed_sync_s"] if several else None, PERCENT),
                number(cell.summary.comm_s / step_s if several and cell.summary.comm_s else None, PERCENT),
                number(cell.breakdown.overlapped_share, PERCENT),
                number(cell.communication.wait_s if cell.communication else None, MS),
                number(cell.communication.transfer_s if cell.communication else None, MS),
            )
        )
    note = (
        "Shares of the mean step over timed steps and ranks, from the timeline; backward is compute up to its last "
        "gradient (method §2, §3)."
    )
    return Table("d-timeline", "D(2) Compute and communication of each rung", columns, tuple(rows), note)


def _same_weights(analysis: StudyAnalysis) -> str:
    """Whether all ranks ended with the same weights."""
    same: list[CellAnalysis] = []
    apart: list[CellAnalysis] = []
    for cell in analysis.cells:
        last = cell.record.evaluations[-1] if cell.record and cell.record.evaluations else None
        if last is not None and last.divergence is not None:
            (apart if last.divergence.apart else same).append(cell)
    said = []
    if same:
        names = ", ".join(rung(cell) for cell in same)
        said.append(f"All ranks of {names} ended with the same weights, so their test accuracy is the same.")
    for cell in apart:
        assert cell.record is not None
        last = cell.record.evaluations[-1]
        assert last.divergence is not None
        worst = last.divergence.largest(last.divergence.weights)
        how = "not finite" if worst is None else f"up to {number_text(worst)} apart"
        said.append(f"The ranks of {rung(cell)} did not end with the same weights: they are {how}.")
    return " ".join(said)


def _speed(analysis: StudyAnalysis) -> str:
    """What each rung gains over one node, the global batch kept."""
    said = []
    for row in analysis.scaling:
        if row.kind == "strong" and row.baseline is not None:
            if row.speedup is None:
                said.append(f"{rung(row.cell)}: {row.withheld}")
            else:
                said.append(f"{rung(row.cell)}: {estimate_text(row.speedup.estimate)} of {row.cell.world_size}")
    if not said:
        return ""
    return f"Speed-up over one node with the same global batch (strong scaling): {'; '.join(said)}."


def _bytes(analysis: StudyAnalysis) -> str:
    """Bytes through rank 0 against bytes through each rank, and where the time went."""
    said = []
    for cell in analysis.cells:
        wire = cell.record.wire if cell.record else None
        if cell.world_size == 1 or wire is None or cell.summary is None or cell.breakdown is None:
            continue
        through = (
            f"{number_text(wire.busiest_rank_bytes / 1e6)} MB each way through rank 0 and "
            f"{number_text(wire.other_rank_bytes / 1e6)} MB through every other rank"
            if wire.busiest_rank_bytes != wire.other_rank_bytes
            else f"{number_text(wire.busiest_rank_bytes / 1e6)} MB each way through every rank alike"
        )
        hidden = cell.breakdown.overlapped_share
        overlap = f", and {percent_text(hidden)} of all its communication is hidden behind compute" if hidden else ""
        said.append(
            f"{rung(cell)} moves {through} in each step; {percent_text(cell.breakdown.exposed_share)} of the step is "
            f"exposed communication{overlap}."
        )
    if said:
        said.append(
            "Through a root the bytes grow with N − 1; in a ring they stay below twice the gradients for any N."
        )
    return " ".join(said)


def _loss_chart(analysis: StudyAnalysis) -> Drawing | None:
    frames = {rung(cell): cell.losses for cell in analysis.cells if not cell.losses.is_empty()}
    return _chart("d-loss", "D. Loss against step", "Training loss", frames, "loss", 1.0)


def _time_chart(analysis: StudyAnalysis) -> Drawing | None:
    cells = [cell for cell in analysis.cells if cell.id in analysis.run.cells]
    frames = {rung(cell): step_times(analysis.run.cells[cell.id]) for cell in cells}
    return _chart("d-time", "D. Time per step against step", "Step of the slowest rank (ms)", frames, "step_s", MS)


def _chart(
    name: str, title: str, label: str, frames: dict[str, pl.DataFrame], column: str, factor: float
) -> Drawing | None:
    rows = [
        {"step": step + 1, "y": factor * value, "rung": rung_}
        for rung_, frame in frames.items()
        for step, value in thinned(frame.select("step", column), CURVE_POINTS).iter_rows()
    ]
    if not rows:
        return None
    description = f"{label} against step, one line for each of {len(frames)} rungs; table D(1) has the numbers."
    if max(frame.height for frame in frames.values()) > CURVE_POINTS:
        description += f" Of more than {CURVE_POINTS} steps, means of neighbours."
    return draw(name, title, description, lambda size: _lines(rows, label, list(frames), size), table="d-ranks")


def _lines(rows: list[dict[str, float | str]], label: str, names: list[str], size: Size) -> Chart:
    legend = alt.Legend(title=None, orient="top", columns=size.legend_columns, symbolType="stroke", offset=32)
    palette = ["#999999", "#E69F00", "#009E73", "#0072B2", "#D55E00", "#CC79A7"]
    colours = alt.Scale(domain=names, range=[palette[i % len(palette)] for i in range(len(names))])
    # Losses of the same training coincide: dashes let each line show between those above it.
    dashes = alt.Scale(domain=names, range=[DASHES[i % len(DASHES)] for i in range(len(names))])
    chart: Chart = (
        alt.Chart(values(rows))
        .mark_line(strokeWidth=1.6)
        .encode(
            x=alt.X("step:Q", title="Step", axis=alt.Axis(grid=False, tickCount=size.ticks)),
            y=alt.Y("y:Q", title=label, scale=alt.Scale(zero=False)),
            color=alt.Color("rung:N", scale=colours, legend=legend),
            strokeDash=alt.StrokeDash("rung:N", scale=dashes, legend=legend),
        )
    )
    return chart.properties(width=size.plot_width(AXIS_LABEL), height=size.height)
