"""What a person says of a table where it was read wrongly, or does not say it itself."""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from worldsize.analysis.audit.meaning import Meaning, meaning
from worldsize.analysis.audit.quantities import Quantity, agrees
from worldsize.analysis.audit.units import unit_of
from worldsize.errors import UsageError


@dataclass(frozen=True)
class Overrides:
    """Of all tables of a document; what is None stays as it was read."""

    columns: dict[str, str] = field(default_factory=dict)
    """Heading, or one level of it, to "quantity:unit"; "table 2.Time" is the column of one table."""
    samples: int | None = None
    network: str | None = None
    classes: int | None = None
    batch_per: Literal["worker", "total"] | None = None
    scaling: Literal["weak", "strong"] | None = None

    def column(self, caption: str, levels: list[str]) -> Meaning | None:
        """What was said of a column; None for nothing."""
        for name, given in self.columns.items():
            if names(name, caption, levels):
                return stated(" ".join(levels), given)
        return None


def names(name: str, caption: str, levels: Sequence[str]) -> bool:
    """Whether a name means a column: its heading, or one level of it, perhaps behind words of the caption and a dot."""
    small = name.lower()
    headings = {each.lower() for each in (" ".join(levels), " · ".join(levels), *levels)}
    table, _, column = small.rpartition(".")
    of_table = bool(table) and re.search(rf"\b{re.escape(table)}\b", caption.lower()) is not None
    return small in headings or (of_table and column.strip() in headings)


def quantities() -> str:
    """The words that a quantity has on the command line."""
    return ", ".join(_word(each) for each in Quantity)


def _word(quantity: Quantity) -> str:
    return re.sub(r"[^a-z]+", "_", quantity.name.lower())


def stated(heading: str, given: str) -> Meaning:
    """What a name such as "epoch_time:s" says of a heading, whose N and batch still count.

    Raises UsageError for an unknown quantity or unit.
    """
    name, _, unit_name = given.partition(":")
    known = {_word(each): each for each in Quantity}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        meant = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"--column {heading}={given}: {name!r} is no quantity{meant}\nKnown: {quantities()}")
    unit = unit_of(unit_name) if unit_name else None
    if unit_name and unit is None:
        raise UsageError(
            f"--column {heading}={given}: {unit_name!r} is no known unit\nUnits are such as s, ms, images/s, GB/s, %."
        )
    if unit is not None and not agrees(unit, known[name]):
        raise UsageError(f"--column {heading}={given}: {name} has no unit {unit_name!r}\nIt is one of {unit.kind}.")
    said = meaning(heading)
    return Meaning(known[name], unit or said.unit, said.per, said.n, said.nodes, said.batch, said.batch_per, said.rest)
