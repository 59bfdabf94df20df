"""Experiment D, `sync-ladder`: one node, then several, and three ways to synchronise."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import altair as alt
import polars as pl

from worldsize.analysis.breakdown import COMPUTE_PARTS
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import estimate_text, number_text, percent_text
from worldsize.analysis.ranks import RankAnalysis, ranks, step_times
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.charts.loss import CURVE_POINTS, thinned
from worldsize.report.columns import MS, ColumnOf, integers, numbers, table_of, texts
from worldsize.report.profile import profile_table, profiled
from worldsize.report.result_tables import Apart, last_evaluation, taken_apart
from worldsize.report.section import Section
from worldsize.report.svg import AXIS_LABEL, Chart, Drawing, Size, draw, values
from worldsize.report.tables import Entry, Table
from worldsize.results.training_records import Evaluation

VARIANTS = {"single": "1", "gather-scatter": "2a", "all-reduce": "2b", "ddp": "3"}
"""How the variants are numbered; strategies beside them have no number."""
PRINT_AT = (20, 40)
MAX_RANKS = 16
"""Ranks of a variant up to which all are shown."""
DASHES = ([1, 0], [10, 6], [6, 10], [3, 13])


def section(analysis: StudyAnalysis) -> Section:
    """Tables per rank and per variant, two charts, and what the numbers say."""
    return Section(
        "experiment-d",
        "D. A ladder of ways to synchronise",
        tuple(drawing for drawing in (_time_chart(analysis), _loss_chart(analysis)) if drawing),
        (rank_table(analysis), timeline_table(analysis), *_profile(analysis)),
        tuple(part for part in (_same_weights(analysis), _speed(analysis), _bytes(analysis)) if part),
    )


def variant(cell: CellAnalysis) -> str:
    """Name of a variant: its number and its strategy."""
    number_ = VARIANTS.get(cell.strategy)
    return f"({number_}) {cell.strategy}" if number_ else cell.strategy


def print_steps(analysis: StudyAnalysis) -> tuple[int, int]:
    """After which steps the loss is printed: 20 and 40, or half and all of a shorter run."""
    most = max((cell.losses.height for cell in analysis.cells), default=0)
    return PRINT_AT if most >= PRINT_AT[-1] else (max(1, most // 2), max(1, most))


class _Ranked(NamedTuple):
    """A rank of a variant, and the last evaluation of the variant."""

    cell: CellAnalysis
    seen: RankAnalysis
    last: Evaluation | None


def rank_table(analysis: StudyAnalysis) -> Table:
    """Loss, accuracy and step time of each rank."""
    first, second = print_steps(analysis)
    columns: list[ColumnOf[_Ranked]] = [
        texts("Variant", "rung", lambda row: variant(row.cell)),
        integers("N", "world_size", lambda row: row.cell.world_size),
        integers("b", "local_batch", lambda row: row.cell.batch_size),
        integers("Rank", "rank", lambda row: row.seen.rank),
        numbers(f"Loss at step {first}", f"loss_at_{first}", lambda row: row.seen.loss_at[first]),
        numbers(f"Loss at step {second}", f"loss_at_{second}", lambda row: row.seen.loss_at[second]),
        numbers("Mean training loss", "mean_loss", lambda row: row.seen.mean_loss),
        numbers("Mean training accuracy", "mean_accuracy", lambda row: row.seen.mean_accuracy, "%"),
        numbers("Test loss", "test_loss", lambda row: row.last.test_loss if row.last else None),
        numbers("Test accuracy", "test_accuracy", _accuracy, "%"),
        numbers("Mean step, first excluded", "step_s", lambda row: row.seen.step_s, "ms"),
        numbers("Weights, distance from rank 0", "weights_divergence", _distance),
    ]
    rows = [
        _Ranked(cell, seen, last_evaluation(cell))
        for cell in analysis.cells
        if cell.id in analysis.run.cells
        for seen in ranks(analysis.run.cells[cell.id], (first, second))
    ]
    note = (
        "Training loss and accuracy are those of the rank's own samples, over all steps. The test set is run when a "
        "variant has ended, with the BatchNorm statistics of rank 0; ranks that hold the same weights share it, and "
        "have the same result. Mean step: of all steps of the rank but its first, by the rank's own clock; it includes "
        "warm-up steps, and the step times of other tables do not. Distance: |w − w₀| ÷ |w₀| over all parameters, 0 "
        "where every bit is the same."
    )
    whole = table_of("d-ranks", "D(1) Each rank", columns, rows, note)
    chosen: list[int] = []
    for _, of_variant in groupby(range(len(rows)), key=lambda place: rows[place].cell.id):
        places = list(of_variant)
        chosen += [places[place] for place in standing_out([whole.rows[place] for place in places])]
    if len(chosen) == len(rows):
        return whole
    which = f"{note} Of more than {MAX_RANKS} ranks, rank 0 and those with the largest or smallest number of a column."
    return replace(whole, note=which, chosen=tuple(chosen))


def standing_out(rows: Sequence[tuple[Entry, ...]]) -> list[int]:
    """Places of the rows to show: all of a few, else the first one and where a column is largest or smallest."""
    if len(rows) <= MAX_RANKS:
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


def _accuracy(row: _Ranked) -> float | None:
    if row.last is None:
        return None
    return row.last.test_accuracy if row.last.rank_accuracy is None else row.last.rank_accuracy[row.seen.rank]


def _distance(row: _Ranked) -> float | None:
    if row.last is None or row.last.divergence is None:
        return None
    return row.last.divergence.weights[row.seen.rank]


def timeline_table(analysis: StudyAnalysis) -> Table:
    """Share of compute and of communication in a step of each variant, and whether they overlap."""
    columns: list[ColumnOf[Apart]] = [
        texts("Variant", "rung", lambda row: variant(row.cell)),
        texts("Cell", "cell", lambda row: row.cell.id),
        numbers("Mean step", "mean_step_s", lambda row: row.step_s, "ms"),
        numbers("Compute", "compute_share", lambda row: sum(row.breakdown.shares[part] for part in COMPUTE_PARTS), "%"),
        numbers("Exposed communication", "exposed_share", _exposed_share, "%"),
        numbers("All communication", "comm_share", _comm_share, "%"),
        numbers("Communication overlapped", "overlapped_share", lambda row: row.breakdown.overlapped_share, "%"),
        numbers(
            "Wait, mean over ranks",
            "wait_s",
            lambda row: seen.wait_s if (seen := row.cell.communication_of_step) else None,
            "ms",
        ),
        numbers(
            "Transfer",
            "transfer_s",
            lambda row: seen.transfer_s if (seen := row.cell.communication_of_step) else None,
            "ms",
        ),
    ]
    note = (
        "Shares of the mean step over timed steps and ranks, from the timeline; backward is compute up to its last "
        "gradient (method §2, §3)."
    )
    return table_of(
        "d-timeline", "D(2) Compute and communication of each variant", columns, taken_apart(analysis), note
    )


def _exposed_share(row: Apart) -> float | None:
    return row.breakdown.exposed_share if row.cell.world_size > 1 else None


def _comm_share(row: Apart) -> float | None:
    if row.cell.world_size == 1 or not row.summary.comm_s:
        return None
    return row.summary.comm_s / row.step_s


def _same_weights(analysis: StudyAnalysis) -> str:
    """Whether all ranks ended with the same weights."""
    same: list[CellAnalysis] = []
    apart: list[CellAnalysis] = []
    for cell in analysis.cells:
        last = last_evaluation(cell)
        if last is not None and last.divergence is not None:
            (apart if last.divergence.apart else same).append(cell)
    said = []
    if same:
        names = ", ".join(variant(cell) for cell in same)
        said.append(f"All ranks of {names} ended with the same weights, so their test accuracy is the same.")
    for cell in apart:
        assert cell.record is not None
        last = cell.record.evaluations[-1]
        assert last.divergence is not None
        worst = last.divergence.largest(last.divergence.weights)
        how = "not finite" if worst is None else f"up to {number_text(worst)} apart"
        if cell.traits.travels == "weights":
            said.append(
                f"The ranks of {variant(cell)} are {how} between two averagings; the accuracy is of their average."
            )
            continue
        said.append(f"The ranks of {variant(cell)} did not end with the same weights: they are {how}.")
    return " ".join(said)


def _speed(analysis: StudyAnalysis) -> str:
    """What each variant gains over one worker, the global batch kept."""
    said = []
    for row in analysis.scaling:
        if row.kind == "strong" and row.baseline is not None:
            if row.speedup is None:
                said.append(f"{variant(row.cell)}: {row.withheld}")
            else:
                said.append(f"{variant(row.cell)}: {estimate_text(row.speedup.estimate)} (ideal {row.cell.world_size})")
    if not said:
        return ""
    return f"Speed-up over one worker with the same global batch (strong scaling): {'; '.join(said)}."


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
            f"{variant(cell)} moves {through} in each step; {percent_text(cell.breakdown.exposed_share)} of the step "
            f"is exposed communication{overlap}."
        )
    if said:
        said.append(
            "Through a root the bytes grow with N − 1; in a ring they stay below twice the gradients for any N."
        )
    return " ".join(said)


def _loss_chart(analysis: StudyAnalysis) -> Drawing | None:
    frames = {variant(cell): cell.losses for cell in analysis.cells if not cell.losses.is_empty()}
    return _chart("d-loss", "D. Loss against step", "Training loss", frames, "loss", 1.0)


def _time_chart(analysis: StudyAnalysis) -> Drawing | None:
    cells = [cell for cell in analysis.cells if cell.id in analysis.run.cells]
    frames = {variant(cell): step_times(analysis.run.cells[cell.id]) for cell in cells}
    return _chart("d-time", "D. Time per step against step", "Step of the slowest rank (ms)", frames, "step_s", MS)


def _chart(
    name: str, title: str, label: str, frames: dict[str, pl.DataFrame], column: str, factor: float
) -> Drawing | None:
    rows = [
        {"step": step + 1, "y": factor * value, "variant": variant_}
        for variant_, frame in frames.items()
        for step, value in thinned(frame.select("step", column), CURVE_POINTS).iter_rows()
    ]
    if not rows:
        return None
    description = f"{label} against step, one line for each of {len(frames)} variants; table D(1) has the numbers."
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
            color=alt.Color("variant:N", scale=colours, legend=legend),
            strokeDash=alt.StrokeDash("variant:N", scale=dashes, legend=legend),
        )
    )
    return chart.properties(width=size.plot_width(AXIS_LABEL), height=size.height)
