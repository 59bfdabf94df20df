"""The hook runs in somebody else's Python: with what that has, and with nothing of worldsize."""

import __future__

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import worldsize.hook

FOLDER = Path(worldsize.hook.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
OLDEST = (3, 9)
"""The oldest Python that it must run in, as a person may have it beside torch."""


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"), feature_version=OLDEST)


def imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """What a file imports, each with how many folders up it looks."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, 0) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_imports_torch_its_neighbours_and_the_standard_library(file: Path) -> None:
    assert len(FILES) > 10
    allowed = {*sys.stdlib_module_names, "torch"}
    for name, level in imports(parsed(file)):
        if level:
            assert level == 1
            assert (FOLDER / f"{name.partition('.')[0]}.py").is_file()
        else:
            assert name.partition(".")[0] in allowed


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_older_python_can_read_it(file: Path) -> None:
    """Names of types that only newer ones can make are never made: annotations stay as they are written."""
    source, tree = file.read_text("utf-8"), parsed(file)
    compile(source, str(file), "exec", flags=__future__.annotations.compiler_flag)
    written = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.module == "__future__"]
    unions = [each for each in ast.walk(tree) if isinstance(each, ast.BinOp) and _of_types(each)]
    made = unions if not written else [each for each in unions if not _annotates(tree, each)]
    assert not made, f"{file.name}:{made[0].lineno}"


def _of_types(node: ast.BinOp) -> bool:
    """Whether it is a union of types, as far as its names tell."""
    sides = (node.left, node.right)
    none = any(isinstance(side, ast.Constant) and side.value is None for side in sides)
    kinds = {"list", "tuple", "dict", "int", "str", "float"}
    return isinstance(node.op, ast.BitOr) and (
        none or any(isinstance(side, ast.Name) and side.id in kinds for side in sides)
    )


def _annotates(tree: ast.Module, union: ast.AST) -> bool:
    annotations = [
        annotation
        for node in ast.walk(tree)
        for name in ("annotation", "returns")
        if (annotation := getattr(node, name, None)) is not None
    ]
    return any(union in ast.walk(each) for each in annotations)
