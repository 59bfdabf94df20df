"""What a user names by `package.module:name` or `file.py:name`: found, called, and its faults told in plain lines.

A leaf like config.py: the standard library and errors.py only.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from worldsize.errors import FactoryError

GRAMMAR = "package.module:name or file.py:name"
PREFIX = "worldsize_user_"
"""Before the name of a module that was loaded from a file."""
_NOT_THE_USERS = [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib")] + [
    Path(__file__).resolve().parent
]
MAIN = ("__main__", "__mp_main__")
"""What Python and multiprocessing call the main module; the second may be that of who has forked this process."""
_FOUND: dict[str, ModuleType] = {}
"""The module behind each reference that was resolved in this process."""
_BEFORE: list[frozenset[str]] = []
"""One entry: the modules that were imported before any reference was resolved."""


@dataclass(frozen=True)
class Factory:
    """A user's callable, with the reference that it was found by."""

    reference: str
    what: str
    """What it makes, for messages: `model`, `data set`."""
    function: Callable[..., Any]
    file: str | None
    """The file that defines it, where it has one."""

    def accepts(self, parameter: str) -> bool:
        """Whether the factory names such a parameter in its signature."""
        try:
            found = inspect.signature(self.function).parameters.get(parameter)
        except (TypeError, ValueError):  # some callables written in C tell no signature
            return False
        return found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)

    def __call__(self, **arguments: Any) -> Any:
        """Call it; an exception inside becomes a FactoryError that says what was raised, and where."""
        try:
            return self.function(**arguments)
        except Exception as error:
            raise raised(error, f"{self.what} factory {self.reference}", self.file) from error


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments; True where its signature is not known."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # some callables written in C tell no signature
        pass
    return True


def find_factory(reference: str, what: str) -> Factory:
    """Find the callable that a reference names; raise FactoryError if that fails or it cannot be called."""
    found = resolve(reference, what)
    if not callable(found):
        raise FactoryError(
            f"{what} factory {reference} is of type {type(found).__name__}; a function or a class is needed"
        )
    code = getattr(inspect.unwrap(found), "__code__", None)
    module = sys.modules.get(getattr(found, "__module__", None) or "")
    return Factory(reference, what, found, code.co_filename if code else getattr(module, "__file__", None))


def resolve(reference: str, what: str) -> Any:
    """Import what a reference names; `what` says what it is, for the message.

    A module is looked for where Python looks, then in the current folder. Raises FactoryError for a missing
    file, module or name, and for any exception of the user's code while it is imported.
    """
    place, name = split_reference(reference, what)
    if not _BEFORE:
        _BEFORE.append(frozenset(sys.modules))
    module = _load_file(Path(place), what) if place.endswith(".py") else _load_module(place, what)
    _FOUND[reference] = module
    try:
        return getattr(module, name)
    except AttributeError:
        own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise _no_such_name(place, name, own) from None


def imported_modules(references: Iterable[str]) -> Iterator[tuple[Path, Path]]:
    """The files that resolving references has imported in this process, each with the folder that it is found from.

    Python's own files, worldsize's and those of installed packages are not among them, but for the package that a
    reference itself names. Nothing where no reference was resolved.
    """
    found = [_FOUND[reference] for reference in references if reference in _FOUND]
    packages = {module.__name__.partition(".")[0] for module in found} - {__name__.partition(".")[0]}
    for name, module in list(sys.modules.items()) if found else []:
        if name.partition(".")[0] in packages or (name not in _BEFORE[0] and _is_users(name, module)):
            yield from _placed(name, module)


def loaded_modules() -> Iterator[tuple[Path, Path]]:
    """The same of all that this process has imported, but for the main module: of a program that others have begun."""
    for name, module in list(sys.modules.items()):
        if name not in MAIN and _is_users(name, module):
            yield from _placed(name, module)


def _is_users(name: str, module: ModuleType) -> bool:
    """Whether it is no part of an installed package, wherever that has put it: torch.compile writes modules."""
    files = (getattr(each, "__file__", None) for each in (module, sys.modules.get(name.partition(".")[0])))
    return not any(file and is_installed(Path(file)) for file in files)


