"""A command as a tree of processes, which is stopped and goes on as a whole."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worldsize.commands import processes
from worldsize.hook.marks import FOLDER_VARIABLE
from worldsize.launch.stopping import release_locks, send

KEEPER = Path(__file__).with_name("keeper.py")
SITE = Path(__file__).parent.parent / "hook" / "site"
"""Where Python finds the hook at its start."""
START_S = 30.0
"""How long the keeper may take to start a command."""


@dataclass(frozen=True)
class Launch:
    """What a command is started with."""

    words: Sequence[str]
    folder: Path
    """Of this launch: its logs, and the marks of its ranks."""
    cwd: Path
    environment: dict[str, str] = field(default_factory=dict)
    """All of it but what the hook needs."""
    overlays: Sequence[tuple[Path, Path]] = ()
    network: int | None = None
    """A process whose network it joins."""
    host: int = 0
    """Which of several hosts it is started on."""

    @property
    def marks(self) -> Path:
        """Where the hook writes."""
        return self.folder / "marks"

    @property
    def marker(self) -> str:
        """What each process of the command has in its environment."""
        return f"{FOLDER_VARIABLE}={self.marks}"

    @property
    def stdout(self) -> Path:
        """The log of what it says."""
        return self.folder / f"stdout{self.host or ''}.log"

    @property
    def stderr(self) -> Path:
        """The log of its errors."""
        return self.folder / f"stderr{self.host or ''}.log"


class StartError(Exception):
    """A command that cannot be started; the text says why, in a line."""


class Tree:
    """A command that runs, or is stopped, with all that it has started."""

    def __init__(self, launch: Launch) -> None:
        """Start it. Raises StartError."""
        self.launch = launch
        launch.marks.mkdir(parents=True, exist_ok=True)
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=hooked(launch.environment, launch.marks),
            start_new_session=True,
        )
        self._said = b""
        self.status: int | None = None
        """Its exit status, or minus the signal, once it has ended."""
        self._known: list[int] = []
        """Its processes as they were found last."""
        try:
            self._tell()
            self._hear_start()
        except BaseException:
            self.end()
            raise

    def _tell(self) -> None:
        columns, lines = os.get_terminal_size(2) if os.isatty(2) else (120, 40)
        spec = {
            "words": list(self.launch.words),
            "cwd": str(self.launch.cwd),
            "stdout": str(self.launch.stdout),
            "stderr": str(self.launch.stderr),
            "overlays": [[str(original), str(layer)] for original, layer in self.launch.overlays],
            "shared": [str(self.launch.marks)],
            "network": self.launch.network,
            "columns": columns,
            "lines": lines,
            "marker": self.launch.marker,
        }
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(json.dumps(spec).encode() + b"\n")
        self._keeper.stdin.flush()

    def _hear_start(self) -> None:
        message = self._hear(START_S)
        if "pid" not in message:
            raise StartError(message.get("failed", "the process that starts it ended without a word"))
        self.pid = int(message["pid"])

    def _hear(self, limit_s: float) -> dict[str, Any]:
        """The next message of the keeper; empty where none comes in time."""
        assert self._keeper.stdout is not None
        pipe, until_s = self._keeper.stdout.fileno(), time.monotonic() + limit_s
        while b"\n" not in self._said:
            ready, _, _ = select.select([pipe], [], [], max(0.0, until_s - time.monotonic()))
            chunk = os.read(pipe, 2**16) if ready else b""
            if not chunk:
                return {}
            self._said += chunk
        line, _, self._said = self._said.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def over(self) -> bool:
        """Return whether the command has ended; `status` is then known."""
        if self.status is None:
            message = self._hear(0.0)
            if "ended" in message:
                self.status = int(message["ended"])
            elif self._keeper.poll() is not None:  # it was killed itself
                self.status = -signal.SIGKILL
        return self.status is not None

    def halt(self, first: Sequence[int] = ()) -> None:
        """Stop what is known of it at once, `first` before the others; `stop` finds the rest."""
        for process in dict.fromkeys([*first, *self._known]):
            if processes.has_marker(process, self.launch.marker):  # a number may be another process's by now
                send(process, signal.SIGSTOP)

    def stop(self) -> bool:
        """Stop all its processes; return False where one will not release a file lock.

        What is found to hold one runs on until it holds none, as another command may need it.
        """
        stopped: set[int] = set()
        while new := self._found() - stopped:  # what was found may have forked before it stopped
            for process in new:
                send(process, signal.SIGSTOP)
            stopped |= new
        self._known = sorted(stopped)
        return not release_locks(stopped.__contains__)

    def go_on(self, first: Sequence[int] = ()) -> None:
        """Let all its processes go on, `first` after the others."""
        early = set(first)
        for process in self._known:
            if process not in early:
                send(process, signal.SIGCONT)
        for process in first:
            send(process, signal.SIGCONT)

    def _found(self) -> set[int]:
        return processes.descendants(self._keeper.pid) | processes.marked(self.launch.marker) - {self._keeper.pid}

    def end(self) -> None:
        """End the command and all that it has started, also what is stopped; nothing is left when this returns."""
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            self._keeper.wait(START_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        processes.end_all(self.launch.marker)


def hooked(environment: dict[str, str], marks: Path) -> dict[str, str]:
    """Return the environment with what lets each Python that starts in it load the hook, which writes to `marks`."""
    python_path = os.pathsep.join([str(SITE), *filter(None, [environment.get("PYTHONPATH")])])
    return {**environment, FOLDER_VARIABLE: str(marks), "PYTHONPATH": python_path}
