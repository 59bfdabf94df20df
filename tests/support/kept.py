"""Commands with their keepers, as a study starts them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from worldsize.commands import keeper, processes

KEEPER = str(keeper.__file__)
PATIENCE_S = 60.0
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")


class Kept:
    """A command and its keeper; its logs lie in `place`, where it works if nothing else is said."""

    def __init__(self, place: Path, words: tuple[str, ...], program: tuple[str, ...], more: dict[str, Any]) -> None:
        self.place = place
        self.marker = f"WORLDSIZE_TEST_COMMAND={os.getpid()}-{os.urandom(8).hex()}"
        place.mkdir(exist_ok=True)
        logs = {name: str(place / f"{name}.log") for name in ("stdout", "stderr")}
        spec: dict[str, Any] = {
            "words": words,
            "cwd": str(place),
            **logs,
            "overlays": [],
            "shared": [],
            "network": None,
        }
        self.spec = {**spec, "columns": 123, "lines": 45, "marker": self.marker, **more}
        name, _, value = self.marker.partition("=")
        self.process = subprocess.Popen(
            [*program, "-I", "-S", KEEPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, name: value},
            start_new_session=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(self.spec).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next line of the keeper."""
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        return message

    def end(self) -> list[dict[str, Any]]:
        """All lines that are left; the keeper has exited then."""
        assert self.process.stdout is not None
        lines = self.process.stdout.read().splitlines()
        assert self.process.wait(PATIENCE_S) == 0
        return [json.loads(line) for line in lines]

    def text(self, name: str = "stdout") -> str:
        """What the command said."""
        return (self.place / f"{name}.log").read_bytes().decode()


@contextmanager
def kept(place: Path, *words: str, program: tuple[str, ...] = (sys.executable,), **more: Any) -> Iterator[Kept]:
    """A command that is running; `program` runs the keeper, and `more` goes into its spec."""
    command = Kept(place, words, program, more)
    try:
        yield command
    finally:
        command.process.kill()
        processes.end_all(command.marker)
        for pipe in (command.process.stdin, command.process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        command.process.wait()


def run(place: Path, *words: str, **more: Any) -> tuple[Kept, list[dict[str, Any]]]:
    """A command that has ended, and all that its keeper told."""
    with kept(place, *words, **more) as command:
        return command, command.end()


def wait_for(condition: Callable[[], object]) -> None:
    """Wait for something that will be so soon."""
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def python_of_nobody() -> str | None:
    """A Python that can run the keeper as the user nobody; None where none can."""
    for python in (sys.executable, "/usr/bin/python3"):
        # From a shell: setpriv itself still has the rights of root when it looks for a program.
        command = [*AS_NOBODY, "sh", "-c", '"$0" -I -S "$1"', python, KEEPER]
        if subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0:
            return python
    return None
