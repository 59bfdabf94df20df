"""What `worldsize verify` shows while it runs, and what it found."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from worldsize.cli.tables import terminal_table
from worldsize.report.verify_table import findings, verify_summary
from worldsize.results.verify_records import ProofRecord


@contextmanager
def spinner(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Names what is started: in one line that changes on a terminal, in a line each elsewhere; on stderr."""
    console = Console(stderr=True, quiet=quiet, highlight=False)
    if not console.is_terminal:
        yield lambda name: console.print(f"  starting {name}")
        return
    with console.status("looking at data and model") as status:
        yield lambda name: status.update(f"comparing {name}")


def print_proof(record: ProofRecord) -> None:
    """The table, what differs, and in one line whether all of it holds."""
    console = Console(highlight=False)
    table = verify_summary(record)
    console.print(terminal_table(table))
    console.print(table.remarks, markup=False, style="dim")
    console.print()
    wrong = [row for row in record.rows if not row.same]
    for row in wrong:
        console.print(f"{row.strategy}, N = {row.world_size}: {'; '.join(findings(row))}", markup=False)
    end = "all train as the reference does" if not wrong else f"{len(wrong)} of {len(record.rows)} do not"
    console.print(end, markup=False)
