"""Keep one command of a person: give it a terminal, note what it says, and leave nothing of it behind.

A program of its own, `python -I -S keeper.py`, which a study starts in a new session, with pipes as stdin and stdout.
The study writes one line, a JSON object, and may write nothing more:

    words      the command, looked up in PATH           cwd       where it runs
    stdout     the log of what it says                  stderr    the log of what it says beside that
    overlays   pairs [folder, layer] (overlay.py)       shared    folders that stay as they are below an overlay
    network    a process whose network it joins, null   marker    NAME=value in the environment of all its processes
    columns    width of the terminal                    lines     height of the terminal

The keeper answers in lines of JSON: {"failed": why} and no more, or {"pid": its process}, then {"ended": its exit
code, or minus the signal}. By then each log has what the command said until it ended. {"left": [processes]} may
follow, of those that not even a kill has ended. Then the keeper exits: now the logs are whole.

The end of stdin, or of the process that started the keeper, or a signal, ends the command and all that is left of it.
A keeper that is killed itself takes the command along, but not what that has started: the study has to call
`processes.end_all(marker)` when a keeper ends without {"ended": …} or {"failed": …}.
"""

import errno
import fcntl
import json
import os
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:
    from worldsize.commands import overlay, processes
else:  # as a program: `-I` keeps its folder from the search path, and the package would take too long to import
    sys.path.append(str(Path(__file__).parent))
    import overlay
    import processes

LOG_BYTES = 16 * 2**20
"""What a log holds of a command that does not stop to speak."""
TAIL_BYTES = 2**16
"""What is kept of its last words beyond that."""
CUT = "\n[…]\n".encode()
READ_BYTES = 2**16
PENDING_BYTES = 2**18
"""More than a terminal holds of what nobody has read yet."""
TOP_UP_S = 1.0
END_OF_FILE = b"\x04" * 1024
"""Each makes one reading of the terminal end at once, also where many processes read."""
DEFAULTS = ("INT", "QUIT", "HUP", "TERM", "PIPE", "XFSZ", "CHLD", "TSTP", "TTIN", "TTOU")
"""Signals that a shell hands on as they are by default; Python ignores some."""
FAILED = 127
"""What a shell says of a command that cannot be started."""

_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


