"""Stdout and stderr that no terminal and no pipe can break: signs it does not know, a reader that has gone."""

import codecs
import io
import sys
from typing import Any, TextIO

PLAIN = "plain-signs"
"""The error handler of signs that an encoding lacks, as PYTHONIOENCODING=ascii and LANG=C do."""
SIGNS = {
    "±": "+/-",
    "–": "-",
    "−": "-",
    "—": "-",
    "…": "...",
    "÷": "/",
    "×": "x",
    "·": "*",
    "→": "->",
    "▸": ">",
    "✓": "+",
    "✗": "x",
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "₀": "0",
    "₁": "1",
    "ₙ": "N",
    "√": "sqrt ",
    "²": "^2",
    "§": "section ",
    "\N{NO-BREAK SPACE}": " ",
}


class Patient(io.FileIO):
    """A file that goes on when nobody reads it any more, as after `worldsize report RUN | head -1`.

    What a command finds out, and its exit status, do not depend on who reads how much of it.
    """

    def write(self, data: Any, /) -> int:
        """Write; what nobody reads is dropped."""
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            return len(memoryview(data).cast("B"))


def make_patient() -> None:
    """Put such streams in the place of stdout and stderr."""
    codecs.register_error(PLAIN, _plain)
    sys.stdout = _patient(sys.stdout)
    sys.stderr = _patient(sys.stderr)


def _patient(stream: TextIO) -> TextIO:
    try:
        descriptor = stream.fileno()
    except (OSError, AttributeError, ValueError):  # one that a test or a notebook has put there, or none
        return stream
    stream.flush()
    raw = io.BufferedWriter(Patient(descriptor, "w", closefd=False))
    return io.TextIOWrapper(
        raw, encoding=stream.encoding, errors=PLAIN, line_buffering=stream.isatty() or stream is sys.stderr
    )


def _plain(error: UnicodeError) -> tuple[str, int]:
    """The nearest that the encoding has, or `?`."""
    assert isinstance(error, UnicodeEncodeError)
    signs = error.object[error.start : error.end]
    return "".join(SIGNS.get(sign, "?") for sign in signs), error.end
