"""Tables in the terminal: the same `Table` that the page shows, drawn with rich."""

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from worldsize.cli.console import printable
from worldsize.report.tables import Table, shown

MIN_NAME = 8
"""Columns that names and prose get at least; numbers get all that they need."""
BETWEEN = 2
"""Columns between two columns: one of padding, and the one that rich keeps for a line."""


class TerminalTable:
    """Title and table for the terminal; its entries are text, and no sign in them is markup.

    Where it does not fit, names are cut and prose is broken. Numbers stay whole: where there is no room for them side
    by side, each row is shown on its side, a line per column.
    """

    def __init__(self, table: Table) -> None:
        self.table = shown(table)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Choose by the room that there is."""
        fits = sum(_least_widths(self.table)) + BETWEEN * (len(self.table.columns) - 1) <= options.max_width
        drawn = _side_by_side(self.table) if fits else _on_its_side(self.table)
        yield Group(Text(self.table.title, style="bold"), drawn)


def _least_widths(table: Table) -> list[int]:
    widths = []
    for place, column in enumerate(table.columns):
        widest = max(len(text) for text in (column.heading, *(row[place].plain for row in table.rows)))
        widths.append(widest if column.align == "right" else min(MIN_NAME, widest))
    return widths


def _side_by_side(table: Table) -> RichTable:
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in table.columns:
        drawn.add_column(
            Text(column.heading),
            justify="right" if column.align == "right" else "left",
            no_wrap=column.align == "right",
            overflow="fold" if column.align == "prose" else "ellipsis",
        )
    for row in table.rows:
        drawn.add_row(*(Text(printable(entry.plain)) for entry in row))
    return drawn


def _on_its_side(table: Table) -> RichTable:
    """Heading and entry in a line each; between two rows of the table an empty one."""
    drawn = RichTable.grid(padding=(0, 2, 0, 0))
    drawn.add_column(overflow="fold", ratio=1)
    drawn.add_column(overflow="fold", ratio=1)
    for number, row in enumerate(table.rows):
        if number:
            drawn.add_row("", "")
        for column, entry in zip(table.columns, row, strict=True):
            drawn.add_row(Text(column.heading, style="dim"), Text(printable(entry.plain)))
    return drawn