class Log:
    """The file of what a command says: its beginning, and its end where it says very much."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._room_bytes = LOG_BYTES
        self._tail = bytearray()
        self._cut = False

    def write(self, data: bytes) -> None:
        """Keep what was said."""
        head = data[: self._room_bytes]
        self._room_bytes -= len(head)
        self._append(head)
        self._tail += data[len(head) :]
        if len(self._tail) > 2 * TAIL_BYTES:  # not at each call: it moves the rest
            self._shorten()

    def close(self) -> None:
        """Write the end."""
        self._shorten()
        self._append((CUT if self._cut else b"") + self._tail)
        os.close(self._file)

    def _shorten(self) -> None:
        self._cut = self._cut or len(self._tail) > TAIL_BYTES
        del self._tail[:-TAIL_BYTES]

    def _append(self, data: bytes) -> None:
        with suppress(OSError):  # of a full disk the command shall notice nothing
            while data:
                data = data[os.write(self._file, data) :]


class Screen:
    """A terminal of the command, and the log of what is written to it."""

    def __init__(self, log: Log, columns: int, lines: int) -> None:
        self._log = log
        # The inner end stays open here: the outer one would be of no use while no process has the inner one open.
        self.outer, self.inner = os.openpty()
        os.set_blocking(self.outer, False)
        modes = termios.tcgetattr(self.inner)
        modes[1] &= ~termios.ONLCR  # a log has plain line ends
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(self.inner, termios.TCSANOW, modes)
        fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self) -> int:
        """Move what waits into the log; returns the bytes."""
        try:
            data = os.read(self.outer, READ_BYTES)
        except OSError:
            return 0
        self._log.write(data)
        return len(data)

    def drain(self) -> None:
        """Move all of it, but not for ever: somebody may go on writing."""
        left_bytes = PENDING_BYTES
        while left_bytes > 0 and (count := self.read()):
            left_bytes -= count

    def fill(self) -> None:
        """Let all who read find the end of the file, until the terminal takes no more."""
        with suppress(OSError):
            while os.write(self.outer, END_OF_FILE):
                pass


class Keeper:
    """One command, from its start to the end of all its processes."""

    def __init__(self, spec: dict[str, Any]) -> None:
        processes.name_and_value(spec["marker"])
        self._spec = spec
        said, beside = self._logs = [Log(spec[name]) for name in ("stdout", "stderr")]
        # One for each of the three streams. The command's own is that of its stdout: whoever reads another one finds
        # the end of the file also in the background, where reading from one's own terminal stops a process.
        self._screens = [Screen(log, spec["columns"], spec["lines"]) for log in (said, said, beside)]
        self._readers: dict[int, Callable[[], object]] = {}
        self._poll = select.poll()
        self._report, self._said = -1, b""
        self._child = 0
        self._status: int | None = None
        self._stopped = self._failed = False

    def run(self) -> None:
        """Start the command, and stay until nothing of it is left."""
        self._hear_signals()
        self._hear_study()
        for screen in self._screens:
            self._hear(screen.outer, screen.read)
        self._fill()
        self._start()
        self._watch()
        self._finish()

    def _hear(self, descriptor: int, reader: Callable[[], object]) -> None:
        self._readers[descriptor] = reader
        self._poll.register(descriptor, select.POLLIN)

    def _hear_signals(self) -> None:
        reading, writing = os.pipe()
        for end in (reading, writing):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # what counts goes through the pipe

        def heard() -> None:
            self._stopped |= any(number != signal.SIGCHLD for number in os.read(reading, READ_BYTES))
            self._reap()

        self._hear(reading, heard)

    def _hear_study(self) -> None:
        """Notice the end of the study. Processes that it has forked may hold our stdin open: so look at both."""
        self._hear(0, self._read_study)
        with suppress(OSError):  # an old kernel
            self._hear(os.pidfd_open(os.getppid()), self._stop)

    def _read_study(self) -> None:
        self._stopped |= not os.read(0, READ_BYTES)

    def _stop(self) -> None:
        self._stopped = True

    def _start(self) -> None:
        self._report, writing = os.pipe()
        keeper = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            try:
                _become(self._spec, self._screens, keeper)
            except BaseException as error:
                with suppress(OSError):
                    os.write(writing, _sentence(error).encode(errors="replace"))
            finally:
                os._exit(FAILED)
        os.close(writing)
        self._hear(self._report, self._read_report)

    def _read_report(self) -> None:
        """Hear from the child how it goes: its end of the pipe closes when the command begins."""
        data = os.read(self._report, READ_BYTES)
        if data:
            self._said += data
            return None
        self._poll.unregister(self._report)
        os.close(self._report)
        self._report = -1
        self._failed = bool(self._said)
        if self._failed:
            return _tell(failed=self._said.decode(errors="replace"))
        if self._spec["overlays"]:
            # Held open: with its last user a layer is written to the disk, which would put off the end of the command.
            with suppress(OSError):
                os.open(f"/proc/{self._child}/ns/mnt", os.O_RDONLY)
        return _tell(pid=self._child)

    def _watch(self) -> None:
        """Wait for the end of the command, or of the study; meanwhile nothing that is said may wait."""
        next_s = 0.0
        while self._status is None and not self._stopped:
            for descriptor, _ in self._poll.poll(TOP_UP_S * 1e3):
                self._readers[descriptor]()
            if time.monotonic() >= next_s:
                self._fill()
                next_s = time.monotonic() + TOP_UP_S

    def _fill(self) -> None:
        for screen in self._screens:
            screen.fill()

    def _reap(self) -> None:
        """Take note of children that have ended, also of those that became ours when their parents ended."""
        with suppress(ChildProcessError):
            while True:
                child, status = os.waitpid(-1, os.WNOHANG)
                if child == 0:
                    break
                if child == self._child:
                    self._status = os.waitstatus_to_exitcode(status)

    def _finish(self) -> None:
        """Tell of the end, and bring it about for all that is left."""
        told = self._tell_end()
        left = processes.end_all(self._spec["marker"], below=os.getpid())
        self._reap()
        if not told:
            self._tell_end()
        for screen in self._screens:
            screen.drain()
        for log in self._logs:
            log.close()
        if left:
            _tell(left=left)

    def _tell_end(self) -> bool:
        if self._status is None:
            return False
        while self._report >= 0:
            self._read_report()
        for screen in self._screens:
            screen.drain()
        if not self._failed:
            _tell(ended=self._status)
        return True


def _become(spec: dict[str, Any], screens: list[Screen], keeper: int) -> None:
    """Turn this process, the child of the keeper, into the command; returns only by raising."""
    signal.set_wakeup_fd(-1)
    for name in DEFAULTS:
        signal.signal(signal.Signals[f"SIG{name}"], signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    if spec.get("network") is not None:
        _join_network(spec["network"])
    if spec["overlays"]:
        overlay.mount_overlays(spec["overlays"], spec.get("shared") or ())
    fcntl.ioctl(screens[1].inner, termios.TIOCSCTTY, 0)
    for descriptor, screen in enumerate(screens):
        os.dup2(screen.inner, descriptor)
    os.chdir(spec["cwd"])
    name, value = processes.name_and_value(spec["marker"])
    os.environ[name] = value
    overlay.system_call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # last: new rights would undo it
    if os.getppid() != keeper:
        raise ProcessLookupError("the keeper has ended")
    _execute(spec["words"])


def _execute(words: list[str]) -> None:
    try:
        os.execvp(words[0], words)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script that does not name its shell
            os.execv("/bin/sh", ["sh", "-c", 'exec "$@"', "sh", *words])
        raise OSError(error.errno, error.strerror, words[0]) from None


def _join_network(process: int) -> None:
    descriptor = os.open(f"/proc/{process}/ns/net", os.O_RDONLY)
    try:
        overlay.system_call("setns", descriptor, _CLONE_NEWNET)
    finally:
        os.close(descriptor)


def _sentence(error: BaseException) -> str:
    """Say in one line what went wrong."""
    text = str(error) or repr(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return " ".join(text.split())


def _tell(**message: object) -> None:
    with suppress(OSError):  # nobody is there to hear it
        os.write(1, json.dumps(message).encode() + b"\n")


def _read_line() -> bytes:
    """Read the first line of stdin; nothing where it ends before."""
    data = b""
    while b"\n" not in data:
        more = os.read(0, READ_BYTES)
        if not more:
            return b""
        data += more
    return data.partition(b"\n")[0]


def main() -> None:
    """Keep the command that the first line on stdin describes."""
    line = _read_line()
    if not line:
        return
    try:
        spec = json.loads(line)
        overlay.system_call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        keeper = Keeper(spec)
    except (OSError, LookupError, TypeError, ValueError) as error:  # a folder that is not there, or a wrong line
        _tell(failed=_sentence(error))
        return
    keeper.run()


if __name__ == "__main__":
    main()
