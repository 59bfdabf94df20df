"""Commands on a real pseudo-terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Sequence

STEERING = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES")


def environment(**variables: str) -> dict[str, str]:
    """That of this process, without what steers a terminal."""
    kept = {name: value for name, value in os.environ.items() if name not in STEERING}
    return {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **variables}


def on_terminal(command: Sequence[str], size: tuple[int, int], **variables: str) -> str:
    """What a command that ends well writes to a terminal of so many columns and rows."""
    columns, rows = size
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment(**variables)) as process:
        os.close(slave)
        written = b""
        while chunk := _read(master):
            written += chunk
    os.close(master)
    assert process.returncode == 0, written.decode()
    return written.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux' way to say that nobody writes any more
        return b""
