"""The workers of one agent: started before the agent has any thread, stopped between turns, and ended together.

Each leads a process group in the agent's session. So a worker stops and goes on with all that it has started: loader
processes of any kind, threads of any language. Should the agent be killed, the kernel wakes its stopped groups with a
SIGHUP, as they are orphaned then (setpgid(2), exit(3)).
"""

import contextlib
import os
import selectors
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from worldsize.launch.child import Call, start
from worldsize.launch.job import Job
from worldsize.launch.stopping import release_locks

GRACE_S = 30.0
"""How long workers may take to end when they are told to, before they are killed."""
ECHO_S = 0.2
"""How long is waited, when one has failed, for others that failed in the same moment: the first to be seen is not
always the first to have failed."""


@dataclass(frozen=True)
class LocalRanks:
    """Which ranks run on this node."""

    first: int
    count: int
    node: int
    nodes: int

    @classmethod
    def of(cls, job: Job, node: int) -> Self:
        """Those of one of the job's nodes; all of them where it runs on one."""
        if not job.spread:
            return cls(0, job.processes, 0, 1)
        sizes = [each.processes for each in job.nodes]
        return cls(sum(sizes[:node]), sizes[node], node, len(sizes))


class Workers:
    """Processes that wait on their stdin for where they meet, then do the job's entry (worker.py)."""

    def __init__(self, job: Job, ranks: LocalRanks) -> None:
        """Start them. Raises OSError where the system has no room for one; none is then left."""
        self.job, self.ranks = job, ranks
        self.hung_up = False
        """Whether they were ended because they are not waited for any more."""
        self._stdin: dict[int, int] = {}
        self._running: dict[int, int] = {}
        """Rank → process id."""
        self._wake, self._waker = os.pipe()
        self._turn = 0
        """The number of the turn that they are at; in the first they get ready."""
        self._keep_locks: set[int] = set()
        """Processes that hold a file lock for good, as of a database that stays open: they are not waited for again."""
        self._lock = threading.Lock()
        """Held where signals are sent, and where one is buried: its number may then be another process's."""
        logs = job.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        try:
            for rank in range(ranks.first, ranks.first + ranks.count):
                self._start(rank, logs)
        except OSError:
            self.end(grace_s=0)
            raise

    def _start(self, rank: int, logs: Path) -> None:
        reads, writes = os.pipe()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        outputs = [os.open(logs / f"rank{rank}.{name}", flags, 0o644) for name in ("stdout", "stderr")]
        try:
            call = Call(
                function="worldsize.launch.worker:main",
                arguments=(str(self.job.file),),
                title=f"worldsize worker rank {rank} {self.job.folder}",
                stdin=reads,
                stdout=outputs[0],
                stderr=outputs[1],
                close=[writes, self._wake, self._waker, *self._stdin.values()],
                own_session=False,
            )
            self._running[rank] = start(call, fork=self.job.start_method == "fork")
            self._stdin[rank] = writes
        except OSError:
            os.close(writes)
            raise
        finally:
            for descriptor in (reads, *outputs):
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def send_to(self, address: str, port: int, further: Mapping[str, str]) -> None:
        """Tell them who they are and where they meet, by the variables that torchrun sets, and further variables."""
        ranks = self.ranks
        for rank, stdin in self._stdin.items():
            variables = {
                **further,
                "RANK": rank,
                "WORLD_SIZE": self.job.processes,
                "LOCAL_RANK": rank - ranks.first,
                "LOCAL_WORLD_SIZE": ranks.count,
                "GROUP_RANK": ranks.node,
                "GROUP_WORLD_SIZE": ranks.nodes,
                "MASTER_ADDR": address,
                "MASTER_PORT": port,
                # They use the agent's store, and open none of their own.
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                "TORCHELASTIC_RESTART_COUNT": 0,
            }
            with contextlib.suppress(BrokenPipeError):  # one that has ended is seen by `wait`
                text = "\n".join(f"{name}={value}" for name, value in variables.items())
                os.write(stdin, text.encode())
            os.close(stdin)
        self._stdin.clear()

    def go_on(self, turn: int) -> None:
        """Let them go on with a turn, of this number."""
        with self._lock:
            self._turn = turn
            self._send(signal.SIGCONT)

    def stop(self, turn: int) -> None:
        """Stop them after a turn, with all that they have started; not where they go on with another one already.

        What holds a file lock releases it first.
        """
        with self._lock:
            if turn == self._turn:
                self._send(signal.SIGSTOP)
                groups, keep = set(self._running.values()), self._keep_locks
                keep |= release_locks(lambda process: process not in keep and _group_of(process) in groups)

    def _send(self, number: int) -> None:
        for process in self._running.values():
            _signal_group(process, number)

    def hang_up(self) -> None:
        """End them from another thread: `wait` returns."""
        self.hung_up = True
        os.write(self._waker, b".")

    def wait(self) -> dict[int, int]:
        """Wait until all have ended, or one has failed and the others were ended for it.

        Returns how those ended that failed by themselves, in the order in which that was seen: rank → exit status, or
        minus the signal.
        """
        failed: dict[int, int] = {}
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            watched = {rank: os.pidfd_open(process) for rank, process in self._running.items()}
            for rank, handle in watched.items():
                selector.register(handle, selectors.EVENT_READ, rank)
            deadline: float | None = None
            while self._running and not self.hung_up and (deadline is None or time.monotonic() < deadline):
                for key, _ in selector.select(None if deadline is None else ECHO_S):
                    if key.data is None:
                        continue
                    selector.unregister(key.fileobj)
                    status = self._bury(key.data)
                    if status:
                        failed[key.data] = status
                        deadline = deadline or time.monotonic() + ECHO_S
            for handle in watched.values():
                os.close(handle)
        self.end()
        return failed

    def end(self, grace_s: float = GRACE_S) -> None:
        """End those that still run: in order, and after `grace_s` whatever they are doing."""
        for stdin in self._stdin.values():
            os.close(stdin)
        self._stdin.clear()
        with self._lock:
            self._turn = -1  # no reply that comes now stops them
            for number in (signal.SIGTERM, signal.SIGCONT):  # who is stopped does not hear the first
                self._send(number)
        deadline = time.monotonic() + grace_s
        while self._running and time.monotonic() < deadline:
            self._bury_ended()
            time.sleep(0.005)
        for rank, process in list(self._running.items()):
            _signal_group(process, signal.SIGKILL)
            self._bury(rank)

    def _bury(self, rank: int) -> int:
        process = self._running[rank]
        status = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)  # its group has its name until it is buried
        assert status is not None
        with self._lock:
            del self._running[rank]
            _signal_group(process, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def _bury_ended(self) -> None:
        for rank, process in list(self._running.items()):
            if os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                self._bury(rank)


def _signal_group(process: int, number: int) -> None:
    """Send a signal to a worker and to what it has started, such as the processes of a DataLoader."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, number)


def _group_of(process: int) -> int:
    """The process group of a process; 0 when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(process)
    return 0
