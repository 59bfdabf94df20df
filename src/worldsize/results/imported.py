"""What the script of a study imports by names that its text does not tell, such as `import_module(f"models.{name}")`.

A look before the start cannot find such files. So each launch keeps what it has imported when its first step ends, in
the folder of its cell, and later ones must find the same (method.md §11).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from worldsize.errors import FactoryError
from worldsize.results.files import is_there, listed, own, read_record, write_whole
from worldsize.results.provenance import UserCode, UserFile, named

NAME = "imported.json"


def imported(run: Path) -> list[UserFile]:
    """What all launches of a study have imported; raises OutputError for a file that is not valid."""
    return [file for cell in listed(run / "cells", "*") for file in _of(run, cell.name)]


def with_imported(code: UserCode | None, run: Path) -> UserCode | None:
    """The code that a look before the start found, and what its launches have imported besides; raises as `imported`.

    None where neither is known.
    """
    found = imported(run)
    if not found:
        return code
    known = code or UserCode()
    by_path = {file.path: file for file in (*found, *known.files)}
    return known.model_copy(update={"files": list(by_path.values())})


def note_imported(run: Path, cell: str, files: Sequence[UserFile]) -> None:
    """Keep what a launch of a cell has imported, beside what earlier ones have; raises OutputError if it cannot."""
    by_path = {file.path: file for file in (*_of(run, cell), *files)}
    write_whole(own(run, "cells", cell, NAME), UserCode(files=list(by_path.values())).model_dump_json(indent=2))


def _of(run: Path, cell: str) -> list[UserFile]:
    place = own(run, "cells", cell, NAME)
    return read_record(UserCode, place).files if is_there(place) else []


def refuse_other_code(changed: Iterable[str]) -> None:
    """Raise FactoryError where these files are not what the study began with."""
    if names := list(changed):
        raise FactoryError(
            f"{named(names)} has changed since the study began, and its cells would be of two codes\n"
            "Put it back and go on with --resume, or measure everything again with --resume --anew."
        )
