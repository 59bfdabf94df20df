"""The section of a rehearsal: what was real, how well its ranks kept their times, and what its links carried."""

from collections.abc import Iterator
from typing import NamedTuple

from worldsize.analysis.numbers import number_text
from worldsize.analysis.rehearsal import first_line
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, integers, numbers, table_of, texts
from worldsize.report.section import Section
from worldsize.report.tables import Table
from worldsize.results.comm_records import HostLink
from worldsize.results.training_records import ReplayedRecord

MBIT = 8e-6
"""From bytes to megabits."""


class _Cell(NamedTuple):
    id: str
    replayed: ReplayedRecord


class _Link(NamedTuple):
    world_size: int
    link: HostLink


def rehearsal_section(analysis: StudyAnalysis) -> Iterator[Section]:
    """Of a rehearsal; nothing for any other run."""
    settings = analysis.record.settings
    if settings is None or settings.replay is None:
        return
    planted = [f"rank {slow.rank}, {number_text(1e3 * slow.delay_s)} ms" for slow in settings.replay.slow_ranks]
    said = [first_line(settings)]
    said += [f"Planted: in each step {', '.join(planted)}."] if planted else []
    said += [f"Links with a rate of their own: {', '.join(settings.slow_link)}."] if settings.slow_link else []
    tables = (replayed_table(analysis), links_table(analysis))
    yield Section("rehearsal", "Rehearsal", (), tables, tuple(said))


def replayed_table(analysis: StudyAnalysis) -> Table:
    """A row for each cell that has begun."""
    columns: list[ColumnOf[_Cell]] = [
        texts("Cell", "cell", lambda row: row.id),
        texts("Replays", "source", lambda row: row.replayed.source),
        integers("Its steps", "source_steps", lambda row: row.replayed.source_steps),
        numbers("Fidelity", "fidelity", lambda row: row.replayed.fidelity),
        numbers("Intended", "intended_s", lambda row: row.replayed.intended_s or None, "s"),
        numbers("Waited", "waited_s", lambda row: row.replayed.waited_s or None, "s"),
        numbers("Queued for cores", "queued_share", lambda row: row.replayed.queued_share),
    ]
    records = (cell.record for cell in analysis.cells if cell.record is not None)
    rows = (_Cell(record.id, record.replayed) for record in records if record.replayed is not None)
    note = (
        "Fidelity: intended ÷ waited time, over all ranks and timed turns; below 0.98 a cell has no numbers. "
        "Queued for cores: what all threads of a rank waited for a core of this machine, ÷ its time; messages are "
        "late by it."
    )
    return table_of("replayed", "What was replayed", columns, rows, f"{note} Method §15.")


def links_table(analysis: StudyAnalysis) -> Table:
    """A row for each emulated link that was tested."""
    columns: list[ColumnOf[_Link]] = [
        integers("N", "world_size", lambda row: row.world_size),
        integers("Host", "host", lambda row: row.link.host),
        numbers("Rate for TCP", "payload_bytes_per_s", lambda row: row.link.payload_bytes_per_s, "Mbit/s", factor=MBIT),
        numbers("Carried", "steady_bytes_per_s", lambda row: row.link.steady_bytes_per_s, "Mbit/s", factor=MBIT),
        numbers("Burst in 100 ms", "burst", lambda row: row.link.burst),
        numbers("Round trip", "round_trip_s", lambda row: row.link.round_trip_s, "µs"),
    ]
    comm = analysis.run.comm.items()
    rows = (_Link(world_size, link) for world_size, record in sorted(comm) for link in record.links)
    note = "While all hosts send. Burst: the most that arrived in 100 ms, over what the link is to carry; at most 1.1."
    return table_of("host-links", "Links of the emulated hosts", columns, rows, f"{note} Method §15.")
