"""The warm server: one process that has loaded torch and our modules once, and forks agents and questions from them.

Its client (warm.py) sends one JSON object a line over a socket, or over stdin where a command of a scheduler starts it
on another node. A child's stdout comes back line by line. The server has one thread, and nothing on a GPU, so that
each child is as if it had been started anew; where that is not so, child.py starts a new interpreter.

    {"do": "start", "id": 3, "function": …, "arguments": […], …}    → {"id": 3, "pid": 4711} or {"id": 3, "refused": …}
    {"do": "line", "id": 3, "line": …} {"do": "hang-up", "id": 3} {"do": "kill", "id": 3}
                                                                    → {"id": 3, "line": …} {"id": 3, "ended": 0}

Run as `python -m worldsize.launch.server PARENT_PID STAGES`. With the path of a socket in place of the process id it
serves other commands until it is killed or its parent ends.
"""

import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from setproctitle import getproctitle

from worldsize.launch.child import Call, start
from worldsize.launch.environment import surroundings
from worldsize.parent_death import end_with_parent

STAGES: tuple[tuple[str, ...], ...] = (
    (
        "torch",
        "torch.distributed",
        "worldsize.launch.agent",
        "worldsize.launch.worker",
        "worldsize.collectives.bench",
        "worldsize.training.probe",
    ),
    ("torch._dynamo", "worldsize.training.rank", "worldsize.training.verify"),
)
"""What is loaded, and in which order: names only, like those of the functions that are called. The second stage is what
the first optimizer of a process needs: torch._dynamo, nearly as long as torch itself. The look at data and model and
the benchmark of collectives begin without it."""


@dataclass
class _Child:
    pid: int
    stdin: int
    stdout: int
    handle: int
    """Of the process: readable once it has ended."""
    rest: bytes = b""


@dataclass
class _Client:
    """A client connection, and the children that it started."""

    reads: int
    writes: int
    stderr: int = 2
    rest: bytes = b""
    children: dict[int, _Child] = field(default_factory=dict)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    """Its requests to start something that needs a later stage."""


