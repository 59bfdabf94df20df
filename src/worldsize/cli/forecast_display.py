"""A forecast in the terminal: the table, and what it rests on."""

from worldsize.cli.console import lines, output
from worldsize.cli.tables import TerminalTable
from worldsize.report.forecast_tables import compact_forecast_tables, sentences
from worldsize.results.forecast_records import ForecastReport

HEAD = "Predicted from {run}; nothing was run. In brackets: nine in ten steps should lie between these."


def print_forecast(report: ForecastReport) -> None:
    """Print it to stdout."""
    console = output()
    for text in (HEAD.format(run=report.run), ""):
        console.print("\n".join(lines(text, console.width)), soft_wrap=True)
    for table in compact_forecast_tables(report):
        console.print(TerminalTable(table))
        console.print()
    for text in sentences(report):
        console.print("\n".join(lines(text, console.width)), soft_wrap=True)