def _placed(name: str, module: ModuleType) -> Iterator[tuple[Path, Path]]:
    """The file of a module, and the folder that it is found from; nothing of one that has no file."""
    file = getattr(module, "__file__", None)
    if file:
        path = Path(file).resolve()
        up = 0 if name.startswith(PREFIX) else name.count(".") + (path.stem == "__init__")
        if path.is_file() and up < len(path.parents):
            yield path, path.parents[up]


def is_installed(file: Path) -> bool:
    """Whether a file is Python's, worldsize's, or of an installed package: none that its user edits."""
    if not {"site-packages", "dist-packages"}.isdisjoint(file.parts):
        return True
    # Debian's sitecustomize.py is a link from Python's folder to elsewhere.
    return any(place.is_relative_to(folder) for place in (file, file.resolve()) for folder in _NOT_THE_USERS)


def split_reference(reference: str, what: str) -> tuple[str, str]:
    """Cut `place:name` into its two parts; raise FactoryError for anything else."""
    place, _, name = reference.rpartition(":")
    is_module = all(part.isidentifier() for part in place.split("."))
    if not name.isidentifier() or not (is_module or place.endswith(".py")):
        raise FactoryError(f"{what} {reference!r} was given; a factory of your own is named by {GRAMMAR}")
    return place, name


def raised(error: BaseException, doing: str, file: str | None) -> FactoryError:
    """The FactoryError for an exception out of the user's code: its type, first line, and place in `file`."""
    lines = str(error).strip().splitlines()
    if isinstance(error, SyntaxError):  # the line is told below, with the whole path
        lines = [error.msg]
    message = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    where = _line_in(error, file)
    return FactoryError(f"{doing} raised {message}" + (f" ({where})" if where else ""))


def _line_in(error: BaseException, file: str | None) -> str | None:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if file and frame.filename == file]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def _existing(path: Path, what: str) -> Path:
    if not path.is_file():
        raise FactoryError(f"no such {what} file: {path}; give the path of a Python file, as in {GRAMMAR}")
    return path


def _no_such_name(place: str, name: str, known: list[str]) -> FactoryError:
    return FactoryError(f"{place} defines no {name!r}; it defines: {', '.join(known) or 'nothing that can be called'}")


def _load_file(path: Path, what: str) -> ModuleType:
    file = _existing(path, what).resolve()
    # A name of its own: two files may have the same stem, and neither may hide an installed module.
    name = f"{PREFIX}{hashlib.sha256(str(file).encode()).hexdigest()[:12]}_{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _search_also(file.parent)
    sys.modules[name] = module  # dataclasses and loader processes look it up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise raised(error, f"importing {path}", str(file)) from error
    return module


def _load_module(name: str, what: str) -> ModuleType:
    spec = _find_spec(name, what)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise raised(error, f"importing {name}", spec.origin) from error


def _find_spec(name: str, what: str) -> ModuleSpec:
    """Find a module part by part; importlib.util.find_spec would run the packages on the way."""
    _search_also(Path.cwd())
    importlib.invalidate_caches()
    known = sys.modules.get(name)
    if known is not None and known.__spec__ is not None:
        return known.__spec__
    spec: ModuleSpec | None = None
    path: list[str] | None = None
    so_far = ""
    for part in name.split("."):
        so_far = f"{so_far}.{part}" if so_far else part
        found = (finder.find_spec(so_far, path) for finder in sys.meta_path)
        spec = next((each for each in found if each is not None), None)
        if spec is None:
            raise FactoryError(
                f"{what} module {name!r} was not found (no {so_far!r}); install it, start in the folder "
                "that holds it, or give file.py:name"
            )
        path = list(spec.submodule_search_locations or [])
    assert spec is not None
    return spec


def _search_also(folder: Path) -> None:
    """Let the user's modules import their neighbours; last in the search, so that nothing is hidden by them."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
