"""Start a function of ours in a process of its own: forked from this one where that is safe, else a new interpreter.

A fork takes milliseconds and shares the pages of all that is loaded; a new interpreter loads torch again, which takes
seconds. It is safe where this process has one thread and no CUDA context: neither survives a fork.
"""

import atexit
import contextlib
import gc
import importlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Never

from setproctitle import setproctitle

from worldsize.parent_death import end_with_parent

CAUGHT = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1)
"""Signals that a process that forks may have handlers for."""


@dataclass(frozen=True)
class Call:
    """What a child does."""

    function: str
    """`module:function`; what it returns is the exit status."""
    arguments: Sequence[str]
    title: str
    """What tools such as ps and top show."""
    stdin: int
    """Descriptors of this process that become those of the child."""
    stdout: int
    stderr: int
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables on top of those of this process; all of them where `whole_environment`."""
    whole_environment: bool = False
    folder: str | None = None
    """Where it works; None is where this process does."""
    close: Sequence[int] = ()
    """Descriptors of this process that a forked child must not keep open."""
    own_session: bool = True
    """Whether it leads a session of its own; else a process group in the session of this process."""


def fork_is_safe() -> bool:
    """Whether a child that is forked now has all that this process has: one thread, and nothing on a GPU."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - a third of the time, at each start
    except OSError:  # not Linux: macOS forbids much after a fork
        return False


def start(call: Call, *, fork: bool = True) -> int:
    """Start the child; returns its process id. Raises OSError where the system has no room for another process."""
    if not (fork and fork_is_safe()):
        return _spawn(call)
    parent = os.getpid()
    gc.freeze()  # a collection in the child would write to, and so copy, every page that both share
    child = os.fork()
    if not child:
        _be_child(call, parent)
    return child


def _spawn(call: Call) -> int:
    environment = dict(call.environment) if call.whole_environment else {**os.environ, **call.environment}
    command = [sys.executable, "-m", "worldsize.launch.child", str(os.getpid()), call.title, call.function]
    started = subprocess.Popen(
        [*command, *call.arguments],
        stdin=call.stdin,
        stdout=call.stdout,
        stderr=call.stderr,
        env=environment,
        cwd=call.folder,
        start_new_session=call.own_session,
        process_group=None if call.own_session else 0,
    )
    started.returncode = 0  # its end is asked for by its process id, as that of a forked one
    return started.pid


def _be_child(call: Call, parent: int) -> Never:
    """Become what the call says; this never returns into the code that forked."""
    status = 1
    try:
        end_with_parent(parent)
        if call.own_session:
            os.setsid()  # Ctrl-C of a terminal goes to the whole foreground group
        else:
            os.setpgid(0, 0)
        for number in CAUGHT:
            signal.signal(number, signal.SIG_DFL)
        for own, descriptor in enumerate((call.stdin, call.stdout, call.stderr)):
            os.dup2(descriptor, own)
        for descriptor in {call.stdin, call.stdout, call.stderr, *call.close}:
            if descriptor > 2:
                os.close(descriptor)
        _be_where_told(call)
        status = _run(call.title, call.function, call.arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        _end(status)


def _be_where_told(call: Call) -> None:
    if call.whole_environment:
        os.environ.clear()
    os.environ.update(call.environment)
    if call.folder is not None:
        os.chdir(call.folder)
        sys.path[0] = call.folder  # as for `python -m`
    tempfile.tempdir = None  # TMPDIR may be another
    importlib.invalidate_caches()  # files may have been written since this interpreter began
    # A new interpreter would have drawn these by itself; torch begins with the same seed in each.
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


def _run(title: str, function: str, arguments: Sequence[str]) -> int:
    setproctitle(title)
    module, _, name = function.partition(":")
    status: int = getattr(importlib.import_module(module), name)(*arguments)
    return status


def _end(status: int) -> Never:
    """End as an interpreter does that is left by its main module, without tearing down what is shared."""
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()  # such as multiprocessing's, which ends the processes of a DataLoader
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    sys.path[0] = str(Path.cwd())
    sys.exit(_run(sys.argv[2], sys.argv[3], sys.argv[4:]))
