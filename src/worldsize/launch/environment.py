"""The variables of the workers: what makes them quick, and what keeps their sockets where they belong.

Nothing heavy is imported here: a command begins its warm server with the first of them, before all else.
"""

import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worldsize.measure.allocator import NO_CACHE, TUNABLES, find_tcmalloc, set_by_user

if TYPE_CHECKING:
    from worldsize.config import Hosts

READ_AT_START = (
    *("LD_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "THP_", "MALLOC_", "GLIBC_", "PYTHON"),
    *("TORCH_", "PYTORCH_", "KINETO_"),
)
"""Beginnings of the names of variables that a process reads while it starts: a process that is forked cannot get them
any more, so they are those of the server that forks it (server.py)."""


TUNED = ("THP_MEM_ALLOC_ENABLE", TUNABLES, "LD_PRELOAD")
"""How memory is given out: huge pages for tensors, and an allocator that keeps what is freed."""

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)


def quick_environment() -> dict[str, str]:
    """Variables that make workers quick, all of which a process reads while it starts; what the user has set wins."""
    wanted = {
        # torch then asks the kernel for huge pages for its tensors, where they are available on request.
        "THP_MEM_ALLOC_ENABLE": "1",
        # numpy would start threads when it is loaded, and a process that forks must have none; torch does the work.
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        # It counts the time for which a worker is stopped between turns.
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": str(365 * 24 * 3600),
    }
    if not set_by_user():
        wanted[TUNABLES] = NO_CACHE
    allocator = find_tcmalloc()
    if allocator is not None:
        wanted["LD_PRELOAD"] = str(allocator)
    return {name: value for name, value in wanted.items() if name not in os.environ}


def tuned_environment() -> dict[str, str]:
    """Those of them that make a person's own command quicker as well, and do not depend on turns."""
    return {name: value for name, value in quick_environment().items() if name in TUNED}


def worker_environment(hosts: "Hosts | None" = None, *, spread: bool = False) -> dict[str, str]:
    """Variables that make workers quick and keep their sockets on loopback, or on the emulated hosts' links.

    Workers that are spread over nodes take the interface that their agent finds. What the user has set wins, but for
    the interface on emulated hosts, which have no other.
    """
    from worldsize.launch.by_hand import SOCKET_VARIABLES
    from worldsize.launch.hosts import INTERFACE
    from worldsize.measure.machine import loopback_interface

    interface = loopback_interface() if hosts is None else INTERFACE
    sockets = {} if spread else dict.fromkeys(SOCKET_VARIABLES, interface)
    if hosts is None:
        sockets = {name: value for name, value in sockets.items() if name not in os.environ}
    return quick_environment() | sockets


def read_at_start(environment: dict[str, str]) -> dict[str, str]:
    """The part of an environment that a process reads while it starts."""
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def surroundings(environment: dict[str, str]) -> dict[str, Any]:
    """What a process inherits from the one that starts it and cannot be told later; equal where a server will do."""
    here = Path("/proc/self")
    return {
        "variables": read_at_start(environment),
        "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "owner": [os.getuid(), os.getgid()],
        "limits": [resource.getrlimit(number) for number in LIMITS],
        "namespaces": [str((here / "ns" / name).readlink()) for name in NAMESPACES if (here / "ns" / name).exists()],
        "groups": (here / "cgroup").read_text() if (here / "cgroup").exists() else "",
        "root": str((here / "root").readlink()) if here.exists() else "/",
    }
