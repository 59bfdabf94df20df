"""The HTML page: one file without script and without network, from the sections of the report."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from urllib.parse import quote

from jinja2 import Environment
from markupsafe import Markup

from worldsize.analysis.advice import NO_COMMAND, Advice, advise
from worldsize.analysis.advice.finding import several
from worldsize.analysis.advice.price import minutes_text
from worldsize.analysis.script_gate import gate
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.verdict import verdict
from worldsize.report.charts.colours import PART_COLOURS
from worldsize.report.contents import lead
from worldsize.report.html import POLICY, environment
from worldsize.report.key_numbers import key_numbers
from worldsize.report.profile import HOW_TO_OPEN, profiled, trace_name
from worldsize.report.result_tables import PART_LABELS
from worldsize.report.section import Section
from worldsize.report.svg import Drawing, inline
from worldsize.report.tables import shown

TABLE_FILES = (("CSV", "csv"), ("Markdown", "md"), ("LaTeX", "tex"))
DRAWING_FILES = (("SVG", "svg"), ("PNG", "png"))
"""Names and endings of the files of each table and of each chart that the page links to."""


def render_page(analysis: StudyAnalysis, contents: Sequence[Section], advices: Sequence[Advice] | None = None) -> str:
    """The page as text; everything that a user named is escaped. `advices` are those of the analysis, if at hand."""
    template = _environment().get_template("page.html.j2")
    filled = [section for section in contents if not section.empty]
    return template.render(
        policy=POLICY,
        study=analysis.record,
        machine=machine_text(analysis),
        verdict=verdict(analysis),
        gates=gate(analysis),
        key_numbers=key_numbers(analysis),
        advices=list(advise(analysis) if advices is None else advices),
        lead=lead(analysis, contents),
        sections=filled,
        tables_shown={table.id for section in filled for table in section.tables if table.rows},
        finished=sum(cell.state == "complete" for cell in analysis.cells),
        cells=analysis.cells,
        warnings=len(analysis.warnings),
        drifted=any(warning.code == "drift" for _, warning in analysis.warnings),
        traces=[trace_name(cell.id) for cell in profiled(analysis)],
        how_to_open=HOW_TO_OPEN,
    )


def machine_text(analysis: StudyAnalysis) -> str:
    """On what it ran, in a few words: an emulated network must not be taken for a real one, nor a node for several."""
    study = analysis.record
    host, hosts = study.provenance.host, study.asked.emulated
    devices = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in Counter(host.gpus).items())
    machine = f"{devices or f'{host.cpu_model}, {host.room_cores:g} cores'}{_threads(analysis)}"
    if hosts is None:
        of_cells = [{place.host for place in cell.record.ranks} for cell in analysis.cells if cell.record]
        nodes = max(map(len, of_cells), default=1)
        return f"{nodes} nodes · {machine}" if nodes > 1 else machine
    link = f" with links of {study.asked.link}" if study.asked.link else ""
    replay = study.asked.replay
    rehearsed = f"rehearsal of {replay.run}, not a measurement · " if replay else ""
    return f"{rehearsed}{hosts.count} emulated hosts{link} on {machine}"


def _threads(analysis: StudyAnalysis) -> str:
    """Compute threads per worker, by which a speed-up must be read; nothing where cells differ, or it is unknown."""
    found = {cell.threads_per_worker for cell in analysis.cells if cell.threads_per_worker and not cell.alone}
    return f" · {several(found.pop(), 'thread')} per worker" if len(found) == 1 else ""


def _environment() -> Environment:
    made = environment()
    filters = {"svg": _svg, "unbroken": _unbroken, "address": quote, "shown": shown, "moment": _moment, "rows": _rows}
    filters["minutes"] = minutes_text
    made.filters.update(filters)
    made.globals.update(
        table_files=TABLE_FILES,
        drawing_files=DRAWING_FILES,
        part_labels=PART_LABELS,
        part_colours=PART_COLOURS,
        no_command=NO_COMMAND,
    )
    return made


def _unbroken(text: str) -> str:
    """Keeps `b = 32`, `6 %` and `[5, 7]` on one line."""
    text = re.sub(r"(\[[^][ ]+,) (?=[^][ ]+\])", "\\1\N{NO-BREAK SPACE}", text)
    return text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}").replace(" %", "\N{NO-BREAK SPACE}%")


def _moment(created: str) -> str:
    """A moment of ISO 8601 in UTC for people, `2026-01-31 17:05 UTC`."""
    return f"{created[:10]} {created[11:16]} UTC"


def _rows(drawings: Sequence[Drawing]) -> list[list[Drawing]]:
    """Drawings of one row, side by side; one that names no row has its own."""
    rows: list[list[Drawing]] = []
    for row, run in groupby(drawings, key=lambda drawing: drawing.row):
        found = list(run)
        rows += [found] if row else [[drawing] for drawing in found]
    return rows


def _svg(drawing: Drawing, size: str) -> Markup:
    """A chart inside the page; its text was escaped when it was drawn."""
    return Markup(inline(drawing.wide if size == "wide" else drawing.narrow))
