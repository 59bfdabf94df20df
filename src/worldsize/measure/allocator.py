"""The memory allocator of workers: tcmalloc, preloaded where this machine has it, else glibc's, told what to keep.

Loaded before anything heavy is.
"""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

TCMALLOC_SONAMES = ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4")
"""What can be preloaded, the smaller one first: the full one also brings a profiler."""

_MALLOPT = {-3: 2**25, -1: 2**31 - 1, -2: 2**20, 1: 0}
"""glibc's M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD and M_MXFAST (mallopt(3)), in bytes. What is larger than the
first goes back at once: kept, tensors of 38 MB that come and go left holes of 100 MB in a training of 465 MB. The third
is what each thread takes beyond its need. A memory limit counts it, used or not: with 64 MiB a cell of 114 MiB needed a
limit of 340. Steps of ResNet-18 with 128 KiB, 1 MiB, 64 MiB in turn: 219, 198, 213 ms. The last: `NO_CACHE`."""
TUNABLES = "GLIBC_TUNABLES"
NO_CACHE = "glibc.malloc.tcache_count=0"
"""glibc is to keep no freed pieces of a few bytes aside (those of each thread; M_MXFAST: those of all).

A tensor begins at a multiple of 64 bytes; the pieces before and behind it are freed at once, and while they are kept
aside its place can take no other tensor of its size (sourceware.org, bug 14581). Four tensors of 8 MiB that came and
went took 256 to 288 MiB so, with either setting alone 184 to 296, with both 56. Peaks of one training in three
processes that ask for huge pages: 218, 218 and 306 MiB, with both 162, 162 and 170. Steps of 4 ms of 80 small layers,
six processes each in turn, means: 3.94 ms, with both 4.03, while those of one kind differed by 4 %.
"""
_LDCONFIG_ABI = {"x86_64": "x86-64", "aarch64": "AArch64"}


def find_program(name: str) -> Path | None:
    """Path of a program, also where only root has its folder on the PATH; None if it is not there."""
    found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))
    return Path(found) if found else None


def find_tcmalloc() -> Path | None:
    """The tcmalloc of this machine, fit for LD_PRELOAD: one the dynamic linker knows, else one beside this Python."""
    known = _linker_cache()
    for soname in TCMALLOC_SONAMES:
        for path in (known.get(soname), Path(sys.prefix, "lib", soname)):  # the latter is where conda puts it
            if path is not None and path.exists():
                return path
    return None


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, as tcmalloc does, without holes; whether its C library can.

    As it is, glibc gives the system back what each step frees, and gets it again page by page in the next: a step of
    ResNet-18 (b = 8) on two threads took 250 ms after twenty steps of warming up, and takes 200 ms after six at most;
    a third of the time in the system was left (8.6 s → 3.0 s). Variables MALLOC_ and GLIBC_TUNABLES
    of the user's win.
    """
    if set_by_user():
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all([mallopt(option, size) for option, size in _MALLOPT.items()])


def set_by_user() -> bool:
    """Whether a user has set how glibc allocates."""
    tunables = os.environ.get(TUNABLES, "").replace(NO_CACHE, "")
    return "glibc.malloc" in tunables or any(name.startswith("MALLOC_") for name in os.environ)


def _linker_cache() -> dict[str, Path]:
    """Soname → path of the libraries for this machine's own architecture, as `ldconfig -p` lists them."""
    ldconfig = find_program("ldconfig")
    if ldconfig is None:
        return {}
    listing = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, errors="replace").stdout
    return parse_linker_cache(listing, _LDCONFIG_ABI.get(platform.machine(), ""))


def parse_linker_cache(listing: str, abi: str) -> dict[str, Path]:
    """Soname → path from the text of `ldconfig -p`, for lines like `NAME (libc6,ABI) => PATH`; the first one wins."""
    known: dict[str, Path] = {}
    for line in listing.splitlines():
        library, arrow, path = line.partition(" => ")
        soname, _, kind = library.strip().partition(" ")
        if arrow and abi in kind:
            known.setdefault(soname, Path(path.strip()))
    return known
