"""The tests that `make test` leaves to `make test-all`: tests/slow.txt."""

from pathlib import Path

LIST = Path(__file__).parents[1] / "slow.txt"


def listed() -> list[tuple[int, str]]:
    """Seconds and names of tests/slow.txt."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return [(int(seconds), name) for seconds, _, name in (line.partition(" ") for line in lines) if seconds != "#"]


def names_of(node: str) -> set[str]:
    """The names by which tests/slow.txt may list a test: itself, all of its cases, its case in the whole file."""
    file, _, name = node.partition("::")
    plain, bracket, case = name.partition("[")
    return {node, f"{file}::{plain}", f"{file}::{bracket}{case}"}
