"""The fields of the settings as they are written: their types and docstrings, read from the source of config/.

Importing config/ takes 120 ms, half of it pydantic; parsing its source takes 6 ms. So `worldsize --help` and the tab
key load no settings. Defaults and bounds are read from the settings themselves, when the help of a command is asked
for.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from worldsize.cli.complete import PACKAGE


@dataclass(frozen=True)
class Field:
    """A field of the settings."""

    kind: str
    """Name of its type, without None; of a tuple that of its entries; `str` where several types are allowed."""
    several: bool
    """Whether it is a tuple."""
    words: tuple[str, ...]
    """All that it may be, if it is a Literal."""
    help: str
    """The first sentence of its docstring, or of that of the field which it overrides; empty if there is none."""


@cache
def fields(settings: str) -> dict[str, Field]:
    """The fields of a class of config/ by name, those of its bases first."""
    found: dict[str, Field] = {}
    source = _classes()[settings]
    for base in source.bases:
        if isinstance(base, ast.Name) and base.id in _classes():
            found |= fields(base.id)
    for name, annotation, docstring in _annotated(source):
        said = first_sentence(docstring) if docstring or name not in found else found[name].help
        found[name] = Field(*_type(annotation), said)
    return found


def first_sentence(docstring: str) -> str:
    """The first sentence, in one line."""
    before, end, _ = " ".join(docstring.split()).partition(". ")
    return before + end.strip()


def _annotated(source: ast.ClassDef) -> Iterator[tuple[str, ast.expr, str]]:
    """Name, type and docstring, which may be empty, of each field in the body of a class."""
    for statement, after in pairwise([*source.body, ast.Pass()]):
        match statement, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                yield name, statement.annotation, docstring
            case ast.AnnAssign(target=ast.Name(id=name)), _:
                yield name, statement.annotation, ""


def _type(annotation: ast.expr) -> tuple[str, bool, tuple[str, ...]]:
    """Kind, whether it is a tuple, and words."""
    match [part for part in _alternatives(annotation) if not (isinstance(part, ast.Constant) and part.value is None)]:
        case [ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[entry, _]))]:
            kind, _, words = _type(entry)
            return kind, True, words
        case [ast.Name(id=name)]:
            return name, False, _literals().get(name, ())
        case [single]:
            return "str", False, _words(single)
    return "str", False, ()


def _alternatives(annotation: ast.expr) -> Iterator[ast.expr]:
    if isinstance(annotation, ast.BinOp):
        yield from _alternatives(annotation.left)
        yield from _alternatives(annotation.right)
    else:
        yield annotation


def _words(annotation: ast.expr) -> tuple[str, ...]:
    match annotation:
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=words)):
            return tuple(str(word.value) for word in words if isinstance(word, ast.Constant))
    return ()


@cache
def _source() -> tuple[ast.stmt, ...]:
    """The statements of the modules of config/ that hold settings; the others would take half as long again."""
    files = [file.read_text(encoding="utf-8") for file in sorted((PACKAGE / "config").glob("*.py"))]
    return tuple(each for text in files if "Settings):\n" in text for each in ast.parse(text).body)


@cache
def _classes() -> dict[str, ast.ClassDef]:
    return {each.name: each for each in _source() if isinstance(each, ast.ClassDef)}


@cache
def _literals() -> dict[str, tuple[str, ...]]:
    """Names of Literals, such as Precision, and their words."""
    found = {}
    for statement in _source():
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if words := _words(value):
                found[name] = words
    return found
