"""A look before the start of a study of scripts: whether they are there, the digests of their code, the devices.

Answers as training/probe.py does for a training of worldsize's own.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import torch

from worldsize.config import Room, StudySettings, chosen_world_sizes
from worldsize.config.script import script_of
from worldsize.errors import UsageError
from worldsize.launch.child import environment_of
from worldsize.measure.user_code import scripts_code
from worldsize.results.records import Findings
from worldsize.training.probe import answer
from worldsize.traits import TraitsRecord

UNTIL_IT_RUNS = TraitsRecord(collectives=("all-reduce",))
"""How a script synchronises shows when it runs; this is what nearly all do."""


def look(settings: StudySettings, room: Room) -> Findings:
    """Find out what can be known of scripts that have not run; raises UsageError for one that is not there."""
    programs = [script_of(text) for text in settings.script]
    files = dict(source_of(program.words) for program in programs)
    for python in {program.python for program in programs} - {None}:
        check_interpreter(str(python))
    gpus = tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    sizes = chosen_world_sizes(settings, room, len(gpus))
    return Findings(
        data=None,
        model=None,
        gpus=gpus,
        world_sizes=sizes,
        processes={f"{name}@{size}": size for name in settings.strategies for size in sizes},
        own_traits=dict.fromkeys(settings.strategies, UNTIL_IT_RUNS),
        user_code=scripts_code(files),
    )


def source_of(words: tuple[str, ...]) -> tuple[Path, Path]:
    """The file that these words run, and the folder that its imports are found from: `sys.path[0]` of `python`.

    Raises UsageError where there is none.
    """
    if words[0] != "-m":
        if not Path(words[0]).is_file():
            raise UsageError(
                f"script {words[0]!r} was given; there is no such file in {Path.cwd()}\n"
                "A path with spaces needs quotation marks of its own within those of --script."
            )
        return Path(words[0]).resolve(), Path(words[0]).resolve().parent
    sys.path.insert(0, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(words[1])
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{words[1]}.__main__")
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path.pop(0)
    if spec is None or spec.origin is None:
        raise UsageError(f"script '-m {words[1]}' was given; no such module is found from {Path.cwd()}")
    return Path(spec.origin).resolve(), Path.cwd()


def check_interpreter(python: str) -> None:
    """Raise UsageError for an interpreter that cannot run a worker: one without torch, or without what it needs."""
    command = (python, "-c", "import torch, worldsize.scripts.rank")
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment_of(python))
    except OSError as error:
        raise UsageError(f"interpreter {python!r} was given; it cannot be started: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise UsageError(
            f"interpreter {python!r} was given; it cannot run a worker: {said}\nInstall worldsize into its environment."
        )


def main() -> int:
    """Answer for scripts."""
    return answer(look)
