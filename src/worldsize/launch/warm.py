"""The warm servers of this process (server.py): begun once, they fork every agent and every question of a command."""

import contextlib
import itertools
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from worldsize.errors import WorkerError
from worldsize.launch.environment import quick_environment, read_at_start, surroundings

SERVER = "WORLDSIZE_SERVER"
"""Names the socket of a warm server that several commands share; see server.py."""
START_METHOD = "WORLDSIZE_START_METHOD"
"""`spawn` starts each process as a new interpreter, `fork` (the default) from the warm server."""
ALL_STAGES = 2
QUESTION_STAGE = 1
"""What must be loaded before a question is asked: torch, but nothing that only training needs (server.py)."""
GRACE_S = 2.0
"""How long a server may take to end by itself."""

Message = dict[str, Any]


class ServerLostError(WorkerError):
    """The warm server has ended, and all that it had started with it."""


class Child:
    """A process that a warm server has started: lines go in, messages come out."""

    def __init__(self, server: "WarmServer", number: int) -> None:
        self._server, self._number = server, number
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.pid = 0
        """Once it runs."""
        self.status: int | None = None
        """How it ended: its exit status, or minus the signal. None while it runs."""

    def put(self, message: Message) -> None:
        """The server has said this of the child."""
        self._messages.put(message)

    def get(self, timeout_s: float | None = None) -> str | None:
        """Its next line; None when it has ended.

        Raises queue.Empty where nothing comes in time, ServerLostError, OSError where the system has no room for it.
        """
        while self.status is None:
            message = self._messages.get(timeout=timeout_s)
            if "line" in message:
                line: str = message["line"]
                return line
            self._note(message)
        return None

    def wait_for_pid(self) -> int:
        """Its process id, once it runs. Raises ServerLostError, and OSError where the system has no room for it."""
        if not self.pid and self.status is None:
            self._note(self._messages.get())  # the first of all
        return self.pid

    def _note(self, message: Message) -> None:
        if "pid" in message:
            self.pid = message["pid"]
            return
        self.status = message.get("ended", 1)
        if "refused" in message:
            raise OSError(message["refused"])
        if "lost" in message:
            raise ServerLostError(message["lost"])

    def send(self, line: str) -> None:
        """Give it a line; one that has ended does not hear it."""
        self._server.tell({"do": "line", "id": self._number, "line": line})

    def hang_up(self) -> None:
        """Close its stdin."""
        self._server.tell({"do": "hang-up", "id": self._number})

    def kill(self) -> None:
        """End it whatever it is doing."""
        self._server.tell({"do": "kill", "id": self._number})

    def wait(self, timeout_s: float | None = None) -> int:
        """Its end; what it says until then is dropped. Raises queue.Empty where that is not in time."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        with contextlib.suppress(ServerLostError, OSError):
            while self.get(None if until_s is None else max(0.0, until_s - time.monotonic())) is not None:
                pass
        assert self.status is not None
        return self.status


class WarmServer:
    """One server, with a thread that hears what it says."""

    def __init__(self, environment: Mapping[str, str], through: Sequence[str], stages: int) -> None:
        self._children: dict[int, Child] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._through = tuple(through)
        self.stages = stages
        self.lost: str | None = None
        """Why it serves no more."""
        self._process: subprocess.Popen[bytes] | None = None
        shared = None if through else _shared(environment)
        self._socket = shared or self._start(environment)
        threading.Thread(target=self._listen, daemon=True).start()

    def _start(self, environment: Mapping[str, str]) -> socket.socket:
        ours, theirs = socket.socketpair()
        # Started through a command, its parent is none of ours: it then asks who it is.
        parent = 0 if self._through else os.getpid()
        with theirs:
            self._process = subprocess.Popen(
                [*self._through, sys.executable, "-m", "worldsize.launch.server", str(parent), str(self.stages)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                env={**os.environ, **environment},
                # Ctrl-C of a terminal goes to the whole foreground group; the parent alone decides what it means.
                start_new_session=True,
            )
        return ours

    @property
    def pid(self) -> int | None:
        """Its process id; None for one that is shared."""
        return self._process.pid if self._process else None

    def start(
        self,
        function: str,
        *arguments: str,
        title: str,
        environment: Mapping[str, str],
        log: Path | None = None,
        stage: int = ALL_STAGES,
    ) -> Child:
        """Start `module:function` in a child; its stderr goes to `log`, or to ours. Returns at once."""
        with self._lock:
            number = next(self._numbers)
            child = self._children[number] = Child(self, number)
            if self.lost is not None:
                child.put({"lost": self.lost})
        here = not self._through  # on another node some variables are its own
        self.tell(
            {
                "do": "start",
                "id": number,
                "function": function,
                "arguments": arguments,
                "title": title,
                "environment": {**os.environ, **environment} if here else dict(environment),
                "whole_environment": here,
                "folder": str(Path.cwd()),
                "log": None if log is None else str(log.absolute()),
                "stage": min(stage, self.stages),
                "fork": os.environ.get(START_METHOD) != "spawn",
            }
        )
        return child

    def tell(self, order: Message) -> None:
        """Send the server a line; one that has ended does not hear it."""
        content = json.dumps(order).encode() + b"\n"
        with contextlib.suppress(OSError), self._lock:
            self._socket.sendall(content)

    def close(self) -> None:
        """End it, and all that it has started."""
        self.lost = self.lost or "the server was closed"
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._process is None:
            return
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        """Hand on what the server says, until it ends."""
        with contextlib.suppress(OSError), self._socket.makefile("rb") as lines:
            for line in lines:
                with contextlib.suppress(ValueError, KeyError, TypeError):  # a banner of a command, or half a line
                    message = json.loads(line)
                    self._children[message["id"]].put(message)
                    if "ended" in message or "refused" in message:
                        del self._children[message["id"]]
        why = self.lost or self._why()
        with self._lock:
            self.lost = why
            self._socket.close()
            for child in self._children.values():
                child.put({"lost": why})

    def _why(self) -> str:
        status = self._process.wait() if self._process else None
        how = "" if status is None else f", with status {status}"
        return f"the process that starts the workers has ended{how}, and they ended with it"


class WarmServers:
    """The servers of this process: one for each set of variables that must be there when a process begins."""

    def __init__(self) -> None:
        self._servers: dict[Any, WarmServer] = {}
        self._holders = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep servers for the length of this context; the last one to leave ends them."""
        with self._lock:
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                servers, self._servers = (self._servers, {}) if not self._holders else ({}, self._servers)
            for server in servers.values():
                server.close()

    def get(
        self, environment: Mapping[str, str] | None = None, through: Sequence[str] = (), *, stages: int = ALL_STAGES
    ) -> WarmServer:
        """The server whose children have `environment` on top of ours; begun if there is none that lives.

        `through` is a command that starts it somewhere else, `stages` how much a new one loads (server.py).
        """
        at_start = read_at_start(dict(quick_environment() if environment is None else environment))
        key = (tuple(through), tuple(sorted((read_at_start(dict(os.environ)) | at_start).items())))
        with self._lock:
            server = self._servers.get(key)
            if server is None or server.lost is not None:
                server = self._servers[key] = WarmServer(at_start, through, stages)
            return server


WARM = WarmServers()


def ask(server: WarmServer, function: str, question: str, log: Path | None = None) -> tuple[int, str]:
    """Call `module:function` with a question on its stdin; its exit status, and what it printed.

    What it writes to stderr goes to `log`, or to ours. Raises ServerLostError, OSError.
    """
    child = server.start(function, title="worldsize question", environment={}, log=log, stage=QUESTION_STAGE)
    child.send(question)
    child.hang_up()
    said: list[str] = []
    while (line := child.get()) is not None:
        said.append(line)
    assert child.status is not None
    return child.status, "\n".join(said)


def _shared(environment: Mapping[str, str]) -> socket.socket | None:
    """A connection to the server that several commands share, if there is one that fits this environment."""
    path = os.environ.get(SERVER)
    if not path:
        return None
    found = socket.socket(socket.AF_UNIX)
    try:
        found.connect(path)
        wanted = surroundings({**os.environ, **environment})
        socket.send_fds(found, [json.dumps(wanted).encode()], [2])
        if found.recv(4) == b"yes\n":
            return found
    except OSError:
        pass
    found.close()
    return None
