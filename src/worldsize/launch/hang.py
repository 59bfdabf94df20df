"""Tell a job that hangs from one that works: no rank begins anything any more, and the stacks say who is the cause."""

import re
import sysconfig
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from worldsize.launch.hosts import links_down
from worldsize.launch.job import Job
from worldsize.ranks.heartbeat import ASK
from worldsize.results.records import ErrorRecord

START_S = 300.0
"""How long a rank may take to begin its first step, at least: torch is loaded, data are read, nothing counts there."""
MAX_LOOK_S = 1.0
"""What a pause between two looks counts for at most: a machine, or a parent, that stood still is no hang."""
ANSWER_S = 2.0
"""How long a rank may take to leave its stack."""
WAITING = ("/torch/distributed/", "/torch/autograd/graph.py", "/torch/futures/", "/torch/nn/parallel/", "/torch/cuda/")
OUR_WAITING = ("/worldsize/strategies/", "/worldsize/ranks/store.py")
"""Where the stack of a rank ends that waits for others, or for its next turn."""
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)$', re.MULTILINE)
_LIBRARIES = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_path("purelib")})


@dataclass(frozen=True)
class Found:
    """What a rank was seen to do."""

    rank: int
    begun: int
    """How much it has begun."""
    stack: str
    """Of all its threads; empty where it left none."""
    status: str
    """As the system tells it: `stopped`, `sleeping` …"""

    @property
    def waits(self) -> bool:
        """Whether it waits for another rank."""
        frames = main_thread(self.stack)
        return bool(frames) and any(words in frames[0][0] for words in (*WAITING, *OUR_WAITING))

    @property
    def where(self) -> str:
        """What it is doing, in words."""
        frames = main_thread(self.stack)
        if self.status == psutil.STATUS_STOPPED:
            return "is stopped by a signal (SIGSTOP)"
        if not frames:
            return "does not answer"
        own = [frame for frame in frames if not frame[0].startswith(_LIBRARIES)]
        file, line, name = (own or frames)[0]
        return f"hangs in {file}, line {line}, in {name}"


def main_thread(stack: str) -> list[tuple[str, str, str]]:
    """File, line and function of each frame of the main thread, the innermost first; it is the oldest, so the last."""
    threads = re.split(r"^.*\(most recent call first\):$", stack, flags=re.MULTILINE)
    return [(found["file"], found["line"], found["name"]) for found in _FRAME.finditer(threads[-1])]


class HangWatch:
    """Looks at a job, while its parent waits for it, as often as the parent likes."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._limit_s = job.hang_timeout_s
        self._seen: list[bytes] = []
        self._looked_s = 0.0
        self._still_s = 0.0
        for rank in range(job.processes):
            for file in (job.pulse_file(rank), job.stack_file(rank)):
                file.unlink(missing_ok=True)

    def begin(self) -> None:
        """The parent begins to wait: what was before does not count."""
        self._looked_s, self._still_s = time.monotonic(), 0.0

    def look(self, agent: int | None) -> ErrorRecord | None:
        """Why the job, whose agent has this process id, counts as hanging; None while it does not.

        Without an agent the job is on several nodes: no process here can ask its ranks for their stacks.
        """
        limit_s = self._limit_s
        if limit_s is None:
            return None
        now_s, seen = time.monotonic(), [_content(self.job.pulse_file(rank)) for rank in range(self.job.processes)]
        self._still_s += min(now_s - self._looked_s, MAX_LOOK_S)
        if seen != self._seen:
            self._still_s = 0.0
        self._seen, self._looked_s = seen, now_s
        starting = any(_numbers(content)[1] <= 1 for content in seen)  # the first is to be there at all
        if self._still_s < (max(limit_s, START_S) if starting else limit_s):
            return None
        if agent is None:
            return hang_by_count([_numbers(content)[1] for content in seen], self._still_s)
        return hang_of(self._asked(agent), self._still_s, links_down(agent) if self.job.hosts else [])

    def _asked(self, agent: int) -> list[Found]:
        """Ask all ranks that are here for their stacks."""
        ours = {process.pid: process for process in _descendants(agent)}
        begun = {rank: _numbers(content) for rank, content in enumerate(self._seen)}
        asked = {rank: ours[pid] for rank, (pid, _) in begun.items() if pid in ours}
        for process in asked.values():
            with suppress(psutil.Error):
                process.send_signal(ASK)
        until_s = time.monotonic() + ANSWER_S
        files = [self.job.stack_file(rank) for rank in asked]
        while not all(_content(file).endswith(b"\n") for file in files) and time.monotonic() < until_s:
            time.sleep(0.05)
        return [
            Found(
                rank=rank,
                begun=begun[rank][1],
                stack=_content(self.job.stack_file(rank)).decode(errors="replace"),
                status=_status(process),
            )
            for rank, process in asked.items()
        ]


def hang_of(ranks: list[Found], still_s: float, down: list[int]) -> ErrorRecord:
    """The record of a hang: who is its cause, where that is, and who only waits for it."""
    causes = sorted((each for each in ranks if not each.waits), key=lambda each: (each.begun, each.rank))
    if down:
        rank: int | None = down[0]
        what = f"the link of {_named(down)} is down"
    elif causes:
        rank, what = causes[0].rank, "; ".join(f"rank {each.rank} {each.where}" for each in causes[:3])
        waiting = [each.rank for each in ranks if each.waits]
        if waiting:
            what += f"; {_named(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for it"
    else:
        rank = None
        what = "no rank hangs by itself, each waits for a message of another; does their network carry anything?"
    return ErrorRecord(
        kind="Hang",
        message=f"nothing has begun for {still_s:.0f} s: {what}\nIf it is only slow, raise --hang-timeout.",
        rank=rank,
        traceback="\n".join(f"rank {each.rank}:\n{each.stack}" for each in ranks),
    )


def hang_by_count(begun: list[int], still_s: float) -> ErrorRecord:
    """The record of a hang over several nodes, of which only is known how much each rank has begun."""
    behind = [rank for rank, count in enumerate(begun) if count == min(begun)]
    if len(behind) == len(begun):
        rank, what = None, "all ranks have come equally far, so it is not known which one hangs"
    else:
        rank, what = behind[0], f"{_named(behind)} came least far, and the others wait"
    return ErrorRecord(
        kind="Hang",
        message=f"nothing has begun for {still_s:.0f} s: {what}\nIf it is only slow, raise --hang-timeout.",
        rank=rank,
    )


def _named(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:8]))
    return f"ranks {shown}" + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


def _numbers(content: bytes) -> tuple[int, int]:
    """Process id and count; 0 where a rank has not come so far."""
    words = content.split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _descendants(agent: int) -> list[psutil.Process]:
    """All processes below an agent; none where it ends at this moment."""
    try:
        found: list[psutil.Process] = psutil.Process(agent).children(recursive=True)
    except psutil.Error:
        return []
    return found


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.Error:
        return "gone"
