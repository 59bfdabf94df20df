"""Memory of this process: a limit on it, and how a failed allocation is recognised."""

import resource
from pathlib import Path

import torch

from worldsize.errors import UsageError

SIGNS = ("can't allocate memory", "out of memory", "could not create a memory", "std::bad_alloc")
"""What torch, CUDA, oneDNN and C++ say in exceptions of no particular type when an allocation fails."""


def limit_memory(size_bytes: int) -> None:
    """Let allocations beyond `size_bytes` of private memory fail from here on (RLIMIT_DATA, Linux 4.7 and newer).

    Address space alone (RLIMIT_AS) would count what is only reserved: torch reserves several GiB. Raises UsageError
    where this process uses more already.
    """
    used = _used_bytes()
    if used > size_bytes:
        raise UsageError(
            f"a memory limit of {size_bytes / 2**20:.0f} MiB was given; a worker uses {used / 2**20:.0f} MiB before "
            "it begins\nGive a larger --memory-limit."
        )
    resource.setrlimit(resource.RLIMIT_DATA, (size_bytes, size_bytes))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that an allocation failed, on a GPU or on a CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in SIGNS)


def _used_bytes() -> int:
    """Private writable memory of this process, as RLIMIT_DATA counts it (VmData in proc(5))."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmData"].removesuffix("kB")) * 1024
