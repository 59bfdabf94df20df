"""The user's own code as it is in this process: digests of its files, and the commits of their repositories."""

import ast
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from worldsize.factories import imported_modules, is_installed, loaded_modules
from worldsize.measure.machine import git
from worldsize.results.provenance import Repository, UserCode, UserFile


def user_code(references: Sequence[str]) -> UserCode | None:
    """The files behind those references that are a user's own, with their commits (method.md §11); None without any."""
    return _code(user_files(references))


def running_code(script: Path) -> UserCode | None:
    """The same of a program that runs: its script, what it has imported so far, and what is imported beside the script.

    Files elsewhere (PYTHONPATH, editable installs) are not searched for what they would import later: of a large
    package that takes long, and the program waits. None where nothing of it is a user's own.
    """
    script = script.resolve()
    root = _root_of_main(script)
    roots = dict(loaded_modules())
    if script.is_file() and not is_installed(script):
        roots[script] = root
    return _code(_with_imports(roots, below=root))


def scripts_code(roots: Mapping[Path, Path]) -> UserCode | None:
    """Scripts that will run, each with the folder that stands first where Python looks, and what they import.

    With their commits; None where there are no such files.
    """
    found: dict[tuple[str, str], UserFile] = {}
    for script, root in roots.items():
        if script.is_file():
            file = script.resolve()
            with _first_on_path(root):
                files = _with_imports({file: _root_of(file, root.resolve())})
            found |= {(each.name, each.path): each for each in files}
    return _code([found[key] for key in sorted(found)])


def module_files(modules: Mapping[str, str], source: Path, begun: Path) -> list[UserFile]:
    """Return the files of modules that another process has imported, by their names, with their digests.

    A file below `begun`, where the process began, counts as the one of `source` if that is another folder.
    """
    roots = {}
    for name, file in modules.items():
        path = Path(file)
        path = source / path.relative_to(begun) if path.is_relative_to(begun) else path
        up = name.count(".") + (path.stem == "__init__")
        if path.is_file() and not is_installed(path) and up < len(path.parents):
            roots[path] = path.parents[up]
    return _files(roots, _digest_now)  # as each launch finds them: this process outlives it


def changed_files(files: Iterable[UserFile]) -> list[str]:
    """Names of those that are where they were, and are not what they were."""
    return [file.name for file in files if _digest_now(Path(file.path)) not in (None, file.sha256)]


def user_files(references: Sequence[str]) -> list[UserFile]:
    """What was imported for those references in this process, and what these files import of the user's.

    The latter also where it is in a function that was not called yet.
    """
    return _with_imports(dict(imported_modules(references)))


def _code(files: list[UserFile]) -> UserCode | None:
    return UserCode(files=files, repositories=list(_repositories(files))) if files else None


def _root_of_main(script: Path) -> Path:
    """The folder that the imports of a script that runs are found from; `python -m a.b` runs it within its package."""
    main = sys.modules.get("__main__")
    package = getattr(main, "__package__", None)
    up = package.count(".") + 1 if package else 0
    is_main = Path(getattr(main, "__file__", None) or "").resolve() == script
    return script.parents[up] if is_main and up < len(script.parents) else script.parent


def _root_of(file: Path, root: Path) -> Path:
    """The folder that a script is found from: this one, or, of a module that lies elsewhere, that of its package."""
    if file.is_relative_to(root):
        return root
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


@contextmanager
def _first_on_path(root: Path) -> Iterator[None]:
    """Let Python look there first, as it does for a script, in place of where it does for a command."""
    first, sys.path[0] = sys.path[0], str(root)
    try:
        yield
    finally:
        sys.path[0] = first


def _with_imports(roots: dict[Path, Path], below: Path | None = None) -> list[UserFile]:
    """Files, each with the folder that it is found from, and what they import: from there, or from where Python looks.

    `below` limits the search for imports to this folder.
    """
    roots = dict(roots)
    waiting = [file for file in roots if file.suffix == ".py" and not is_installed(file) and _within(file, below)]
    while waiting:
        file = waiting.pop()
        for found, root in _imports(file, roots[file], everywhere=below is None):
            if found not in roots and _within(found, below):
                roots[found] = root
                waiting.append(found)
    return _files(roots)


def _files(roots: Mapping[Path, Path], digest_of: Callable[[Path], str | None] | None = None) -> list[UserFile]:
    """Files, each with the folder that it is found from, and their digests."""
    digest_of = digest_of or _digest
    files = [
        UserFile(name=file.relative_to(root).as_posix(), path=str(file), sha256=digest)
        for file, root in roots.items()
        if (digest := digest_of(file)) is not None
    ]
    return sorted(files, key=lambda file: (file.name, file.path))


def _within(file: Path, below: Path | None) -> bool:
    return below is None or file.is_relative_to(below)


@functools.cache
def _digest(file: Path) -> str | None:
    """Digest of a file as it was when this process asked first, which was soon after it had imported it."""
    return _digest_now(file)


def _digest_now(file: Path) -> str | None:
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return None  # removed since


def _imports(file: Path, root: Path, *, everywhere: bool) -> Iterator[tuple[Path, Path]]:
    """Files of the user's that a file imports, each with the folder that it is found from.

    From below `root`; what is not there is looked for elsewhere, too, where that is `everywhere`.
    """
    for level, names in _imported(file):
        if level:  # Python refuses one that leads above the top package
            found = _along(file.parents[min(level, len(file.parents)) - 1], names)
            yield from ((each, root) for each in found if each.is_relative_to(root))
            continue
        here = list(_along(root, names))
        yield from ((each, root) for each in here)
        if everywhere and not here and (other := _elsewhere(names[0])) is not None:
            yield from ((each, other) for each in _along(other, names))


def _imported(file: Path) -> Iterator[tuple[int, list[str]]]:
    """What a file imports anywhere in it, also in a function that was not called yet: number of dots, then names."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            yield from ((node.level, [*module, alias.name]) for alias in node.names)


def _along(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The files that importing `a.b.c` runs, as far as they are in this folder; in the order in which Python looks."""
    for part in parts:
        inner, file = folder / part, folder / f"{part}.py"
        if (inner / "__init__.py").is_file():
            yield inner / "__init__.py"
        elif file.is_file():
            yield file
            return
        elif not inner.is_dir():
            return
        folder = inner


def _elsewhere(name: str) -> Path | None:
    """The folder in which Python finds a module of the user's own; None of what is installed, or is not found."""
    if name in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(name)
    except Exception:  # who has put a finder of their own into Python may raise anything
        return None
    places = [] if spec is None else [*(spec.submodule_search_locations or [spec.origin or ""])]
    own = (Path(place) for place in places if Path(place).is_absolute() and not is_installed(Path(place)))
    return next((place.resolve().parent for place in own if place.exists()), None)


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
        # What is not tracked and not imported, such as run folders, says nothing of the code. None: git did not tell.
        changes = git(Path(tree), "status", "--porcelain", "--untracked-files=no")
        clean = changes == "" and len(tracked) >= len(paths)
        yield Repository(folder=tree, commit=commit if clean else f"{commit}+dirty")
