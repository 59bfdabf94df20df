"""A module of ours as a program of its own: JSON objects go in and come out, one to a line."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

from worldsize.launch.local import JobFailed
from worldsize.results.records import ErrorRecord


class LocalProgram:
    """A program that runs, `python -m MODULE PID ARGUMENT`: it ends with its stdin, and with this process, PID."""

    def __init__(self, module: str, argument: str, variables: dict[str, str]) -> None:
        """Start it with these variables and no others. Raises JobFailed where there is no room for a process."""
        self._module = module
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(os.getpid()), argument],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=variables,
                start_new_session=True,
            )
        except OSError as error:
            raise JobFailed(ErrorRecord(kind=type(error).__name__, message=str(error))) from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def send(self, turn: dict[str, Any]) -> None:
        """Give it a line; one that has ended says so on `receive`."""
        with suppress(OSError, ValueError):
            self._stdin.write(json.dumps(turn).encode() + b"\n")
            self._stdin.flush()

    def receive(self) -> list[Any]:
        """Wait for its next line. Raises JobFailed when it has ended."""
        if line := self._stdout.readline():
            return [json.loads(line)]
        said = f"{self._module} ended with status {self._process.wait()}; what it said is in Ray's session folder"
        raise JobFailed(ErrorRecord(kind="WorkerError", message=said))

    def hang_up(self) -> None:
        """Close its stdin."""
        with suppress(OSError):
            self._stdin.close()

    def kill(self) -> None:
        """End it whatever it is doing."""
        self._process.kill()
