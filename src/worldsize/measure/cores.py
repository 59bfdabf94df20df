"""What a process may use of its machine's CPUs: whole cores first, and the quota of control groups (method.md §8)."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SIBLINGS = ("core_cpus_list", "thread_siblings_list")
"""Files with the logical CPUs of one physical core, those that are online: the newer name first."""
PLACE_OF_A_CORE = ("physical_package_id", "core_id")
"""What they have in common, used where the kernel has no such list: on arm64 `core_id` may begin anew in each cluster
of a package."""

_Mount = tuple[str, str, bool]
"""Which group is mounted, where, and whether it is of the second version."""


@dataclass(frozen=True)
class Cores:
    """The logical CPUs that workers may use, in the order in which they get them."""

    numbers: tuple[int, ...]
    """One of each physical core, then their siblings: the other logical CPUs of the same physical cores."""
    whole: int
    """How many of them are no siblings: physical cores."""
    quota: float | None = None
    """CPU seconds per second that the control groups permit; None where they set no limit."""

    @property
    def room(self) -> float:
        """Threads that can compute at the same time without sharing a core or waiting for the quota."""
        return self.whole if self.quota is None else min(self.whole, self.quota)

    @property
    def threads(self) -> int:
        """The same in whole threads; at least one."""
        return max(1, int(self.room))


def as_cores(cores: Cores | Sequence[int]) -> Cores:
    """Plain numbers are whole cores, without a quota."""
    return cores if isinstance(cores, Cores) else Cores(tuple(cores), len(cores))


def usable_cores(allowed: Sequence[int], root: Path = Path("/")) -> Cores:
    """What the logical CPUs `allowed` are, by the kernel's files below `root`; whole cores where they do not tell."""
    siblings_before: dict[object, int] = {}
    turn = {}
    for number, place in zip(allowed, _places(allowed, root / "sys/devices/system/cpu"), strict=True):
        turn[number] = siblings_before[place] = siblings_before.get(place, -1) + 1
    ordered = tuple(sorted(allowed, key=lambda number: turn[number]))  # stable: in order among their like
    return Cores(ordered, whole=len(siblings_before), quota=cpu_quota(root))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPU seconds per second that this process's control groups permit, the strictest of all above it; None without.

    cpu.max of the second version, cpu.cfs_quota_us and cpu.cfs_period_us of the first (Linux, cgroups(7)).
    """
    quotas = [_quota(folder) for folder in _groups(root)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _places(allowed: Sequence[int], folder: Path) -> list[object]:
    """The physical core of each logical CPU, by the first way that tells it of all of them."""
    files = [folder / f"cpu{number}" / "topology" for number in allowed]
    for name in SIBLINGS:
        with suppress(OSError, ValueError):
            return [_siblings(number, file / name) for number, file in zip(allowed, files, strict=True)]
    with suppress(OSError, ValueError):
        return [tuple(int((file / name).read_text()) for name in PLACE_OF_A_CORE) for file in files]
    return list(allowed)


def _siblings(number: int, file: Path) -> frozenset[int]:
    """The logical CPUs of the physical core of one, as a list such as `0,8-9` names them (cpuset(7))."""
    spans = [part.partition("-") for part in file.read_text().split(",")]
    found = frozenset(cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1))
    if number not in found:
        raise ValueError(f"{file} does not name CPU {number}")
    return found


def _groups(root: Path) -> Iterator[Path]:
    """The folders of the groups that limit this process, from its own up to the one that is mounted."""
    mounts = list(_mounts(root))
    for line in _lines(root / "proc/self/cgroup"):
        controllers, _, own = line.partition(":")[2].partition(":")
        if not controllers or "cpu" in controllers.split(","):
            for mounted, point, second in mounts:
                if second == (not controllers):
                    yield from _up(root / point.lstrip("/"), own, mounted)


def _up(point: Path, own: str, mounted: str) -> Iterator[Path]:
    """From the folder of the group `own` up to the mount point, where the group `mounted` is."""
    below = Path(own).relative_to(mounted) if Path(own).is_relative_to(mounted) else Path()
    # What lies outside of the mount is not to be seen; in a namespace its name begins with "..".
    parts = below.parts if ".." not in below.parts else ()
    for depth in range(len(parts), -1, -1):
        yield point.joinpath(*parts[:depth])


def _mounts(root: Path) -> Iterator[_Mount]:
    """The mounted hierarchies that can limit CPU time (proc(5), mountinfo)."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), (*after.split(), "", "", "")[:3]
        if len(fields) >= 5 and (kind == "cgroup2" or (kind == "cgroup" and "cpu" in options.split(","))):
            yield _unescaped(fields[3]), _unescaped(fields[4]), kind == "cgroup2"


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _quota(folder: Path) -> float | None:
    numbers = " ".join(_lines(folder / "cpu.max")).split()
    if not numbers:
        numbers = [*_lines(folder / "cpu.cfs_quota_us"), *_lines(folder / "cpu.cfs_period_us")]
    try:
        quota_us, period_us = map(int, numbers)
    except ValueError:
        return None  # `max`, or no such files
    return quota_us / period_us if quota_us > 0 and period_us > 0 else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except (OSError, ValueError):
        return []
