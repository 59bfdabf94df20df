"""The report of a run folder as files: the page, the tables, the charts, the samples (docs/output.md)."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from worldsize.analysis.advice import NO_COMMAND, advise
from worldsize.analysis.advice.price import minutes_text
from worldsize.analysis.script_gate import gate
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.verdict import verdict
from worldsize.report.contents import sections
from worldsize.report.latex import to_latex
from worldsize.report.page import render_page
from worldsize.report.profile import merged_trace, profiled, trace_name
from worldsize.report.samples import messages, parquet, samples
from worldsize.report.section import Section
from worldsize.report.svg import png_later
from worldsize.report.tables import Table, escaped, to_csv, to_markdown
from worldsize.results.files import cell_folder, own, write_whole
from worldsize.results.folder import load_run


def write_report(run: Path, analysis: StudyAnalysis | None = None) -> Path:
    """Write RUN/report/ and return the path of its index.html; the run may be complete or not.

    `analysis` is that of the run, if it is at hand. Raises OutputError for a folder that is not a run folder
    or cannot be written.
    """
    analysis = analysis or analyse(load_run(run))
    folder = own(run, "report")
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="worldsize-samples") as beside:
        # Packing the samples is no work of Python's: of 1,024 ranks × 1,000 steps it takes 0.7 s, and the sections 2 s.
        packed = beside.submit(parquet, samples(analysis.run))
        contents = sections(analysis)
        for cell in profiled(analysis):
            trace = merged_trace(cell_folder(run, cell.id), cell.id)
            if trace is not None:
                write_whole(folder / trace_name(cell.id), trace)
        for name, content in report_files(analysis, contents, packed):
            write_whole(folder / name, content)
    return folder / "index.html"


def report_files(
    analysis: StudyAnalysis, contents: Sequence[Section], packed: Future[bytes]
) -> Iterator[tuple[str, str | bytes]]:
    """Name and content of each file of a report; index.html comes last, when all that it links to is there.

    `packed`: the samples as a Parquet file.
    """
    drawings = [drawing for section in contents for drawing in section.drawings]
    pictures = [png_later(drawing) for drawing in drawings]
    yield "samples.parquet", packed.result()
    sent = messages(analysis.run)
    if sent is not None:
        yield "messages.parquet", parquet(sent)
    for section in contents:
        for table in section.tables:
            yield from _table_files(table)
    for drawing, picture in zip(drawings, pictures, strict=True):
        yield f"{drawing.id}.svg", drawing.wide
        yield f"{drawing.id}.png", picture.result()
    yield "summary.md", summary_markdown(analysis, contents)
    yield "index.html", render_page(analysis, contents)


def _table_files(table: Table) -> Iterator[tuple[str, str]]:
    yield f"{table.id}.csv", to_csv(table)
    if table.rows:
        yield f"{table.id}.md", to_markdown(table)
        yield f"{table.id}.tex", to_latex(table)


def summary_markdown(analysis: StudyAnalysis, contents: Sequence[Section]) -> str:
    """The verdict and all tables that have rows, in Markdown."""
    gates = (f"{escaped(each.text)}\n" for each in gate(analysis))
    parts = [f"# {escaped(analysis.record.name)}\n", f"{escaped(verdict(analysis))}\n", *gates, *_advice(analysis)]
    for section in contents:
        tables = [to_markdown(table) for table in section.tables if table.rows]
        images = [f"![{escaped(drawing.title)}]({drawing.id}.svg)\n" for drawing in section.drawings]
        if not section.empty:
            said = [f"{escaped(paragraph)}\n" for paragraph in section.paragraphs]
            parts += [f"## {section.title}\n", *said, *images, *tables]
    return "\n".join(parts)


def _advice(analysis: StudyAnalysis) -> Iterator[str]:
    """What limits it and what to try, most worthwhile first; nothing without advice."""
    for number, each in enumerate(advise(analysis), start=1):
        if number == 1:
            yield "## What limits it, and what to try\n"
        effect = f" Effect: {each.gain.text} ({each.gain.basis})" if each.gain else ""
        takes = f" (Takes {minutes_text(each.takes_s)}.)" if each.takes_s is not None else ""
        takes += "" if each.command else f" {NO_COMMAND}"
        yield escaped(f"{number}. {each.finding} {each.cause} {each.next_step}{takes}{effect}") + "\n"
        if each.command:
            yield f"       {' '.join(each.command.splitlines())}\n"
