"""What `worldsize verify` shows while it runs, and what it found."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from worldsize.cli.console import LOOKING, lines, messages, output
from worldsize.cli.heartbeat import Heartbeat
from worldsize.cli.tables import TerminalTable
from worldsize.report.verify_table import findings, lossy_summary, verify_summary
from worldsize.results.verify_records import ProofRecord


@contextmanager
def spinner() -> Iterator[Callable[[str], None]]:
    """Names what is started: in one line that changes on a terminal, in a line each elsewhere; on stderr."""
    console = messages()
    if not console.is_terminal:
        with Heartbeat(LOOKING, console.print) as heartbeat:

            def starting(name: str) -> None:
                console.print(f"  starting {name}")
                heartbeat.progress(f"comparing {name}")

            yield starting
        return
    with console.status(LOOKING) as status:
        yield lambda name: status.update(f"comparing {name}")


def print_proof(record: ProofRecord) -> None:
    """The table, what differs, and in one line whether all of it holds."""
    console = output()
    tables = [table for table in (verify_summary(record), lossy_summary(record)) if table is not None]
    wrong = [row for row in record.rows if not row.same]
    lossy = any(row.proof and row.proof.losses for row in record.rows)
    right = "all train as the reference does" + (", lossy ones within what they say of themselves" if lossy else "")
    console.print(f"{len(wrong)} of {len(record.rows)} do not" if wrong else right)
    for row in wrong:
        found = f"{row.strategy}, N = {row.world_size}: {'; '.join(findings(row))}"
        console.print("\n".join(lines(found, console.width, indent="  ")), soft_wrap=True)
    for table in tables:
        console.print()
        console.print(TerminalTable(table))
        console.print("\n".join(lines(table.remarks, console.width)), style="dim", soft_wrap=True)
