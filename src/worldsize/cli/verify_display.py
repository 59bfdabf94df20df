"""What `worldsize verify` shows while it runs, and what it found."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from worldsize.cli.tables import terminal_table
from worldsize.report.verify_table import verify_table
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
    """The table, and in one line whether all of it holds."""
    console = Console(highlight=False)
    table = verify_table(record)
    console.print(terminal_table(table))
    console.print(table.remarks, markup=False, style="dim")
    wrong = [row for row in record.rows if not row.same]
    text = "same training in all of them" if not wrong else f"{len(wrong)} of {len(record.rows)} are not the reference"
    console.print(f"\n{text}", markup=False)
