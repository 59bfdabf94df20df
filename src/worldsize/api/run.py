"""A run as a script or a notebook has it in hand: verdict, tables as data frames, charts; and its records."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import polars as pl
from markupsafe import escape

from worldsize.analysis.advice import Advice, advise
from worldsize.analysis.decision import is_decided
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.verdict import verdict
from worldsize.report.contents import lead, sections
from worldsize.report.result_tables import compact_table, results_table
from worldsize.report.samples import samples
from worldsize.report.section import Section
from worldsize.report.svg import Chart, inline
from worldsize.report.tables import Table, to_records
from worldsize.results.folder import Run as RunFolder

if TYPE_CHECKING:
    from worldsize.results.records import WarningRecord


class Run(RunFolder):
    """A run folder that was read (docs/python.md): its records, and what they add up to.

    What is computed is computed once, when it is asked for first. As the last line of a notebook's cell it shows its
    verdict, its results and its first chart.
    """

    @classmethod
    def of(cls, run: RunFolder) -> Self:
        """The same run, with its numbers. Reads nothing again."""
        found = cls(run.folder, run.study, run.cells, run.comm, run.unread)
        found.parts = {name: cls.of(part) for name, part in run.parts.items()}
        return found

    @cached_property
    def analysis(self) -> StudyAnalysis:
        """All numbers of the run (method.md). Raises OutputError for samples that cannot be read."""
        return analyse(self)

    @cached_property
    def verdict(self) -> str:
        """How many workers, which strategy, how much faster, and why not more: the first sentences of the report."""
        return verdict(self.analysis)

    @property
    def decided(self) -> bool | None:
        """Whether the study has its answer (method.md §8); None where it asks nothing, as a single cell does."""
        return is_decided(self.analysis)

    @cached_property
    def advice(self) -> list[Advice]:
        """What to try, the most promising first (docs/advice.md)."""
        return list(advise(self.analysis))

    @property
    def warnings(self) -> list[tuple[str, "WarningRecord"]]:
        """What to beware of: the id of a cell, or `study`, and the warning."""
        return list(self.analysis.warnings)

    @cached_property
    def results(self) -> pl.DataFrame:
        """A row for each cell: the table *Results* with raw numbers; seconds, bytes, samples/s (docs/output.md)."""
        return frame(results_table(self.analysis))

    @cached_property
    def samples(self) -> pl.DataFrame:
        """A row for each rank and timed step of all cells: parts of the step in seconds (docs/output.md)."""
        return samples(self.analysis.run).collect()

    @cached_property
    def tables(self) -> dict[str, pl.DataFrame]:
        """Every table of the report by its id, as in the CSV files: raw numbers; some have no rows."""
        return {table.id: frame(table) for section in self._sections for table in section.tables}

    @cached_property
    def charts(self) -> dict[str, Chart]:
        """Every chart of the report by its id, as Altair objects that can be changed and saved."""
        return {drawing.id: drawing.chart() for section in self._sections for drawing in section.drawings}

    @property
    def page(self) -> Path:
        """Where the report of this run is written to."""
        return self.folder / "report" / "index.html"

    @cached_property
    def _sections(self) -> list[Section]:
        return sections(self.analysis)

    def __repr__(self) -> str:
        return f"{self.verdict}\n\nworldsize.Run in {self.folder}"

    def _repr_html_(self) -> str:
        """For a notebook: no script, no network."""
        first = lead(self.analysis, self._sections)
        head, *rows = _html_rows(compact_table(self.analysis))
        chart = f"<figure>{inline(first.wide)}<figcaption>{escape(first.title)}</figcaption></figure>" if first else ""
        return (
            f"<p><b>{escape(self.verdict)}</b></p><table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
            f"{chart}<p>worldsize.Run in <code>{escape(str(self.folder))}</code></p>"
        )


def frame(table: Table) -> pl.DataFrame:
    """The raw values of a table; a column of several kinds is text."""
    records = to_records(table)
    if not records:
        return pl.DataFrame(schema=[key for column in table.columns for key in column.keys])
    return pl.DataFrame(records, infer_schema_length=None, strict=False)


def _html_rows(table: Table) -> list[str]:
    """The head, then the rows of a table as it is shown."""
    styles = [f'style="text-align:{"right" if column.align == "right" else "left"}"' for column in table.columns]
    head = [f"<th {style}>{escape(column.heading)}</th>" for style, column in zip(styles, table.columns, strict=True)]
    body = [
        [f"<td {style}>{escape(entry.text)}</td>" for style, entry in zip(styles, row, strict=True)]
        for row in table.rows
    ]
    return [f"<tr>{''.join(row)}</tr>" for row in (head, *body)]
