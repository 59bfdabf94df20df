"""The machine's snapshot and the provenance of a result (method.md §11); torch is imported only to name GPUs."""

import importlib.metadata
import importlib.util
import ipaddress
import os
import platform
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from worldsize.config.redact import names_a_secret, safe_command, without_credentials
from worldsize.errors import RunError
from worldsize.measure.cores import usable_cores
from worldsize.measure.cpu_times import cores_busy, cpu_times
from worldsize.results.provenance import Host, Provenance, UserCode
from worldsize.results.records import WarningRecord

BUSY_LOAD_PER_CORE = 0.5
"""Load average per allowed core above which others are said to disturb the measurement."""

_ENVIRONMENT_NAMES = ("LD_PRELOAD", "THP_MEM_ALLOC_ENABLE", "GLIBC_TUNABLES", "CUDA_VISIBLE_DEVICES")
_ENVIRONMENT_PREFIXES = ("OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_", "GLOO_", "NCCL_", "TORCH_")


def allowed_cores() -> tuple[int, ...]:
    """Cores that this process may run on, in order; all of the machine where it has no affinity masks."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def loopback_interface() -> str:
    """Name of the interface that reaches this machine alone; raise RunError if none is up."""
    states = psutil.net_if_stats()
    for name, addresses in _interfaces().items():
        if name in states and states[name].isup and any(ipaddress.ip_address(a).is_loopback for a in addresses):
            return name
    raise RunError("no loopback interface is up, so workers cannot meet\nSwitch it on as root: ip link set lo up")


def snapshot_host(with_gpus: bool) -> Host:
    """The machine as it is now; GPUs are listed only `with_gpus`, which imports torch."""
    cores = allowed_cores()
    usable = usable_cores(cores)
    return Host(
        hostname=socket.gethostname(),
        system=platform.platform(),
        cpu_model=_cpu_model(),
        logical_cores=psutil.cpu_count() or len(cores),
        physical_cores=psutil.cpu_count(logical=False),
        allowed_cores=cores,
        allowed_physical_cores=usable.whole,
        quota_cores=usable.quota,
        memory_bytes=psutil.virtual_memory().total,
        load_1min=psutil.getloadavg()[0],
        gpus=_gpus() if with_gpus else (),
        interfaces=_interfaces(),
        congestion_control=_congestion_control(),
    )


def provenance(
    command: Sequence[str],
    *,
    host: Host | None = None,
    worker_environment: Mapping[str, str] | None = None,
    code: UserCode | None = None,
    started_by: Sequence[str] = (),
) -> Provenance:
    """Where a result comes from (method.md §11).

    `host` is a snapshot that was taken already; without it, one without GPUs is taken. `worker_environment` holds the
    variables that workers get on top of this process's own. `code` is the user's (user_code.py). `started_by`
    are the words that stood before the command.
    """
    return Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=safe_command(tuple(command)),
        started_by=tuple(started_by),
        worldsize_version=package_version("worldsize") or "not installed",
        commit=_commit(Path(__file__).parents[1]),
        user_code=code,
        python_version=platform.python_version(),
        torch_version=package_version("torch") or "not installed",
        host=host or snapshot_host(with_gpus=False),
        environment=recorded_environment({**os.environ, **(worker_environment or {})}),
    )


def package_version(name: str) -> str | None:
    """Version of an installed distribution, read without importing it; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def recorded_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that explain a number (records.Provenance names them); no others, so that no secret is stored."""
    return {
        name: without_credentials(value)
        for name, value in sorted(environment.items())
        if (name in _ENVIRONMENT_NAMES or name.startswith(_ENVIRONMENT_PREFIXES)) and not names_a_secret(name)
    }


def is_busy(host: Host) -> bool:
    """Whether the load of the snapshot is above BUSY_LOAD_PER_CORE for each core that we may use."""
    return host.load_1min > BUSY_LOAD_PER_CORE * len(host.allowed_cores)


def busy_warning(host: Host) -> WarningRecord | None:
    """The warning `busy-machine`, with the names of the busiest other processes, if others use the cores.

    A load is a mean over the last minute or so: what has ended since, such as the study before, is no reason to warn.
    """
    if not is_busy(host):
        return None
    busiest = ", ".join(f"{name} ({cores:.1f} cores)" for name, cores in busiest_others())
    if not busiest and cores_in_use(host.allowed_cores) <= BUSY_LOAD_PER_CORE * len(host.allowed_cores):
        return None
    return WarningRecord(
        code="busy-machine",
        message=(
            f"the load was {host.load_1min:.1f} at the start, on {len(host.allowed_cores)} cores: "
            "other work makes steps slower and their times spread.\n"
            + (
                f"Busiest now: {busiest}. End them, or measure when the machine is quiet."
                if busiest
                else "The cores are busy now, with nothing that is visible here: measure when the machine is quiet."
            )
        ),
    )


def cores_in_use(cores: Sequence[int], sample_s: float = 0.3) -> float:
    """How many of these cores were busy during `sample_s` seconds of doing nothing here, whoever used them."""
    before = cpu_times()
    time.sleep(sample_s)
    return cores_busy(before, cpu_times(), cores)


def busiest_others(sample_s: float = 0.3, count: int = 3) -> list[tuple[str, float]]:
    """Names of the processes that used most of the CPU during `sample_s` seconds, with how many cores each used.

    Neither this process nor its children are among them, nor any that used less than a tenth of a core.
    """
    me = psutil.Process()
    own = {me.pid, *(child.pid for child in me.children(recursive=True))}
    before, start = _cpu_seconds(own), time.monotonic()
    time.sleep(sample_s)
    after, elapsed_s = _cpu_seconds(own), time.monotonic() - start
    used = [
        (name, (after[pid, name] - cpu_s) / elapsed_s) for (pid, name), cpu_s in before.items() if (pid, name) in after
    ]
    return sorted((entry for entry in used if entry[1] >= 0.1), key=lambda entry: -entry[1])[:count]


def _cpu_seconds(without: set[int]) -> dict[tuple[int, str], float]:
    """CPU seconds so far of each process that may be looked at, by its id and name."""
    seconds = {}
    for process in psutil.process_iter():
        try:
            if process.pid not in without:
                times = process.cpu_times()
                seconds[process.pid, process.name()] = times.user + times.system
        except psutil.Error:
            continue  # it ended meanwhile, or is not ours to look at
    return seconds


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine() or "unknown"


def _gpus() -> tuple[str, ...]:
    if importlib.util.find_spec("torch") is None:
        return ()
    import torch

    return tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))


def _interfaces() -> dict[str, list[str]]:
    internet = (socket.AF_INET, socket.AF_INET6)
    found = {
        name: [a.address.partition("%")[0] for a in addresses if a.family in internet]
        for name, addresses in psutil.net_if_addrs().items()
    }
    return {name: addresses for name, addresses in sorted(found.items()) if addresses}


def _congestion_control() -> str | None:
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip() or None
    except OSError:
        return None  # not Linux, or a container that hides it


def _commit(folder: Path) -> str | None:
    """Commit of the work tree that tracks `folder`, with `+dirty` if it has changes; None where nothing tracks it.

    A package that was installed into some other project's folder lies in a work tree too, but is not tracked by it.
    """
    if git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit, changes = git(folder, "rev-parse", "HEAD"), git(folder, "status", "--porcelain")
    if commit is None or changes is None:
        return None
    return f"{commit}+dirty" if changes else commit


def git(folder: Path, *arguments: str) -> str | None:
    """What git says of a folder; None where it fails, or is not there."""
    # Inside a git hook GIT_DIR names another repository; and status must not take the lock of somebody's commit.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, env=environment, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
