"""The two consoles of the commands, and text that is broken into lines for them.

Where output is no terminal there is no colour and no line over 80 columns but paths and commands, which
must stay whole to be copied. rich leaves colour out there, and where NO_COLOR is set.
"""

import textwrap

from rich.console import Console

PIPED_WIDTH = 80
LOOKING = "looking at data and model"
"""What a study does first, before there is anything to count."""
_TIED = "\N{NO-BREAK SPACE}"
"""Stands between what belongs together while lines are broken; a plain space comes out."""


def output() -> Console:
    """Stdout."""
    return _narrowed(Console(highlight=False, markup=False, emoji=False))


def messages(*, quiet: bool = False) -> Console:
    """Stderr, for what is told while something runs; `quiet` tells nothing."""
    return _narrowed(Console(stderr=True, quiet=quiet, highlight=False, markup=False, emoji=False))


def lines(text: str, width: int, *, indent: str = "") -> list[str]:
    """Text in lines of at most `width` columns, from the second on indented; `b = 32`, `6 %` and `± 2` stay together.

    A word that is longer, such as a path, has a line of its own and is left whole.
    """
    tied = printable(text).replace(" = ", f"{_TIED}={_TIED}").replace(" %", f"{_TIED}%").replace("± ", f"±{_TIED}")
    broken = textwrap.wrap(
        tied, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return [line.replace(_TIED, " ") for line in broken]


def printable(text: str) -> str:
    """Text without signs that steer a terminal, which a user's name or an error message may hold."""
    return "".join(sign if sign.isprintable() else " " for sign in text.replace(_TIED, " "))


def duration_text(seconds: float) -> str:
    """A time to wait, no finer than it is known: `45 s`, `12 min`, `1 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def _narrowed(console: Console) -> Console:
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console
