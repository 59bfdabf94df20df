"""What is found of a cell, found once: of many ranks it takes seconds, and many ask."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from worldsize.results.folder import Cell

Found = TypeVar("Found")


def once_per_cell(find: Callable[[Cell], Found]) -> Callable[[Cell], Found]:
    """The same function, which keeps what it has found for as long as the cell is there."""
    kept: WeakKeyDictionary[Cell, Found] = WeakKeyDictionary()

    @wraps(find)
    def found(cell: Cell) -> Found:
        if cell not in kept:
            kept[cell] = find(cell)
        return kept[cell]

    return found
