"""What this worker could do at best, measured beside the steps (method.md §12): multiply matrices, use memory."""

import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch


def matmul_flops_per_s(device: torch.device, seconds: float = 0.1) -> float:
    """Floating-point operations per second of square fp32 matrix products on this worker's own cores.

    The best of several products, because everything that disturbs one only makes it slower.
    """
    size = 8192 if device.type == "cuda" else 1024
    a, b = torch.randn(2, size, size, device=device)
    out = torch.empty(size, size, device=device)
    best = float("inf")
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or best == float("inf"):
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


class _AtStart:
    """Memory of this process when its work began: code, and what it shares with the process it came from."""

    resident_bytes = 0
    file_bytes: int | None = None
    private_bytes = 0


def begin_to_count_memory() -> None:
    """Leave what is there now out of `peak_memory_bytes`, and of a memory limit, from here on (method.md §9)."""
    _AtStart.resident_bytes = _status_bytes("VmRSS") or 0
    _AtStart.file_bytes = _status_bytes("RssFile")
    _AtStart.private_bytes = private_bytes()


def private_bytes() -> int:
    """Private writable memory of this process, as RLIMIT_DATA counts it (VmData in proc(5)); 0 where it is not told."""
    return _status_bytes("VmData") or 0


def private_bytes_at_start() -> int:
    """The same when its work began."""
    return _AtStart.private_bytes


def forget_peak(device: torch.device) -> None:
    """Let `peak_memory_bytes` count from what is in use now; nothing happens where the system cannot do that."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        with suppress(OSError):  # a container may not let a process write there
            Path("/proc/self/clear_refs").write_text("5")  # the peak resident size, proc(5)


def peak_memory_bytes(device: torch.device) -> int:
    """Largest memory so far: of this process on a CPU, without its code; allocated on the device on a GPU.

    On a CPU what was resident when its work began is left out, and so are pages of files, code among them, that were
    read since: a memory limit does not count them either (method.md §9).
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # getrusage would also count the process that started this one: its peak survives fork and exec (proc(5)).
    peak = _status_bytes("VmHWM")
    if peak is None:
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return peak - _AtStart.resident_bytes - _file_bytes_since()


def memory_in_use_bytes(device: torch.device) -> int | None:
    """Memory that is in use now, counted as `peak_memory_bytes` counts it; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    resident = _status_bytes("VmRSS")
    return None if resident is None else resident - _AtStart.resident_bytes - _file_bytes_since()


def _file_bytes_since() -> int:
    """Pages of files that this process has come to hold since its work began."""
    if _AtStart.file_bytes is None:
        return 0
    return max(0, (_status_bytes("RssFile") or 0) - _AtStart.file_bytes)


def _status_bytes(name: str) -> int | None:
    """A field of /proc/self/status; None where there is none."""
    status = Path("/proc/self/status")
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines()) if status.exists() else {}
    return int(fields[name].removesuffix("kB")) * 1024 if name in fields else None
