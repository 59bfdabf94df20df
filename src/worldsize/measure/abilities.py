"""What this machine can run, and why not the rest: pure functions over the snapshot and the facts."""

import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from worldsize.analysis.numbers import gib_text
from worldsize.errors import UsageError
from worldsize.measure.facts import SystemFacts, TorchFacts
from worldsize.measure.machine import BUSY_LOAD_PER_CORE, is_busy, package_version
from worldsize.results.base import Record
from worldsize.results.provenance import Host

SAFE_TO_FORK = (3, 11, 10)
"""First release of Python whose forked processes do not hang beside threads of gloo."""
_MEMORY_GAIN = (
    "tcmalloc and huge pages together gave 1.15 times the samples/s (ResNet-18, b = 128) in an older version, whose "
    "workers gave freed memory back; not measured since"
)
EXPECTED_GAIN = {"tcmalloc": _MEMORY_GAIN, "huge pages": _MEMORY_GAIN}
"""Name of an ability → what it gave where it was measured; only measured gains are entered."""

OPTIONAL_PACKAGES = {
    "torchvision": "--model torchvision:NAME",
    "wandb": "--log wandb",
    "tensorboard": "--log tensorboard",
    "mlflow": "--log mlflow",
    "submitit": "--launcher slurm: a study as one Slurm job",
    "ray": "--launcher ray: a study over the nodes of a Ray cluster",
}
"""Name of an optional package → what needs it."""
EXTRAS = {"wandb": "wandb", "tensorboard": "tensorboard", "mlflow": "mlflow", "submitit": "slurm", "ray": "ray"}
"""Name of an optional package → the extra of worldsize that installs it with all that goes with it."""
DISTRIBUTIONS = {"mlflow": ("mlflow", "mlflow-skinny")}
"""What a package may be called where it is installed from, if not as itself."""


class StrategyClass(Protocol):
    """The part of a strategy that says how many processes a world takes; `strategies` is not imported here."""

    def processes(self, world_size: int, /) -> int:
        """How many processes a world of this size takes; raise UsageError for a size that cannot be."""


class Ability(Record):
    """One line of `worldsize doctor`."""

    group: str
    name: str
    available: bool | None
    """None for a plain fact, which is neither here nor missing."""
    detail: str
    remedy: str | None = None
    """What to do to get it; only where it is missing."""
    expected_gain: str | None = None


class Diagnosis(Record):
    """All that `worldsize doctor` knows."""

    worldsize_version: str | None
    python_version: str
    host: Host
    torch: TorchFacts
    system: SystemFacts
    abilities: list[Ability]


def diagnose(host: Host, torch: TorchFacts, system: SystemFacts, strategies: Mapping[str, StrategyClass]) -> Diagnosis:
    """Judge the facts: one ability for each thing that a machine may have or lack, in the order to read them."""
    abilities = [
        *_machine(host, system),
        *_torch(host, torch, system),
        *_network(host),
        *(strategy_ability(name, kind, host, torch) for name, kind in strategies.items()),
        _tcmalloc(system),
        _huge_pages(system),
        _compiler(system),
        network_namespaces(system),
        *(_package(name) for name in OPTIONAL_PACKAGES),
    ]
    for ability in abilities:
        ability.expected_gain = EXPECTED_GAIN.get(ability.name)
    return Diagnosis(
        worldsize_version=package_version("worldsize"),
        python_version=platform.python_version(),
        host=host,
        torch=torch,
        system=system,
        abilities=abilities,
    )


def strategy_ability(name: str, strategy: StrategyClass, host: Host, torch: TorchFacts) -> Ability:
    """Whether this machine can run a strategy, and with how many workers that share no core and no GPU."""
    if torch.error is not None:
        return Ability(group="strategies", name=name, available=False, detail="torch cannot be imported")
    try:
        needs_backend = strategy.processes(2) > 1
    except UsageError:
        return Ability(group="strategies", name=name, available=True, detail="one worker, by its nature")
    if needs_backend and not (torch.gloo or torch.nccl):
        reason = "its processes need gloo or NCCL, and this torch has neither"
        return Ability(group="strategies", name=name, available=False, detail=reason)
    on_gpus = bool(host.gpus) and (torch.nccl or not needs_backend)
    own, where = (len(host.gpus), "GPU") if on_gpus else (max(1, int(host.room_cores)), "core")
    detail = f"up to {own} workers, each with a {where} of its own" if own > 1 else f"one worker on the only {where}"
    if own == 1 and not on_gpus:
        detail += "; more would share it (oversubscribed)"
    if needs_backend:
        detail += f"; {'NCCL' if on_gpus else 'gloo'}"
    return Ability(group="strategies", name=name, available=True, detail=detail)


