"""Gathers the samples of finished cells into columns, after all turns: nothing is timed any more."""

from pathlib import Path

from worldsize.errors import OutputError
from worldsize.results.columns import pack
from worldsize.results.folder import load_run
from worldsize.results.records import WarningRecord


def pack_complete(out: Path) -> list[WarningRecord]:
    """Gather the samples of each complete cell; what cannot be gathered is a warning, for its lines are there."""
    warnings = []
    for name, cell in load_run(out).cells.items():
        if cell.record.state != "complete":
            continue  # it may go on
        try:
            pack(cell.folder)
        except OutputError as error:
            message = f"the samples of {name} stay lines, which take longer to read: {error}"
            warnings.append(WarningRecord(code="not-packed", message=message))
    return warnings
