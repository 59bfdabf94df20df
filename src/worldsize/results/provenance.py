"""Where a result comes from: the machine, the command, versions, and the user's own code (method.md §11)."""

from collections.abc import Sequence

from pydantic import Field

from worldsize.results.base import Record

SHOWN = 12
"""Digits of a commit or a digest that are shown."""
MAX_NAMED = 3
"""Files that a message names."""


class UserFile(Record):
    """One file of the user's."""

    name: str
    """As it is imported, such as `net.py` or `package/blocks.py`: the same wherever it lies."""
    path: str
    sha256: str


class Repository(Record):
    """A git work tree that tracks some of the files."""

    folder: str
    commit: str
    """With `+dirty` if a tracked file has changes, or one of the user's files is not tracked."""


class UserCode(Record):
    """Every file of the user's that was imported, and where it is kept."""

    files: list[UserFile] = Field(default_factory=list)
    repositories: list[Repository] = Field(default_factory=list)

    @property
    def digests(self) -> dict[str, tuple[str, ...]]:
        """Digests by name; there are several where files of one name were imported from several folders."""
        found: dict[str, tuple[str, ...]] = {}
        for file in self.files:
            found[file.name] = tuple(sorted((*found.get(file.name, ()), file.sha256)))
        return found

    @property
    def commit(self) -> str | None:
        """The commits of its repositories; None where nothing tracks it."""
        return ", ".join(each.commit for each in self.repositories) or None


def different_files(old: UserCode | None, new: UserCode | None) -> list[str]:
    """Names of the files that only one of them has, or that are not the same; empty where either is not known."""
    if old is None or new is None:
        return []
    a, b = old.digests, new.digests
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def named(files: Sequence[str]) -> str:
    """Some names of files, for a message."""
    shown, left = files[:MAX_NAMED], len(files) - MAX_NAMED
    return ", ".join(shown) + (f" and {left} more" if left > 0 else "")


def short_commit(commit: str) -> str:
    """A commit, or several, as they are shown: not all digits, but whether it is dirty."""
    parts = (each.partition("+") for each in commit.split(", "))
    return ", ".join(f"{digits[:SHOWN]}{plus}{dirty}" for digits, plus, dirty in parts)


class Host(Record):
    """The machine, as far as it explains a number (method.md §11)."""

    hostname: str
    system: str
    cpu_model: str
    logical_cores: int
    physical_cores: int | None
    allowed_cores: tuple[int, ...]
    """Logical CPUs that this process may run on (its affinity mask)."""
    allowed_physical_cores: int | None = None
    """Physical cores that these are; None in older runs."""
    quota_cores: float | None = None
    """CPU seconds per second that the control groups of this process permit; None where they set no limit."""
    memory_bytes: int
    load_1min: float
    """Load average at the start of the study; what others were doing."""
    gpus: tuple[str, ...] = ()
    interfaces: dict[str, list[str]] = Field(default_factory=dict)
    """Network interface → its addresses."""
    congestion_control: str | None = None
    """How TCP's senders of this machine find their rate; emulated hosts have their own (method.md §15)."""

    @property
    def room_cores(self) -> float:
        """Threads that can compute at the same time: min(physical cores, quota) (method.md §8)."""
        own = self.allowed_physical_cores or len(self.allowed_cores)
        return own if self.quota_cores is None else min(own, self.quota_cores)


class Provenance(Record):
    """Where a result comes from (method.md §11)."""

    created: str
    """UTC, ISO 8601."""
    command: tuple[str, ...]
    started_by: tuple[str, ...] = ()
    """What stood before that command and started its workers, as torchrun with its flags; empty where it did itself."""
    worldsize_version: str
    commit: str | None = None
    """Commit of worldsize's own working tree, with `+dirty` if it had changes; None for an installed one."""
    user_code: UserCode | None = None
    """The user's own model, data and strategies; None where there are none, or it was not looked for."""
    python_version: str
    torch_version: str
    host: Host
    environment: dict[str, str] = Field(default_factory=dict)
    """OMP_*, GOMP_*, KMP_*, MKL_*, MALLOC_*, GLOO_*, NCCL_*, TORCH_*, LD_PRELOAD, THP_MEM_ALLOC_ENABLE, GLIBC_TUNABLES,
    CUDA_VISIBLE_DEVICES; none of them if it names a secret."""
