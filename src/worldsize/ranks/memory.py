"""Memory of this process: a limit on it, and how a failed allocation is recognised."""

import resource

import psutil
import torch

from worldsize.errors import UsageError
from worldsize.measure.limits import private_bytes, private_bytes_at_start

SIGNS = (
    "can't allocate memory",
    "out of memory",
    "could not create a memory",
    "std::bad_alloc",
    "_alloc_failed",
    "_allocation_failed",
    "_out_of_device_memory",
    "_out_of_host_memory",
    "cudaerrormemoryallocation",
)
"""What torch, CUDA, oneDNN and C++ say, in lower case, in exceptions of no particular type when an allocation fails:
also CUBLAS_STATUS_ALLOC_FAILED and CUDNN_STATUS_ALLOC_FAILED, where a library could not have its own workspace."""


def limit_memory(size_bytes: int) -> None:
    """Let allocations fail from here on that would take more than `size_bytes` since the work of this process began.

    What was there then does not count, as it does not in `peak_memory_bytes` (method.md §9): what fits under a limit
    prints a peak of no more than it. The kernel counts private writable memory (RLIMIT_DATA, Linux 4.7 and newer),
    touched or not; address space (RLIMIT_AS) would count what is only reserved: torch reserves several GiB. Raises
    UsageError where the work has taken more already.
    """
    begin = private_bytes_at_start()
    used = private_bytes() - begin
    if used > size_bytes:
        raise UsageError(
            f"a memory limit of {size_bytes / 2**20:.0f} MiB was given; a worker takes {used / 2**20:.0f} MiB before "
            "it trains\nGive a larger --memory-limit."
        )
    resource.setrlimit(resource.RLIMIT_DATA, (begin + size_bytes, begin + size_bytes))


def room_for(size_bytes: int, device: torch.device, processes: int) -> bool:
    """Whether each of the `processes` here can take so much more beside what it has taken at most, and as much again.

    On a GPU its memory counts, else that of the machine and the limit of this process.
    """
    wanted = 2 * size_bytes
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        most, held = torch.cuda.max_memory_allocated(device), torch.cuda.memory_reserved(device)
        return bool(free + held - most >= wanted)
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit != resource.RLIM_INFINITY and limit - private_bytes() < wanted:
        return False
    return bool(psutil.virtual_memory().available >= wanted * processes)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that an allocation failed, on a GPU or on a CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in SIGNS)
