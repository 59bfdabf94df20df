"""A command in the process of the tests: what it finds out and says is the same, and nothing is loaded again.

For a test of signals, streams, terminals, or of what a command loads, it is started as a user does (commands.py); so it
is for one of a budget, which begins with the process.
"""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

from commands import processes_of
from worldsize.cli.app import main


def worldsize(*args: object, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run `worldsize ARGS` in a folder to its end, with further environment variables; it is as wide as a pipe."""
    line = ["worldsize", *map(str, args)]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(cwd))
        stack.enter_context(patch.dict(os.environ, {"COLUMNS": "80", **variables}))
        stack.enter_context(patch.object(sys, "argv", line))
        stack.enter_context(patch.object(sys, "path", [str(cwd), *sys.path]))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        try:
            main()
            status: object = 0
        except SystemExit as end:
            status = end.code
    left = processes_of(cwd)
    assert not left, f"left behind: {left}"
    said = [each.buffer.getvalue().decode() for each in (out, err)]
    return subprocess.CompletedProcess(line, status if isinstance(status, int) else int(status is not None), *said)
