"""The HTML page: one file without script and without network, from the sections of the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import ABSENT, interval_text, number_text, percent_text
from worldsize.analysis.scaling import ScalingRow
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.sweep import BatchSweep
from worldsize.analysis.verdict import cell_name, fastest_worker, headline, verdict
from worldsize.report.profile_tables import HOW_TO_OPEN, profiled
from worldsize.report.section import Section
from worldsize.report.svg import Drawing, inline
from worldsize.report.tables import shown
from worldsize.report.trace import trace_name
from worldsize.results.records import Estimate

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content-Security-Policy: whatever a page says, a browser loads nothing for it from anywhere."""


ONE_WORKER_LABELS = ("Throughput", "Step time", "Waiting for data")


@dataclass(frozen=True)
class KeyNumber:
    """One of the three numbers of the first screen."""

    label: str
    value: str
    unit: str
    detail: str
    """Its interval, and what it refers to."""


def render_page(analysis: StudyAnalysis, contents: Sequence[Section]) -> str:
    """The page as text; everything that a user named is escaped."""
    template = _environment().get_template("page.html.j2")
    drawings = [drawing for section in contents for drawing in section.drawings]
    return template.render(
        policy=POLICY,
        study=analysis.record,
        verdict=verdict(analysis),
        key_numbers=key_numbers(analysis),
        lead=drawings[0] if drawings else None,
        sections=[section for section in contents if not section.empty],
        finished=sum(cell.state == "complete" for cell in analysis.cells),
        cells=analysis.cells,
        warnings=len(analysis.warnings),
        traces=[trace_name(cell.id) for cell in profiled(analysis)],
        how_to_open=HOW_TO_OPEN,
    )


def key_numbers(analysis: StudyAnalysis) -> tuple[KeyNumber, KeyNumber, KeyNumber]:
    """Scaled speed-up, throughput and exposed communication of the fastest multi-worker configuration.

    Where no configuration with several workers has numbers: throughput, step and data wait of the fastest worker.
    """
    if analysis.sweeps:
        return _of_a_sweep(analysis.sweeps[0])
    found = headline(analysis)
    labels = (analysis.speedup_name, "Throughput", "Exposed communication")
    if found is None or found.fastest.summary is None or found.fastest.breakdown is None:
        return _of_one_worker(analysis)
    samples_per_s = found.fastest.summary.samples_per_s
    share = percent_text(found.fastest.breakdown.exposed_share).removesuffix(" %")
    return (
        _speedup(labels[0], found.scaling),
        _throughput(found.fastest, samples_per_s),
        KeyNumber(labels[2], share, "% of a step", "a rank only waits for the synchronisation"),
    )


def _throughput(cell: CellAnalysis, samples_per_s: Estimate) -> KeyNumber:
    detail = f"{interval_text(samples_per_s)} {cell_name(cell)}".strip()
    return KeyNumber("Throughput", number_text(samples_per_s.value), "samples/s", detail)


def _of_a_sweep(sweep: BatchSweep) -> tuple[KeyNumber, KeyNumber, KeyNumber]:
    rates = {row.cell.batch_size: row.cell.summary.samples_per_s for row in sweep.rows if row.cell.summary}
    best = rates.get(sweep.knee or 0)
    name = f"{sweep.strategy}, N = {sweep.world_size}"
    largest, knee = (ABSENT if b is None else f"{b:,}" for b in (sweep.largest, sweep.knee))
    return (
        KeyNumber("Largest local batch", largest, "samples", f"seen to fit; {name}"),
        KeyNumber("Knee", knee, "samples", "smallest b within 5 % of the best throughput"),
        KeyNumber("Throughput at the knee", number_text(best.value if best else None), "samples/s", name),
    )


def _of_one_worker(analysis: StudyAnalysis) -> tuple[KeyNumber, KeyNumber, KeyNumber]:
    fastest = fastest_worker(analysis)
    if fastest is None or fastest.summary is None or fastest.breakdown is None:
        rate, step, wait = (KeyNumber(label, ABSENT, "", "nothing was measured") for label in ONE_WORKER_LABELS)
        return rate, step, wait
    samples_per_s, step_s = fastest.summary.samples_per_s, fastest.summary.step_s
    waiting = percent_text(fastest.breakdown.shares["data_wait_s"]).removesuffix(" %")
    return (
        _throughput(fastest, samples_per_s),
        KeyNumber(ONE_WORKER_LABELS[1], number_text(step_s.value * 1e3), "ms", interval_text(step_s, 1e3)),
        KeyNumber(ONE_WORKER_LABELS[2], waiting, "% of a step", "the worker waits for its next batch"),
    )


def _speedup(label: str, row: ScalingRow) -> KeyNumber:
    if row.speedup is None or row.baseline is None or row.efficiency is None:
        return KeyNumber(label, ABSENT, "", row.withheld or "")
    speedup, efficiency = row.speedup.estimate, percent_text(row.efficiency.estimate.value)
    detail = f"{interval_text(speedup)} over {row.baseline.id}, efficiency {efficiency}".strip()
    return KeyNumber(label, number_text(speedup.value), f"of {row.cell.world_size}", detail)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("worldsize.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = _svg
    environment.filters["unbroken"] = _unbroken
    environment.filters["address"] = quote
    environment.filters["shown"] = shown
    return environment


def _unbroken(text: str) -> str:
    """Keeps `b = 32` and `6 %` on one line."""
    return text.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}").replace(" %", "\N{NO-BREAK SPACE}%")


def _svg(drawing: Drawing, size: str) -> Markup:
    """A chart inside the page; its text was escaped when it was drawn."""
    return Markup(inline(drawing.wide if size == "wide" else drawing.narrow))