def core_ranges(cores: Sequence[int]) -> str:
    """Sorted core numbers in short: `0-3,8`."""
    starts = [core for core in cores if core - 1 not in cores]
    ends = [core for core in cores if core + 1 not in cores]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _machine(host: Host, system: SystemFacts) -> Iterator[Ability]:
    def fact(name: str, detail: str) -> Ability:
        return Ability(group="machine", name=name, available=None, detail=detail)

    cores = host.allowed_cores
    yield fact("CPU", host.cpu_model)
    physical = "" if host.physical_cores is None else f", {host.physical_cores} physical"
    limited = "; the rest is closed to this process (affinity)" if len(cores) < host.logical_cores else ""
    yield fact(
        "cores", f"{len(cores)} of {host.logical_cores} logical{physical}; numbers {core_ranges(cores)}{limited}"
    )
    yield fact("CPU quota", "none" if host.quota_cores is None else f"{host.quota_cores:g} cores (control groups)")
    yield fact("room for threads", _room(host))
    yield fact("memory", f"{gib_text(host.memory_bytes)}, {gib_text(system.available_memory_bytes)} of it available")
    yield fact(
        "swap", f"{gib_text(system.swap_bytes)}; a run that swaps is not worth timing" if system.swap_bytes else "none"
    )
    busy = is_busy(host)
    bound = f"{BUSY_LOAD_PER_CORE * len(cores):g}"
    yield Ability(
        group="machine",
        name="quiet",
        available=not busy,
        detail=f"load {host.load_1min:.2f} in the last minute; {'more' if busy else 'not more'} than {bound}",
        remedy="end what else runs before measuring: ps -e --sort=-pcpu" if busy else None,
    )


def _room(host: Host) -> str:
    """How many threads can compute at the same time; more are oversubscribed (method.md §8)."""
    own, room = host.allowed_physical_cores or len(host.allowed_cores), host.room_cores
    why = "the CPU quota" if room < own else "one on each physical core"
    return f"{room:g}: {why}; more are oversubscribed, and their speed-up is withheld"


def _torch(host: Host, torch: TorchFacts, system: SystemFacts) -> Iterator[Ability]:
    yield _python(platform.python_version())
    if torch.error is not None:
        remedy = "install it again: pip install --force-reinstall torch"
        detail = f"version {torch.version or 'not installed'}: {torch.error}"
        yield Ability(group="torch", name="torch", available=False, detail=detail, remedy=remedy)
        return
    detail = f"{torch.version}, built for {torch.build}; vector instructions {torch.cpu_capability}"
    yield Ability(group="torch", name="torch", available=True, detail=detail)
    yield _gpu(host, torch, system)
    without = "not in this build of torch"
    yield Ability(
        group="torch", name="gloo", available=torch.gloo, detail="collectives on CPUs" if torch.gloo else without
    )
    usable = torch.nccl and bool(host.gpus)
    reason = "built in, but there is no GPU to use it on" if torch.nccl else without
    yield Ability(group="torch", name="NCCL", available=usable, detail="collectives on GPUs" if usable else reason)


def _python(version: str) -> Ability:
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if release >= SAFE_TO_FORK:
        return Ability(group="torch", name="Python", available=None, detail=version)
    detail = f"{version}: processes of a script's own DataLoader may hang as they are forked (cpython issue 112275)"
    remedy = f"install Python {'.'.join(map(str, SAFE_TO_FORK))} or later"
    return Ability(group="torch", name="Python", available=None, detail=detail, remedy=remedy)


