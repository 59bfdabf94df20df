"""Tables in the terminal: the same `Table` that the page shows, drawn with rich."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from worldsize.cli.console import printable
from worldsize.report.tables import Table, shown


def terminal_table(table: Table) -> RenderableType:
    """Title and table for the terminal; its entries are text, whatever signs they hold.

    Where it does not fit, names are cut and prose is broken; numbers stay whole.
    """
    table = shown(table)
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
    return Group(Text(table.title, style="bold"), drawn)
