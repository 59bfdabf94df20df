"""What this worker could do at best, measured beside the steps (method.md §12): multiply matrices, use memory."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal

import torch

from worldsize.config import Precision
from worldsize.measure.accelerator import wait_for

MatmulPrecision = Literal["fp32", "tf32", "bf16"]


def matmul_precision(device: torch.device, precision: Precision) -> MatmulPrecision:
    """The arithmetic of the yardstick for steps of this precision: the quickest that they may compute in.

    On a GPU fp32 is TF32 where convolutions or products may use it, as torch lets convolutions do by itself. On a CPU
    it is fp32, for bf16 as well.
    """
    if device.type == "cpu":
        return "fp32"
    if precision == "bf16":
        return "bf16"
    can = device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)
    return "tf32" if can and _may_use_tf32() else "fp32"


def _may_use_tf32() -> bool:
    try:
        return bool(torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # somebody has used torch's newer switches, with which these do not mix
        conv, matmul = getattr(torch.backends.cudnn, "conv", None), torch.backends.cuda.matmul
        return "tf32" in (getattr(conv, "fp32_precision", None), matmul.fp32_precision)


@contextmanager
def _tf32() -> Iterator[None]:
    """Let products of matrices compute in TF32 within this context."""
    matmul = torch.backends.cuda.matmul
    switch, on = ("fp32_precision", "tf32") if hasattr(matmul, "fp32_precision") else ("allow_tf32", True)
    before = getattr(matmul, switch)
    setattr(matmul, switch, on)
    try:
        yield
    finally:
        setattr(matmul, switch, before)


def matmul_flops_per_s(device: torch.device, seconds: float = 0.1, precision: MatmulPrecision = "fp32") -> float:
    """Floating-point operations per second of square matrix products of this arithmetic on this worker's own cores.

    The best of several products, because everything that disturbs one only makes it slower. It draws nothing from the
    random state of training: a cell that is launched again does without it, and must draw what it drew before.
    """
    size = 8192 if device.type != "cpu" else 1024
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    generator = torch.Generator(device)
    a, b = torch.randn(2, size, size, device=device, generator=generator).to(dtype)
    out = torch.empty(size, size, device=device, dtype=dtype)
    best = float("inf")
    stop = time.perf_counter() + seconds
    with _tf32() if precision == "tf32" else nullcontext():
        while time.perf_counter() < stop or best == float("inf"):
            start = time.perf_counter()
            torch.mm(a, b, out=out)
            wait_for(device)
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
    if device.type != "cpu":
        torch.get_device_module(device).reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        with suppress(OSError):  # a container may not let a process write there
            Path("/proc/self/clear_refs").write_text("5")  # the peak resident size, proc(5)


def peak_memory_bytes(device: torch.device) -> int:
    """Largest memory so far: of this process on a CPU, without its code; allocated on the device on a GPU.

    On a CPU what was resident when its work began is left out, and so are pages of files, code among them, that were
    read since: a memory limit does not count them either (method.md §9).
    """
    if device.type != "cpu":
        allocated: int = torch.get_device_module(device).max_memory_allocated(device)
        return allocated
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
