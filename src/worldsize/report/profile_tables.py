"""The table of a profile: what torch's profiler saw of the steps, beside the timeline (docs/profiles.md)."""

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.profile import RankProfile
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.tables import Column, Entry, Table, integer, number, text
from worldsize.report.trace import trace_name

NOTE = (
    "Steps under torch.profiler, after the timed ones, beside what the timeline says of the timed steps. Compute: "
    "operators (kernels on a GPU); communication: messages, by the timeline or by the backend; overlapped: both at "
    "once. All are shares of the step. Difference: profile − timeline, in points of the step (docs/profiles.md)."
)
HOW_TO_OPEN = "Open a trace at https://ui.perfetto.dev or in chrome://tracing"
SHARES = ("compute", "communication", "overlapped")


def profile_table(analysis: StudyAnalysis) -> Table:
    """A line for each rank of a cell that was profiled."""
    columns = [
        Column("Cell", ("cell",), align="left"),
        Column("Rank", ("rank",)),
        Column("Step", ("step_s",), "ms"),
        Column("timeline", ("timeline_step_s",), "ms"),
    ]
    for name in SHARES:
        columns += [
            Column(name.capitalize(), (f"{name}_share",), "%"),
            Column("timeline", (f"timeline_{name}_share",), "%"),
            Column("difference", (f"{name}_difference",), "points"),
        ]
    rows = tuple(_row(cell, rank) for cell in profiled(analysis) if cell.profile for rank in cell.profile.ranks)
    files = ", ".join(trace_name(cell.id) for cell in profiled(analysis))
    return Table("profile", "Profile", tuple(columns), rows, f"{NOTE} {HOW_TO_OPEN}: {files}.")


def profiled(analysis: StudyAnalysis) -> list[CellAnalysis]:
    """The cells of which there is a trace."""
    return [cell for cell in analysis.cells if cell.profile is not None and cell.profile.ranks]


def _row(cell: CellAnalysis, rank: RankProfile) -> tuple[Entry, ...]:
    seen, timed = rank.profile, rank.timeline
    entries = [
        text(cell.id),
        integer(rank.rank),
        number(seen.step_s, 1e3),
        number(timed.step_s if timed else None, 1e3),
    ]
    for name in SHARES:
        ours, theirs = getattr(seen, name), getattr(timed, name, None)
        difference = None if theirs is None else ours - theirs
        entries += [number(ours, 100), number(theirs, 100), number(difference, 100)]
    return tuple(entries)
