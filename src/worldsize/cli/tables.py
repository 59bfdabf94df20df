"""Tables in the terminal: the same `Table` that the page shows, drawn with rich."""

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from worldsize.report.tables import Table, shown


def terminal_table(table: Table) -> RichTable:
    """A table for the terminal; its entries are text, whatever signs they hold."""
    table = shown(table)
    drawn = RichTable(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title=Text(table.title, style="bold"),
        title_justify="left",
    )
    for column in table.columns:
        drawn.add_column(Text(column.heading), justify="right" if column.align == "right" else "left")
    for row in table.rows:
        drawn.add_row(*(Text(entry.plain) for entry in row))
    return drawn
