"""Inputs that are damaged, or made to harm, and what becomes of each: accepted, refused in plain lines, crashed, hung.

Nothing here fails: outcomes are counted. So hypothesis generates only, and never spends minutes on making one smaller.
"""

import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from worldsize.errors import WorldsizeError

LIMIT_S = 20.0
"""Processor time: one input that takes more hangs; most take milliseconds."""
PATIENCE = 10
"""Times so much real time, for one that only waits: the machine may do other things as well."""
MAX_LINES, MAX_SIGNS = 3, 6000
"""A refusal is shorter: plain lines, and not the input itself."""

Act = Callable[[], object]
Maker = Callable[[st.DataObject], Act]
"""Draws one input, and returns what uses it."""


class Hung(BaseException):
    """The time of an input is over; no `except Exception` may stop it."""


@dataclass
class Found:
    """What became of the inputs of one kind."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    """Last line of each crash or hang → its traceback; alike ones are there once."""

    @property
    def total(self) -> int:
        return sum(self.outcomes.values())


def fuzz(make: Maker, examples: int, seed: int, after: Act = lambda: None) -> Found:
    """Make so many inputs and use each; `after` cleans up behind one."""
    found = Found()

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(st.data())
    def one(data: st.DataObject) -> None:
        act = make(data)  # outside of what is judged: hypothesis may break off in here
        try:
            outcome, told = outcome_of(act)
        finally:
            after()
        found.outcomes[outcome] += 1
        if told:
            found.failures.setdefault(told.strip().splitlines()[-1][:300], told)

    one()
    return found


def outcome_of(act: Act) -> tuple[str, str | None]:
    """How an input ended, and the traceback where it should not have ended so."""
    try:
        with time_limit(LIMIT_S):
            act()
    except WorldsizeError as error:
        lines, said = str(error).splitlines(), str(error)
        if 1 <= len(lines) <= MAX_LINES and len(said) <= MAX_SIGNS and "Traceback" not in said:
            return "refused", None
        return (
            "crashed",
            f"{traceback.format_exc()[-1500:]}\nnot plain: {said[:200]!r} … ({len(lines)} lines, {len(said)} signs)",
        )
    except Hung:
        return "hung", traceback.format_exc()[-3000:]
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # polars' panics are no Exceptions
        return "crashed", traceback.format_exc()[-3000:]
    return "accepted", None


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raise Hung in this thread when the time is over."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Hung

    clocks = ((signal.SIGPROF, signal.ITIMER_PROF, limit_s), (signal.SIGALRM, signal.ITIMER_REAL, PATIENCE * limit_s))
    before = [signal.signal(number, end) for number, _, _ in clocks]
    for _, clock, most_s in clocks:
        signal.setitimer(clock, most_s)
    try:
        yield
    finally:
        for (number, clock, _), handler in zip(clocks, before, strict=True):
            signal.setitimer(clock, 0)
            signal.signal(number, handler)


class Workshop:
    """A folder whose files are damaged one input at a time, and are whole again after it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._whole = {path: path.read_bytes() for path in self._files()}

    def _files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def content(self, name: str) -> bytes:
        return self._whole[self.folder / name]

    def names(self, pattern: str = "*") -> list[str]:
        return [str(path.relative_to(self.folder)) for path in self._whole if path.match(pattern)]

    def write(self, name: str, content: bytes | None) -> None:
        """Change a file, or remove it."""
        path = self.folder / name
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(content)

    def restore(self) -> None:
        for path in self._files():
            if path not in self._whole:
                path.unlink()
        for path, content in self._whole.items():
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)
