"""docs/reliability.md promises; each row of its table names the test that holds it."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\|(?P<cells>.*)\|$", re.MULTILINE)


def rows() -> list[list[str]]:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    found = [[cell.strip() for cell in row["cells"].split("|")] for row in ROW.finditer(text)]
    return found[2:]  # below the heading and its line


def names_in(file: Path) -> set[str]:
    """The tests of a file by the name that pytest gives them, without the file."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return names


def test_every_row_names_a_test_that_is_there() -> None:
    assert len(rows()) > 12
    for failure, happens, kept, test in rows():
        assert failure
        assert happens
        assert kept
        file, _, name = test.strip("`").partition("::")
        assert name.rpartition("::")[2].startswith("test_"), test
        assert name in names_in(ROOT / file), f"{failure}: there is no {test}"


def test_every_failure_that_was_asked_for_has_a_row() -> None:
    told = " ".join(failure for failure, *_ in rows())
    wanted = ("−9", "hangs", "exception", "link", "full", "read-only", "SIGTERM", "Ctrl-C", "parent", "port", "second")
    assert [word for word in (*wanted, "clock") if word not in told] == []
