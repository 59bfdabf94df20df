"""What the shell offers at the tab key. It must come at once, so nothing heavy is imported: no torch, no settings.

Each function takes what was typed so far and returns words; where it returns none, the shell offers files.
"""

import ast
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import typer

import worldsize

PACKAGE = Path(worldsize.__file__).parent
REGISTRIES = {
    "strategies": ("strategies", "STRATEGIES"),
    "models": ("models", "MODELS"),
    "data sets": ("data", "DATA_SETS"),
}
"""What is registered → its package, and the literal dict there."""
RUNS = Path("runs")
MAX_LOOKED_AT = 500
"""Entries of a folder that are looked at; a home on a slow disk must not stop the shell."""

Completion = Callable[[str], list[str]]


def registered(what: str) -> tuple[str, ...]:
    """The names in a registry, read from its source: importing it would import torch."""
    package, name = REGISTRIES[what]
    source = (PACKAGE / package / "__init__.py").read_text(encoding="utf-8")
    for statement in ast.parse(source).body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.Dict(keys=keys)) if found == name:
                return tuple(str(key.value) for key in keys if isinstance(key, ast.Constant))
    raise AssertionError(f"{package}/__init__.py has no literal dict {name}")


def presets() -> tuple[str, ...]:
    """Names of the presets."""
    return tuple(sorted(path.stem for path in (PACKAGE / "presets").glob("*.toml")))


def one_of(names: Callable[[], Iterable[str]]) -> Completion:
    """One of some names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def some_of(names: Callable[[], Iterable[str]]) -> Completion:
    """Some of the names, separated by commas: the last one is completed, and none is offered twice."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = before.split(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last) and name not in taken]

    return complete


strategy = one_of(lambda: registered("strategies"))
strategies = some_of(lambda: registered("strategies"))
model = one_of(lambda: (*registered("models"), "torchvision:"))
data = one_of(lambda: registered("data sets"))


def _collectives() -> tuple[str, ...]:
    from worldsize.traits import COLLECTIVES

    return COLLECTIVES


OF_FLAGS: dict[str, Completion] = {
    "strategy": strategy,
    "strategies": strategies,
    "model": model,
    "data": data,
    "collectives": some_of(_collectives),
}
"""Flags whose allowed values stand in no type of the settings."""


def study(incomplete: str) -> list[str]:
    """A preset, or a TOML file of this folder."""
    names = (*presets(), *sorted(path.name for path in Path().glob("*.toml")))
    return [name for name in names if name.startswith(incomplete)]


def run_folder(incomplete: str) -> list[str]:
    """A run folder: in the folder that was typed, in this one, or in runs/."""
    places = [Path(incomplete or ".") if incomplete.endswith("/") or not incomplete else Path(incomplete).parent]
    if "/" not in incomplete:
        places.append(RUNS)
    found = (str(path) for place in places for path in _runs_in(place))
    return [name for name in found if name.startswith(incomplete)]


def run_or_baseline(incomplete: str) -> list[str]:
    """What can be compared: a run folder, or a JSON file of this folder."""
    files = [path.name for path in sorted(Path().glob("*.json")) if path.name.startswith(incomplete)]
    return [*run_folder(incomplete), *files]


def runs_or_baselines(incomplete: str) -> list[str]:
    """Some of them, separated by commas: the last one is completed, and none is offered twice."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{name}" for name in run_or_baseline(last) if name not in taken]


def out(ctx: typer.Context, incomplete: str) -> list[str]:
    """A run folder where one is to be gone on with; a new one has no name yet."""
    words = os.environ.get("COMP_WORDS", "").split()  # bash gives what stands after the cursor, too
    return run_folder(incomplete) if ctx.params.get("resume") or "--resume" in words else []


def _runs_in(place: Path) -> Iterator[Path]:
    try:
        entries = [entry for entry, _ in zip(place.iterdir(), range(MAX_LOOKED_AT), strict=False)]
    except OSError:
        return
    yield from (entry for entry in sorted(entries) if (entry / "study.json").is_file())
