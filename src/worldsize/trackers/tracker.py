"""What a tracker of a history must do, and what it is told."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

Number = int | float


@dataclass(frozen=True)
class Series:
    """One cell in one session of a study: what a tracker keeps as one run of its own.

    A session that goes on with a study starts its workers anew, so it is a further run beside the first one.
    """

    study: str
    """Name of the study, which groups its runs."""
    cell: str
    session: int
    settings: Mapping[str, Any]
    """The cell's settings as plain values; None where one is not set."""

    @property
    def name(self) -> str:
        """The cell's name; a later session of it says which."""
        return self.cell if self.session == 0 else f"{self.cell}-session{self.session}"


@dataclass(frozen=True)
class Row:
    """Named numbers at one step; what is absent has no name here."""

    step: int
    """Grows from row to row of a series; several rows may share one."""
    values: Mapping[str, Number]


class Tracker(Protocol):
    """Writes the series of one study to wherever its people look. Anything that it raises switches it off.

    It is made with the run folder and the study's name.
    """

    def begin(self, series: Series) -> None:
        """A series begins; those of other cells may be open as well."""

    def log(self, series: Series, rows: Sequence[Row]) -> None:
        """Write further rows, so that a reader of the files sees them soon."""

    def end(self, series: Series, state: str, summary: Mapping[str, Number]) -> None:
        """A series has ended in this state (`complete`, `failed`, `interrupted`), with these numbers."""

    def close(self) -> None:
        """Leave nothing running; also called after an error."""


@contextmanager
def variables(**wanted: str) -> Iterator[None]:
    """Environment variables that hold in this context; what the user has set wins."""
    ours = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)
