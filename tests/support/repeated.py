"""A measurement that can be taken again, for what is true of a machine that nobody else disturbs."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MAX = 3


class Repeated(Generic[T]):
    """Takes a measurement up to `MAX` times, until a check holds for one of them.

    A machine that stood still for a while fails a check once; a wrong formula fails it each time. So a check may be as
    narrow as the truth is known, and the last failure is the one that is shown.
    """

    def __init__(self, measure: Callable[[], T]) -> None:
        self._measure = measure
        self._taken: list[T] = []

    def any(self) -> T:
        """One of the measurements, for what must hold of each."""
        if not self._taken:
            self._taken.append(self._measure())
        return self._taken[0]

    def check(self, holds: Callable[[T], None]) -> None:
        """Raises the last AssertionError of `holds` where it holds for none of `MAX` measurements."""
        for turn in range(MAX):
            if turn == len(self._taken):
                self._taken.append(self._measure())
            try:
                return holds(self._taken[turn])
            except AssertionError:
                if turn == MAX - 1:
                    raise
        raise AssertionError
