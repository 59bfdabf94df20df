"""What goes wrong in us must not end somebody's training: it ends the metering."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Optional, Protocol, TypeVar


class Guarded(Protocol):
    """What sees a loop, and stops seeing it once something went wrong."""

    broken: bool

    def fail(self, error: Exception) -> None:
        """Something went wrong: see nothing any more, and hand it on."""


T = TypeVar("T")


def never_raises(method: Callable[..., T]) -> Callable[..., Optional[T]]:  # noqa: UP045 - of Python 3.9 as well
    """Make a method that gives None where it fails, and does nothing after that."""

    @functools.wraps(method)
    def called(self: Guarded, /, *args: Any, **kwargs: Any) -> T | None:
        if self.broken:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.fail(error)
            return None

    return called