class Server:
    """Forks what its clients ask for, one thing after the other."""

    def __init__(self, stages: int, listener: socket.socket | None = None) -> None:
        self.loaded = 0
        self._stages = stages
        self._listener = listener
        self._clients: list[_Client] = []
        self._selector = selectors.DefaultSelector()
        if listener is not None:
            self._selector.register(listener, selectors.EVENT_READ)

    def add(self, client: _Client) -> None:
        """Serve another client."""
        self._clients.append(client)
        self._selector.register(client.reads, selectors.EVENT_READ, client)

    def run(self) -> None:
        """Load stage by stage, and serve until the last client has left; with a listener, for ever."""
        for modules in STAGES[: self._stages]:
            for module in modules:
                importlib.import_module(module)
            self.loaded += 1
            self._start_waiting()
            self._serve(0)
        while self._clients or self._listener:
            self._serve(None)

    def _serve(self, timeout_s: float | None) -> None:
        # Between two stages (0) all that is there is served; afterwards (None) one round at a time, so that `run` sees
        # when the last client has left.
        while ready := self._selector.select(timeout_s):
            for key, _ in ready:
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, _Client):
                    self._hear(key.data)
                else:
                    self._hear_child(*key.data)
            if timeout_s is None:
                return

    def _accept(self) -> None:
        """A client of another command: it shows its surroundings, which must be ours, and hands over its stderr."""
        assert self._listener is not None
        connection, _ = self._listener.accept()
        message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 1)
        ours = json.loads(json.dumps(surroundings(dict(os.environ))))
        fits = json.loads(message) == ours
        connection.sendall(b"yes\n" if fits else b"no\n")
        if not fits:
            connection.close()
            for descriptor in descriptors:
                os.close(descriptor)
            return
        handle = connection.detach()
        self.add(_Client(handle, handle, descriptors[0]))

    def _hear(self, client: _Client) -> None:
        try:
            chunk = os.read(client.reads, 1 << 16)
        except OSError:
            chunk = b""
        if not chunk:
            self._leave(client)
            return
        *lines, client.rest = (client.rest + chunk).split(b"\n")
        for line in lines:
            self._do(client, json.loads(line))

    def _do(self, client: _Client, order: dict[str, Any]) -> None:
        if order["do"] == "start":
            client.waiting.append(order)
            self._start_waiting()
            return
        waiting = next((each for each in client.waiting if each["id"] == order["id"]), None)
        if waiting is not None:  # not started yet: keep the order; a kill takes effect right after the start
            waiting.setdefault("then", []).append(order)
            return
        child = client.children.get(order["id"])
        if child is None:
            return
        if order["do"] == "kill":
            os.kill(child.pid, signal.SIGKILL)  # its number is its own until `_bury` has waited for it
        elif order["do"] == "hang-up":
            self._close_stdin(child)
        elif child.stdin >= 0:
            with contextlib.suppress(BrokenPipeError):
                os.write(child.stdin, order["line"].encode() + b"\n")

    def _start_waiting(self) -> None:
        for client in self._clients:
            for order in [each for each in client.waiting if each["stage"] <= self.loaded]:
                client.waiting.remove(order)
                self._start(client, order)
                for then in order.get("then", ()):
                    self._do(client, then)

    def _start(self, client: _Client, order: dict[str, Any]) -> None:
        number = order["id"]
        child_in, ours_in = os.pipe()
        ours_out, child_out = os.pipe()
        stderr, opened = client.stderr, []
        try:
            if order["log"] is not None:
                stderr = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
                opened.append(stderr)
            call = Call(
                function=order["function"],
                arguments=order["arguments"],
                title=order["title"],
                stdin=child_in,
                stdout=child_out,
                stderr=stderr,
                environment=order["environment"],
                whole_environment=order["whole_environment"],
                folder=order["folder"],
                close=[*self._descriptors(), ours_in, ours_out],
            )
            pid = start(call, fork=order["fork"])
        except OSError as error:
            os.close(ours_in)
            os.close(ours_out)
            _say(client, {"id": number, "refused": f"cannot start a process: {error.strerror}"})
            return
        finally:
            for descriptor in (child_in, child_out, *opened):
                os.close(descriptor)
        os.set_blocking(ours_out, False)
        child = client.children[number] = _Child(pid, ours_in, ours_out, os.pidfd_open(pid))
        for descriptor in (child.stdout, child.handle):
            self._selector.register(descriptor, selectors.EVENT_READ, (client, number, descriptor))
        _say(client, {"id": number, "pid": pid})

    def _descriptors(self) -> set[int]:
        """All that this server has open, and no child may: a pipe ends only when no process holds it any more."""
        found = {self._selector.fileno()} if isinstance(self._selector, selectors.EpollSelector) else set()
        if self._listener is not None:
            found.add(self._listener.fileno())
        for client in self._clients:
            found |= {client.reads, client.writes, client.stderr}
            for child in client.children.values():
                found |= {child.stdin, child.stdout, child.handle}
        return {descriptor for descriptor in found if descriptor > 2}

    def _hear_child(self, client: _Client, number: int, descriptor: int) -> None:
        """A child has said something, or has ended; its stdout may have no end, for a grandchild may hold it open."""
        child = client.children.get(number)
        if child is None:
            return  # it was buried a moment ago
        said = self._pass_on(client, number, child)
        if descriptor == child.handle:
            while said:
                said = self._pass_on(client, number, child)
            _say(client, {"id": number, "ended": self._bury(client, number)})

    def _pass_on(self, client: _Client, number: int, child: _Child) -> bool:
        """Pass on what a child has said; whether there may be more."""
        try:
            chunk = os.read(child.stdout, 1 << 16)
        except BlockingIOError:
            return False
        if not chunk and child.stdout in self._selector.get_map():
            self._selector.unregister(child.stdout)
        *lines, child.rest = (child.rest + chunk).split(b"\n")
        for line in lines:
            _say(client, {"id": number, "line": line.decode(errors="replace")})
        return bool(chunk)

    def _bury(self, client: _Client, number: int) -> int:
        """The exit status of a child that has ended, or minus the signal that ended it."""
        child = client.children.pop(number)
        for descriptor in (child.stdout, child.handle):
            if descriptor in self._selector.get_map():
                self._selector.unregister(descriptor)
            os.close(descriptor)
        self._close_stdin(child)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # until it is buried, its session has its number
        _end_session(child.pid)
        return os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])

    @staticmethod
    def _close_stdin(child: _Child) -> None:
        if child.stdin >= 0:
            os.close(child.stdin)
            child.stdin = -1

    def _leave(self, client: _Client) -> None:
        """A client has disconnected: kill its children."""
        self._selector.unregister(client.reads)
        self._clients.remove(client)
        for number, child in list(client.children.items()):
            os.kill(child.pid, signal.SIGKILL)
            self._bury(client, number)
        for descriptor in {client.reads, client.writes, client.stderr} - {0, 1, 2}:
            os.close(descriptor)


def _end_session(leader: int) -> None:
    """Kill what is left of the session of a child: what a worker has started, where its agent was killed."""
    known: set[int] = set()
    while new := {process for process in _session(leader) if process != leader} - known:  # one may have forked
        known |= new
        for process in new:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)


def _session(leader: int) -> Iterator[int]:
    """The processes of a session; none where the system does not tell."""
    for entry in os.scandir("/proc") if Path("/proc").is_dir() else ():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and os.getsid(int(entry.name)) == leader:
                yield int(entry.name)


def _say(client: _Client, message: dict[str, Any]) -> None:
    content = json.dumps(message).encode() + b"\n"
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # one that has gone is left when its turn comes
        while content:
            content = content[os.write(client.writes, content) :]


def main() -> None:
    """Serve the process that has started this one, or whoever comes to the path that was given."""
    where, stages = sys.argv[1], int(sys.argv[2])
    getproctitle()  # looks for the place of the title, which is not found once a child has changed its environment
    if where.isdigit():
        end_with_parent(int(where) or os.getppid())
        # stdout is for the client alone: what a module prints while it is loaded goes where errors do.
        writes, reads = os.dup(1), os.dup(0)
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        server = Server(stages)
        server.add(_Client(reads, writes))
    else:
        end_with_parent(os.getppid())
        os.umask(0o077)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(where)
        listener.listen()
        server = Server(stages, listener)
    server.run()


if __name__ == "__main__":
    main()
