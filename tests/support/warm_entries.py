"""What the children of a warm server do in its tests: tell what they are like."""

import json
import os
import random
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import torch

_HELD: list[torch.Tensor] = []


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def tell() -> int:
    """Answer each line of stdin with what this process is like."""
    for line in sys.stdin:
        _say({"heard": line.strip(), **_about()})
    return 3


def _about() -> dict[str, object]:
    status = dict(field.split(":", 1) for field in Path("/proc/self/status").read_text().splitlines())
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "folder": str(Path.cwd()),
        "searched": sys.path[0],
        "temporary": tempfile.gettempdir(),
        "greeting": os.environ.get("GREETING"),
        "start_method": "fork" if "worldsize.launch.server" in sys.orig_argv else "spawn",
        "threads": int(status["Threads"]),
        "numbers": [random.random(), float(np.random.random())],
        "tensor": torch.rand(1).item(),
        "descriptors": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()),
    }


def fail() -> int:
    """Raise."""
    raise ValueError("this one fails")


def tell_safety() -> int:
    """Whether this process may fork, as it is and beside a thread."""
    from worldsize.launch.child import fork_is_safe

    found = [fork_is_safe()]
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait)
    thread.start()
    found.append(fork_is_safe())
    waiting.set()
    thread.join()
    _say(found)
    return 0


def hold_memory() -> int:
    """Use 200 MiB and tell the peak, counted as a worker does."""
    from worldsize.measure.limits import begin_to_count_memory, peak_memory_bytes

    begin_to_count_memory()
    before = peak_memory_bytes(torch.device("cpu"))
    _HELD.append(torch.ones(200 << 20, dtype=torch.uint8))
    _say([before, peak_memory_bytes(torch.device("cpu"))])
    return 0
