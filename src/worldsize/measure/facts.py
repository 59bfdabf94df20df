"""What `worldsize doctor` asks of torch and of the operating system; `abilities` judges the answers."""

import os
import warnings
from pathlib import Path

import psutil

from worldsize.measure.allocator import find_program, find_tcmalloc
from worldsize.measure.compiler import find_cpp_compiler
from worldsize.measure.machine import package_version
from worldsize.results.base import Record

_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_NAMESPACE_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}  # name → bit, as in capabilities(7)


class TorchFacts(Record):
    """What the installed torch was built with."""

    version: str | None
    build: str | None = None
    """`CPU`, `CUDA 12.6` or `ROCm 6.2`."""
    cpu_capability: str | None = None
    """Largest vector instructions that its kernels use here."""
    gloo: bool = False
    nccl: bool = False
    error: str | None = None
    """Why it cannot be imported."""


class SystemFacts(Record):
    """What the operating system has to offer beyond `records.Host`."""

    available_memory_bytes: int
    swap_bytes: int
    nvidia_driver: bool
    tcmalloc: str | None
    """Path of the library, if it is installed."""
    preloaded: str
    """Value of LD_PRELOAD."""
    huge_pages: str | None
    """`always`, `madvise` or `never`; None for a kernel without them."""
    huge_pages_request: str | None
    """Value of THP_MEM_ALLOC_ENABLE; with 1 torch asks for them."""
    cpp_compiler: str | None
    """Path of the C++ compiler that torch.compile would call, if it is there."""
    missing_capabilities: tuple[str, ...]
    """What this process lacks to make network namespaces."""
    missing_programs: tuple[str, ...]
    """Which of `ip` and `tc` are not installed."""


def torch_facts() -> TorchFacts:
    """Import torch and ask it; that it cannot be imported is a fact too."""
    version = package_version("torch")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it would warn of shows in the facts
            import torch
            import torch.distributed as dist
    except (ImportError, OSError) as error:
        return TorchFacts(version=version, error=str(error).partition("\n")[0])
    build = "CPU"
    if torch.version.cuda:
        build = f"CUDA {torch.version.cuda}"
    elif torch.version.hip:
        build = f"ROCm {torch.version.hip}"
    return TorchFacts(
        version=version,
        build=build,
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        gloo=dist.is_available() and dist.is_gloo_available(),
        nccl=dist.is_available() and dist.is_nccl_available(),
    )


def system_facts() -> SystemFacts:
    """Ask the operating system; nothing is changed by asking."""
    tcmalloc = find_tcmalloc()
    return SystemFacts(
        available_memory_bytes=psutil.virtual_memory().available,
        swap_bytes=psutil.swap_memory().total,
        nvidia_driver=Path("/proc/driver/nvidia/version").exists(),
        tcmalloc=str(tcmalloc) if tcmalloc else None,
        preloaded=os.environ.get("LD_PRELOAD", ""),
        huge_pages=_huge_pages(),
        huge_pages_request=os.environ.get("THP_MEM_ALLOC_ENABLE"),
        cpp_compiler=find_cpp_compiler(),
        missing_capabilities=missing_capabilities(_own_status()),
        missing_programs=tuple(name for name in ("ip", "tc") if find_program(name) is None),
    )


def _huge_pages() -> str | None:
    try:
        return selected_word(_HUGE_PAGES.read_text(encoding="ascii"))
    except OSError:
        return None


def selected_word(choices: str) -> str | None:
    """The word in brackets of a kernel setting: `madvise` of `always [madvise] never`."""
    return next((word[1:-1] for word in choices.split() if word.startswith("[")), None)


def _own_status() -> str:
    try:
        return Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not Linux


def missing_capabilities(status: str) -> tuple[str, ...]:
    """What a process with this /proc/PID/status lacks to make network namespaces.

    Root in a container often has no right to the network, so the capabilities are read, not the user id.
    """
    effective = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)
    return tuple(name for name, bit in _NAMESPACE_CAPABILITIES.items() if not effective >> bit & 1)
