"""The table of a profile: what torch's profiler saw of the steps, beside the timeline (docs/profiles.md)."""

from typing import NamedTuple

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.profile import RankProfile, Shares
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, integers, numbers, table_of, texts
from worldsize.report.tables import Table
from worldsize.report.trace import trace_name

NOTE = (
    "Steps under torch.profiler, after the timed ones, beside what the timeline says of the timed steps. Compute: "
    "operators (kernels on a GPU); communication: messages, by the timeline or by the backend; overlapped: both at "
    "once. All are shares of the step. Difference: profile − timeline, in points of the step (docs/profiles.md)."
)
HOW_TO_OPEN = "Open a trace at https://ui.perfetto.dev or in chrome://tracing"
SHARES = ("compute", "communication", "overlapped")


class _Rank(NamedTuple):
    cell_id: str
    seen: RankProfile


def profile_table(analysis: StudyAnalysis) -> Table:
    """A line for each rank of a cell that was profiled."""
    columns: list[ColumnOf[_Rank]] = [
        texts("Cell", "cell", lambda row: row.cell_id),
        integers("Rank", "rank", lambda row: row.seen.rank),
        numbers("Step", "step_s", lambda row: row.seen.profile.step_s, "ms"),
        numbers(
            "timeline", "timeline_step_s", lambda row: timed.step_s if (timed := row.seen.timeline) else None, "ms"
        ),
        *(column for name in SHARES for column in _share(name)),
    ]
    rows = (_Rank(cell.id, rank) for cell in profiled(analysis) if cell.profile for rank in cell.profile.ranks)
    files = ", ".join(trace_name(cell.id) for cell in profiled(analysis))
    return table_of("profile", "Profile", columns, rows, f"{NOTE} {HOW_TO_OPEN}: {files}.")


def profiled(analysis: StudyAnalysis) -> list[CellAnalysis]:
    """The cells of which there is a trace."""
    return [cell for cell in analysis.cells if cell.profile is not None and cell.profile.ranks]


def _share(name: str) -> list[ColumnOf[_Rank]]:
    """A share of the step, that of the timeline, and by how much they differ."""

    def share(found: Shares | None) -> float | None:
        value: float | None = getattr(found, name, None)
        return value

    def difference(row: _Rank) -> float | None:
        ours, theirs = share(row.seen.profile), share(row.seen.timeline)
        return None if ours is None or theirs is None else ours - theirs

    return [
        numbers(name.capitalize(), f"{name}_share", lambda row: share(row.seen.profile), "%"),
        numbers("timeline", f"timeline_{name}_share", lambda row: share(row.seen.timeline), "%"),
        numbers("difference", f"{name}_difference", difference, "points"),
    ]