def _gpu(host: Host, torch: TorchFacts, system: SystemFacts) -> Ability:
    if host.gpus:
        names = ", ".join(f"{host.gpus.count(name)} × {name}" for name in dict.fromkeys(host.gpus))
        return Ability(group="torch", name="GPUs", available=True, detail=names)
    if not system.nvidia_driver:
        return Ability(group="torch", name="GPUs", available=False, detail="none: no NVIDIA driver is loaded")
    if torch.build == "CPU":
        detail, remedy = "the driver is here, but this torch is built for CPUs alone", "install a CUDA build of torch"
    else:
        detail = f"the driver is here, but torch ({torch.build}) sees no GPU"
        remedy = "look at CUDA_VISIBLE_DEVICES, and whether nvidia-smi shows a driver new enough"
    return Ability(group="torch", name="GPUs", available=False, detail=detail, remedy=remedy)


def _network(host: Host) -> Iterator[Ability]:
    for name, addresses in host.interfaces.items():
        yield Ability(group="network interfaces", name=name, available=None, detail=", ".join(addresses))
    loopback = any(address == "127.0.0.1" for addresses in host.interfaces.values() for address in addresses)
    yield Ability(
        group="network interfaces",
        name="loopback",
        available=loopback,
        detail="workers of one machine meet there" if loopback else "workers of one machine cannot meet",
        remedy=None if loopback else "as root: ip link set lo up",
    )


def _tcmalloc(system: SystemFacts) -> Ability:
    available, remedy = False, None
    if system.tcmalloc is None:
        detail, remedy = "a faster allocator of memory; not installed", "apt-get install libtcmalloc-minimal4"
    elif system.preloaded and "tcmalloc" not in system.preloaded:
        detail, remedy = "your LD_PRELOAD names other libraries, and it wins", f"add {system.tcmalloc} to LD_PRELOAD"
    else:
        available, detail = True, f"{system.tcmalloc}; workers get it preloaded"
    return Ability(group="speed", name="tcmalloc", available=available, detail=detail, remedy=remedy)


def _huge_pages(system: SystemFacts) -> Ability:
    available, remedy = False, None
    if system.huge_pages is None:
        detail = "not in this kernel"
    elif system.huge_pages == "never":
        detail = "switched off on this machine"
        remedy = "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
    elif system.huge_pages == "madvise" and system.huge_pages_request not in (None, "1"):
        detail = f"your THP_MEM_ALLOC_ENABLE={system.huge_pages_request} keeps torch from using them"
        remedy = "unset THP_MEM_ALLOC_ENABLE"
    else:
        available, detail = True, f"transparent, {system.huge_pages}; workers ask for them"
    return Ability(group="speed", name="huge pages", available=available, detail=detail, remedy=remedy)


def _compiler(system: SystemFacts) -> Ability:
    if system.cpp_compiler is None:
        remedy = "apt-get install g++, or name another in CXX"
        detail = "for --compile; no C++ compiler was found"
        return Ability(group="speed", name="torch.compile", available=False, detail=detail, remedy=remedy)
    detail = f"for --compile, by {system.cpp_compiler}; not tried here: time a study with it and one without"
    return Ability(group="speed", name="torch.compile", available=True, detail=detail)


def network_namespaces(system: SystemFacts) -> Ability:
    """Whether hosts can be emulated here (launch/hosts.py)."""
    missing, remedies = [], []
    if system.missing_capabilities:
        missing.append(f"no right to make them ({', '.join(system.missing_capabilities)})")
        remedies.append("run as root (in a container: with these capabilities)")
    if system.missing_programs:
        missing.append(f"not installed: {', '.join(system.missing_programs)}")
        remedies.append("apt-get install iproute2")
    return Ability(
        group="emulated hosts",
        name="network namespaces",
        available=not missing,
        detail="; ".join(missing) or "this process may make them; ip and tc are installed",
        remedy="; ".join(remedies) or None,
    )


def _package(name: str) -> Ability:
    versions = (package_version(each) for each in DISTRIBUTIONS.get(name, (name,)))
    version, used_for = next(filter(None, versions), None), OPTIONAL_PACKAGES[name]
    wanted = f"'worldsize[{EXTRAS[name]}]'" if name in EXTRAS else name
    return Ability(
        group="optional packages",
        name=name,
        available=bool(version),
        detail=f"{version or 'not installed'}; for {used_for}",
        remedy=None if version else f"pip install {wanted}",
    )
