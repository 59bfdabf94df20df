"""A look before the start of a study of commands: whether their scripts are there, and their code; the devices.

Answers as training/probe.py does for a training of worldsize's own.
"""

import importlib.util
import shutil
import sys
from pathlib import Path

import torch

from worldsize.config import Room, StudySettings, chosen_world_sizes
from worldsize.config.script import PYTHON_ALONE, TUNED, Script, script_of
from worldsize.errors import UsageError
from worldsize.measure.user_code import scripts_code
from worldsize.results.records import Findings
from worldsize.training.probe import answer
from worldsize.traits import TraitsRecord

UNTIL_IT_RUNS = TraitsRecord(collectives=("all-reduce",))
"""How a command synchronises shows when it runs; this is what nearly all do."""


def look(settings: StudySettings, room: Room) -> Findings:
    """Find out what can be known of commands that have not run; raise UsageError for one that is not there."""
    files = dict(found for text in settings.script if (found := source_of(script_of(text))))
    gpus = tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    sizes = chosen_world_sizes(settings, room, len(gpus))
    names = [f"{name}{kind}" for name in settings.strategies for kind in ("", PYTHON_ALONE, TUNED)]
    return Findings(
        data=None,
        model=None,
        gpus=gpus,
        world_sizes=sizes,
        processes={f"{name}@{size}": size for name in names for size in {1, *sizes}},
        own_traits=dict.fromkeys(names, UNTIL_IT_RUNS),
        user_code=scripts_code(files),
    )


def source_of(script: Script) -> tuple[Path, Path] | None:
    """Return the file that a command runs, and the folder that its imports are found from: `sys.path[0]` of `python`.

    None where a launcher's command names no such file. Raises UsageError where there is none of this name.
    """
    name = script.file
    program = script.words[0] if script.typed else script.python
    if program and shutil.which(program) is None and not (Path(sys.executable).parent / program).is_file():
        raise UsageError(f"{program!r} was given; there is no such program on the PATH")
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise UsageError(
                f"script {name!r} was given; there is no such file in {Path.cwd()}\n"
                "A path with spaces needs quotation marks of its own within those of --script."
            )
        return Path(name).resolve(), Path(name).resolve().parent
    if name == script.words[0]:
        if script.typed:
            return None
        raise UsageError(f"script {name!r} was given; it is no Python file: such as train.py, or -m package.module")
    return _module(name, sure=not script.typed and script.python is None)


def _module(name: str, *, sure: bool) -> tuple[Path, Path] | None:
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path.pop(0)
    if spec is None or spec.origin is None:
        if not sure:  # in the environment of the command it may be there
            return None
        raise UsageError(f"script '-m {name}' was given; no such module is found from {Path.cwd()}")
    return Path(spec.origin).resolve(), Path.cwd()


def main() -> int:
    """Answer for commands."""
    return answer(look)
