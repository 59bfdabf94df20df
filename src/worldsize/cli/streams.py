"""Stdout and stderr that no terminal and no pipe can break: signs it does not know, a reader that has gone."""

import codecs
import io
import select
import sys
from typing import Any, TextIO

PLAIN = "plain-signs"
"""The error handler of signs that an encoding lacks, as PYTHONIOENCODING=ascii and LANG=C do."""
SIGNS = {
    "±": "+/-",
    "≈": "~",
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
    """A file that can be written to when its reader has gone, as after `worldsize report RUN | head -1`.

    What a command finds out, and its exit status, do not depend on who reads how much of it.
    """

    def write(self, data: Any, /) -> int:
        """Write; what no one reads is dropped. One who is slow to read a pipe that does not block is waited for."""
        try:
            while (written := super().write(data)) is None:
                select.select([], [self], [])
        except BrokenPipeError:
            return len(memoryview(data).cast("B"))
        return written


def make_patient() -> None:
    """Put such streams in the place of stdout and stderr."""
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


def in_its_signs(text: str, encoding: str) -> str:
    """Text in the signs that an encoding has, for what others write past these streams."""
    return text.encode(encoding, PLAIN).decode(encoding)


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """The nearest that the encoding has for the next sign, or its number; bytes of a file's name as they were."""
    assert isinstance(error, UnicodeEncodeError)
    sign = error.object[error.start]
    if "\udc80" <= sign <= "\udcff":
        return bytes([ord(sign) - 0xDC00]), error.start + 1
    return SIGNS.get(sign) or sign.encode("ascii", "backslashreplace").decode(), error.start + 1


codecs.register_error(PLAIN, _plain)
