"""The user's own code as it is in this process: digests of its files, and the commits of their repositories."""

import ast
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from worldsize.factories import imported_modules, is_installed
from worldsize.measure.machine import git
from worldsize.results.provenance import Repository, UserCode, UserFile


def user_code(references: Sequence[str]) -> UserCode | None:
    """The files behind those references that are a user's own, with their commits (method.md §11); None without any."""
    files = user_files(references)
    return UserCode(files=files, repositories=list(_repositories(files))) if files else None


def script_code(script: Path) -> UserCode | None:
    """A script that runs, and what it imports from beside it, with their commits; None where there is no such file."""
    return scripts_code({script: script.parent})


def scripts_code(roots: Mapping[Path, Path]) -> UserCode | None:
    """The same for several, each with the folder that its imports are found from."""
    found = {file.resolve(): root.resolve() for file, root in roots.items() if file.is_file()}
    files = _with_imports(found)
    return UserCode(files=files, repositories=list(_repositories(files))) if files else None


def user_files(references: Sequence[str]) -> list[UserFile]:
    """What was imported for those references in this process, and what these files import from beside them.

    The latter also where it is in a function that was not called yet.
    """
    return _with_imports(dict(imported_modules(references)))


def _with_imports(roots: dict[Path, Path]) -> list[UserFile]:
    """Files, each with the folder that it is found from, and what they import from there."""
    waiting = [file for file, root in roots.items() if file.suffix == ".py" and not is_installed(file)]
    while waiting:
        file = waiting.pop()
        for found in _imports(file, roots[file]):
            if found not in roots:
                roots[found] = roots[file]
                waiting.append(found)
    files = [
        UserFile(name=file.relative_to(root).as_posix(), path=str(file), sha256=digest)
        for file, root in roots.items()
        if (digest := _digest(file)) is not None
    ]
    return sorted(files, key=lambda file: (file.name, file.path))


@functools.cache
def _digest(file: Path) -> str | None:
    """Digest of a file as it was when this process asked first, which was soon after it had imported it."""
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return None  # removed since


def _imports(file: Path, root: Path) -> Iterator[Path]:
    """Files below `root` that a file imports anywhere in it, also in a function that was not called yet."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _along(root, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            start = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else root
            module = node.module.split(".") if node.module else []
            for alias in node.names:
                yield from _along(start, [*module, alias.name])


def _along(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The files that importing `a.b.c` runs, as far as they are in this folder."""
    for part in parts:
        inner = folder / part
        if (inner / "__init__.py").is_file():
            yield inner / "__init__.py"
        elif not inner.is_dir():
            file = folder / f"{part}.py"
            if file.is_file():
                yield file
            return
        folder = inner


def _repositories(files: Sequence[UserFile]) -> Iterator[Repository]:
    trees: dict[str, list[str]] = {}
    tree_of: dict[Path, str | None] = {}
    for file in files:
        folder = Path(file.path).parent
        if folder not in tree_of:
            tree_of[folder] = git(folder, "rev-parse", "--show-toplevel")
        tree = tree_of[folder]
        if tree is not None:
            trees.setdefault(tree, []).append(file.path)
    for tree, paths in trees.items():
        tracked = [name for name in (git(Path(tree), "ls-files", "-z", "--", *paths) or "").split("\0") if name]
        commit = git(Path(tree), "rev-parse", "HEAD")
        if not tracked or commit is None:
            continue  # they only lie in it
        # What is not tracked and not imported, such as run folders, says nothing of the code.
        changed = git(Path(tree), "status", "--porcelain", "--untracked-files=no") or len(tracked) < len(paths)
        yield Repository(folder=tree, commit=f"{commit}+dirty" if changed else commit)
