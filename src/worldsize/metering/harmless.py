"""What goes wrong in us must not end somebody's training: it ends the metering."""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class Guarded(Protocol):
    """What sees a loop, and stops seeing it once something went wrong."""

    broken: bool

    def fail(self, error: Exception) -> None:
        """Something went wrong: see nothing any more, and hand it on."""


S = TypeVar("S", bound=Guarded)
P = ParamSpec("P")
T = TypeVar("T")


def never_raises(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T | None]:
    """A method that gives None where it fails, and does nothing after that."""

    @functools.wraps(method)
    def called(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        if self.broken:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.fail(error)
            return None

    return called
