"""The picture of one real step of each strategy: ranks under each other, messages under what the rank computes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import altair as alt

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.groups import Group
from worldsize.analysis.numbers import number_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.timeline_step import RESOLUTION, RankPicture, StepPicture, merged, picture, rastered
from worldsize.report.charts.colours import MESSAGES, PART_COLOURS
from worldsize.report.result_tables import PART_LABELS
from worldsize.report.svg import INK, Chart, Drawing, Size, draw, values
from worldsize.results.records import PARTS

HOW_TO_READ = (
    "Each rank has two lanes: above, what it does; below, its messages. Where a message lies under forward or backward "
    "it is hidden behind compute; where it lies under exposed communication, the rank computes nothing meanwhile."
)
MAX_PICTURES = 4
"""World sizes and batches of which there is a picture: each has up to eight ranks of every strategy."""
HEADING, COMPUTE, COMMUNICATION, BETWEEN = 22, 13, 8, 6
"""Pixels of a strategy's name, of the lanes of a rank, and between ranks."""
RANK_LABEL = 8
"""Characters of a rank's name."""
TRANSFER, WAIT = "message in transfer", "waits for the last rank"
PALE = "rgba(140,107,177,0.45)"
"""The colour of messages, so much lighter that wait and transfer differ without seeing colours."""
NS_PER_MS = 1e6


@dataclass(frozen=True)
class Scene:
    """Steps that are drawn on one axis: the strategies of a world size, and the worker that they compare with."""

    id: str
    title: str
    steps: tuple[StepPicture, ...]


def scenes(analysis: StudyAnalysis, found: Sequence[Group]) -> list[Scene]:
    """One for each world size above 1 and group that was measured, those of the verdict first.

    At most MAX_PICTURES; `how_to_read` says how many are left out. Of one worker there is no picture: its messages are
    absent, not empty lanes (method.md §5).
    """
    made = [_scene(analysis, group, n) for group, n in _wanted(found)[:MAX_PICTURES]]
    return [scene for scene in made if scene.steps]


def how_to_read(found: Sequence[Group]) -> tuple[str, ...]:
    """What to say above the pictures; nothing where no rank sends messages."""
    every = len(_wanted(found))
    if not every:
        return ()
    left = f" Drawn are {MAX_PICTURES} of {every} pairs of world size and batch." if every > MAX_PICTURES else ""
    return (f"{HOW_TO_READ}{left}",)


def _wanted(found: Sequence[Group]) -> list[tuple[Group, int]]:
    return [(group, n) for group in found for n in reversed(group.world_sizes)]


def _scene(analysis: StudyAnalysis, group: Group, world_size: int) -> Scene:
    cells = [cell for cell in group.measured if cell.world_size == world_size]
    rows = [analysis.scaling_of(cell) for cell in cells]
    baselines = {row.baseline.id: row.baseline for row in rows if row and row.baseline and row.baseline.summary}
    title = f"One step of each strategy with {world_size} workers, {group.name}"
    steps = _pictures(analysis, [*baselines.values(), *sorted(cells, key=_step_s)])
    return Scene(f"timeline-{group.id}-w{world_size}", title, steps)


def _pictures(analysis: StudyAnalysis, cells: Sequence[CellAnalysis]) -> tuple[StepPicture, ...]:
    drawn = (picture(analysis.run.cells[cell.id]) for cell in cells)
    return tuple(step for step in drawn if step is not None)


def _step_s(cell: CellAnalysis) -> float:
    return cell.summary.step_s.value if cell.summary else 0.0


def timeline_chart(scene: Scene) -> Drawing:
    """Draw a scene; all its steps have the same axis."""
    longest = max(scene.steps, key=lambda step: step.end_ns)
    said = ", ".join(f"{step.name} takes {number_text(1e3 * step.step_s)} ms" for step in scene.steps)
    description = (
        f"Timelines on one axis, ranks under each other: {said}. Under what a rank computes are its messages; where "
        "both are filled, communication is hidden. The table of drawn steps has the numbers."
    )
    return draw(
        scene.id,
        scene.title,
        description,
        lambda size: _drawn(scene, longest.end_ns, size),
        table="timeline",
        note=" ".join(_notes(scene, longest)),
    )


