"""Which of the user's own code a result was measured with: model, data and strategy, and all that they import."""

from collections.abc import Sequence

from pydantic import Field

from worldsize.results.base import Record

SHOWN = 12
"""Digits of a commit or a digest that are shown."""
MOST_NAMED = 3
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
    shown, left = files[:MOST_NAMED], len(files) - MOST_NAMED
    return ", ".join(shown) + (f" and {left} more" if left > 0 else "")


def short_commit(commit: str) -> str:
    """A commit, or several, as they are shown: not all digits, but whether it is dirty."""
    parts = (each.partition("+") for each in commit.split(", "))
    return ", ".join(f"{digits[:SHOWN]}{plus}{dirty}" for digits, plus, dirty in parts)
