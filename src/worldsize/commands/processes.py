"""The processes of a command: which they are, and the end of them. Standard library only: keeper.py uses it."""

import os
import signal
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 5.0
"""How long killed processes may take to be gone. Those that wait for a device or a network disk may stay longer."""
LOOK_S = 0.005
"""Between two looks: no event tells that a process which is not our child has ended."""


def end_all(marker: str, below: int | None = None, patience_s: float = PATIENCE_S) -> list[int]:
    """Kill what has the marker, and what is below the process `below`, until nothing of it is left.

    Returns the processes that are still there after `patience_s`. Never kills the process that calls it.
    """
    until_s = time.monotonic() + patience_s
    while True:  # what was found may have forked before it was killed
        found = marked(marker) | (set() if below is None else descendants(below))
        # All are stopped first: a parent that sees its child killed may start another one, or say so in its log.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in sorted(found):
                with suppress(OSError):
                    os.kill(process, number)
        if not found or time.monotonic() > until_s:
            return sorted(found)
        time.sleep(LOOK_S)


def descendants(pid: int) -> set[int]:
    """Return the processes below one, at any depth, that have not ended."""
    children = defaultdict(list)
    for process in _processes():
        parent = _state(process)[1]
        children[parent].append(process)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        below = [child for child in children[waiting.pop()] if child not in found]
        found.update(below)
        waiting += below
    return {process for process in found - {os.getpid()} if _lives(process)}


def marked(marker: str) -> set[int]:
    """Return the processes that were started with the variable `marker` ("NAME=value") and have not ended.

    The process that calls is left out. Raises ValueError for what is no marker.
    """
    words, ours = os.fsencode("=".join(name_and_value(marker))), os.getpid()
    return {process for process in _processes() if process != ours and words in _variables(process) and _lives(process)}


def has_marker(process: int, marker: str) -> bool:
    """Tell whether a process was started with a marker."""
    return os.fsencode(marker) in _variables(process)


def name_and_value(marker: str) -> tuple[str, str]:
    """Return the parts of "NAME=value". Raises ValueError if one is empty: that might be found in any process."""
    name, _, value = marker.partition("=")
    if not (name and value):
        raise ValueError(f"a marker is NAME=value, not {marker!r}")
    return name, value


def _processes() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal()]


def _variables(process: int) -> list[bytes]:
    """Return the environment that a process was started with; nothing of another user's."""
    try:
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _state(process: int) -> tuple[str, int]:
    """Return the letter of a process' state, and its parent; "X" and 0 when it is gone."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "X", 0
    words = text.rpartition(")")[2].split()  # the name before it may hold anything
    return words[0], int(words[1])


def _lives(process: int) -> bool:
    """Tell whether something of a process still runs. A zombie of one thread has ended; its parent has not looked."""
    state = _state(process)[0]
    if state != "Z":
        return state != "X"
    try:
        return sum(1 for _ in os.scandir(f"/proc/{process}/task")) > 1  # its first thread has ended, others have not
    except OSError:
        return False