def _notes(scene: Scene, longest: StepPicture) -> Iterator[str]:
    several = [step for step in scene.steps if step.world_size > 1]
    yield (
        "Of each configuration the timed step whose time is nearest the median. "
        "The end of each phase, the last gradient, and the start and end of each message are drawn where they were "
        "recorded."
    )
    for step in several:
        if step.processes > len(step.ranks):
            yield (
                f"{step.name}: {len(step.ranks)} of {step.processes} ranks, rank 0 and from the one that works longest "
                "to the one that works least."
            )
        elif step.processes < step.world_size:
            yield f"{step.name}: one process drives all workers; its messages are copies inside it."
    width_ms = RESOLUTION * longest.end_ns / NS_PER_MS
    error_ms = max((1e3 * step.clock_error_s for step in several), default=0.0)
    if several:
        yield f"Messages less than {number_text(width_ms)} ms apart are drawn as one."
    if error_ms:
        yield f"Clocks agree to {number_text(error_ms)} ms."


def _drawn(scene: Scene, end_ns: int, size: Size) -> Chart:
    width = max(1, round(RESOLUTION * end_ns))
    texts: list[dict[str, float | str]] = []
    boxes: list[dict[str, float | str]] = []
    at = 0
    for step in scene.steps:
        text = f"{step.name}: {number_text(1e3 * step.step_s)} ms"
        texts.append({"x": 0, "y": at + HEADING / 2, "text": text, "what": "step"})
        at += HEADING
        for rank in step.ranks:
            texts.append({"x": 0, "y": at + COMPUTE / 2, "text": f"rank {rank.rank}", "what": "rank"})
            boxes += _boxes(rank, at, width)
            at += COMPUTE + COMMUNICATION + BETWEEN if rank.messages else COMPUTE + BETWEEN
    return _laid(texts, boxes, (at, end_ns / NS_PER_MS), size)


def _boxes(rank: RankPicture, top: int, width: int) -> Iterator[dict[str, float | str]]:
    lower = top + COMPUTE + 1
    for part, begin, end in rastered(rank.compute, width):
        yield _box(PART_LABELS[part], begin, min(end, rank.end_ns), (top, top + COMPUTE))
    for name, lane in ((WAIT, rank.wait), (TRANSFER, rank.transfer)):
        for begin, end in merged(lane, width):
            yield _box(name, begin, max(end, begin + width // 2), (lower, lower + COMMUNICATION))


def _box(what: str, begin: int, end: int, lane: tuple[int, int]) -> dict[str, float | str]:
    return {
        "what": what,
        "x": round(begin / NS_PER_MS, 4),
        "x2": round(end / NS_PER_MS, 4),
        "y": lane[0],
        "y2": lane[1],
    }


def _laid(
    texts: list[dict[str, float | str]], boxes: list[dict[str, float | str]], extent: tuple[int, float], size: Size
) -> Chart:
    height, end_ms = extent
    names = {**{PART_LABELS[part]: PART_COLOURS[part] for part in PARTS}, WAIT: PALE, TRANSFER: MESSAGES}
    shown = [name for name in names if any(box["what"] == name for box in boxes)]
    colours = alt.Scale(domain=shown, range=[names[name] for name in shown])
    legend = alt.Legend(title=None, orient="top", columns=size.part_columns, offset=12, symbolType="square")
    x = alt.X(
        "x:Q",
        title="Since the first rank began (ms)",
        scale=alt.Scale(domain=[0, 1.01 * end_ms], nice=False),
        axis=alt.Axis(tickCount=size.ticks),
    )
    y = alt.Y("y:Q", scale=alt.Scale(domain=[height, 0], nice=False), axis=None)
    data = alt.Chart(values(boxes))
    colour = alt.Color("what:N", scale=colours, legend=legend)
    words = alt.Chart(values(texts)).encode(x=x, y=y, text=alt.Text("text:N"))
    chart: Chart = alt.layer(
        data.mark_rect().encode(x=x, x2=alt.X2("x2:Q"), y=y, y2=alt.Y2("y2:Q"), color=colour),
        words.transform_filter("datum.what === 'step'").mark_text(align="left", fontWeight="bold", color=INK, dy=2),
        words.transform_filter("datum.what === 'rank'").mark_text(align="right", dx=-8, color=INK),
    )
    return chart.properties(width=size.plot_width(RANK_LABEL), height=height)
