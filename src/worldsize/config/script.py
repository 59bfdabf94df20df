"""A person's own command: how it is named, which commands a study runs of it, and what it leaves no room for."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from pydantic import Field, SerializationInfo, field_serializer

from worldsize.config.base import Settings
from worldsize.config.redact import safe_command
from worldsize.config.workload import given
from worldsize.traits import TRAITS

WORKERS = "{n}"
"""Stands in a command for the number of workers."""
ALLOWED = (
    "a Python file and its arguments, such as 'train.py --lr 0.1', '-m package.module …', or a launcher's command line "
    f"with {WORKERS} for the number of workers is allowed"
)
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "uv")
PYTHON = re.compile(r"(?P<place>.*/)?python[0-9.]*")
"""The first word of a command line as people copy it; with its place it is that interpreter, and its environment."""
PYTHON_ALONE = "-python"
"""Ends the name of a script's cell that is one process with all cores, as `python` starts it (method.md §6)."""
TUNED = "-tuned"
"""Ends the name of the cells that run with variables of ours."""
THREADS = "OMP_NUM_THREADS"
KEPT = frozenset(
    (
        *("script", "samples_per_step", "keep_outputs", "in_place", "one_at_a_time", "tuned", "fail_above"),
        *("strategies", "world_sizes", "seed"),
        *("steps", "warmup_steps", "budget", "block_steps", "target_interval", "allow_oversubscribed"),
        *("hosts", "link", "link_latency", "slow_link"),
        *("hang_timeout", "log"),
    )
)
"""Settings that mean the same for any work; all others are those of a training of worldsize's own."""


TO_RUN = {"secrets": True}
"""Context of a dump that is not kept."""


class CommandSettings(Settings):
    """A command as one cell runs it."""

    words: tuple[str, ...] = Field(min_length=1)
    """As the system starts it."""
    shown: str
    """As a person types it."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables that it has beside those of the shell."""
    samples_per_step: int | None = Field(default=None, ge=1)
    """Samples of a process in a step of the optimizer; None counts them."""
    keep_outputs: bool = False
    """Whether what it writes is kept."""
    in_place: bool = False
    """Whether it writes where it would by itself."""
    one_at_a_time: bool = False
    """Whether no other cell of its study is there while it runs."""
    alone: bool = False
    """Whether it is one process with all cores, as `python` starts it, beside others that a launcher starts."""

    def of_host(self, host: int, hosts: int, first: str, workers: int = 1) -> list[str]:
        """Return the words that start the workers of one of several hosts, which meet on the first one.

        Raises ValueError for a command that is run as it was typed.
        """
        if "--standalone" not in self.words:
            raise ValueError(f"{self.shown!r} was given, and several hosts: only a script, such as train.py, is run so")
        standalone = self.words.index("--standalone")
        meet = ("--nnodes", str(hosts), "--node-rank", str(host), "--master-addr", first)
        return [*self.words[:standalone], *meet, "--nproc-per-node", str(workers), *self.words[standalone + 3 :]]

    @field_serializer("words")
    def _without_secrets(self, words: tuple[str, ...], info: SerializationInfo) -> tuple[str, ...]:
        """What is kept; only what runs it is told all (`TO_RUN`)."""
        return words if info.context == TO_RUN else safe_command(words)

    @property
    def text(self) -> str:
        """As it is typed, its variables before it."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return " ".join([*variables, self.shown])


class Script(Settings):
    """What was given of a person's own: a script, which worldsize starts as torchrun does, or a launcher's command."""

    words: tuple[str, ...]
    """Behind `python`, or the whole command line with WORKERS in it."""
    python: str | None = None
    """The interpreter that runs it, by its path; None is the one that runs worldsize."""
    typed: bool = False
    """Whether it is run as it was typed."""

    @property
    def file(self) -> str:
        """The Python file or module that it runs, as far as that can be told; else its first word."""
        words = self.words
        for before, word in zip(("", *words), words, strict=False):
            if before == "-m" or (word.endswith(".py") and not word.startswith("-")):
                return word
        return words[0]

    def command(self, workers: int, environment: dict[str, str]) -> CommandSettings:
        """Return the command that starts this many workers."""
        if self.typed:
            words = [word.replace(WORKERS, str(workers)) for word in self.words]
            return CommandSettings(words=(_found(words[0]), *words[1:]), shown=_shown(words), environment=environment)
        launcher = ("--standalone", "--nproc-per-node", str(workers))
        words = [*(["torch.distributed.run"]), *launcher, *self.words]
        shown = _shown(["torchrun", *launcher, *self.words])
        return CommandSettings(words=(self._python, "-m", *words), shown=shown, environment=environment)

    @property
    def by_itself(self) -> CommandSettings:
        """Return the command that starts one process with all cores."""
        shown = _shown([self.python or "python", *self.words])
        return CommandSettings(words=(self._python, *self.words), shown=shown, alone=True)

    @property
    def _python(self) -> str:
        return self.python or sys.executable


def _shown(words: Sequence[str]) -> str:
    return shlex.join(safe_command(tuple(words)))


def _found(program: str) -> str:
    """A program by its path: of the shell's, else of the environment that runs worldsize."""
    beside = Path(sys.executable).parent / program
    return shutil.which(program) or (str(beside) if beside.is_file() else program)


def script_of(text: str) -> Script:
    """Read a command line; raise ValueError for what runs nothing, and for a launcher that is not told N."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise ValueError(f"script: {text!r} was given, with a quotation that does not end; {ALLOWED}") from None
    launcher = bool(words) and PurePath(words[0]).name in LAUNCHERS
    if launcher or any(WORKERS in word for word in words):
        if not any(WORKERS in word for word in words):
            raise ValueError(
                f"script: {text!r} was given; put {WORKERS} where {words[0]} is told the number of workers, such as "
                f"--nproc-per-node {WORKERS}"
            )
        return Script(words=tuple(words), typed=True)
    interpreter = PYTHON.fullmatch(words[0]) if words else None
    words = words[1:] if interpreter else words
    words = words[1:] if words[:1] == ["-u"] else words
    module = len(words) > 1 and words[0] == "-m" and not words[1].startswith("-")
    if not words or (words[0].startswith("-") and not module):
        raise ValueError(f"script: {text!r} was given; {ALLOWED}")
    python = interpreter[0] if interpreter and interpreter["place"] else None
    return Script(words=tuple(words), python=python)


def threads_of_torchrun(largest: int) -> dict[str, str]:
    """Return what torchrun gives each of several workers, for one worker to compare with: it sets no more for one."""
    return {} if largest == 1 or THREADS in os.environ else {THREADS: "1"}


def script_names(scripts: Sequence[str]) -> list[str]:
    """What their cells are called: the name of the file or module, with a number where another has the same.

    Raises ValueError for a script that cannot be read.
    """
    names: list[str] = []
    for script in scripts:
        file = script_of(script).file
        plain = PurePath(file).stem if file.endswith(".py") else PurePath(file).name.rpartition(".")[2]
        name = re.sub(r"[^A-Za-z0-9]+", "-", plain).strip("-") or "script"
        name = re.sub(r"-(?=[wb][0-9])", "", name)  # train-w2 would be a cell
        if name in TRAITS or name.endswith((PYTHON_ALONE, TUNED)):  # a script of this name need not synchronise so
            name = f"{name}-script"
        taken = sum(other == name or other.startswith(f"{name}-run") for other in names)
        names.append(f"{name}-run{taken + 1}" if taken else name)
    return names


def refuse_beside_script(settings: Any) -> None:
    """Raise ValueError for settings that mean nothing beside `settings.script`, or need one."""
    fields = tuple(type(settings).model_fields)
    if not settings.script:
        lonely = given(settings, ("samples_per_step", "keep_outputs", "in_place", "one_at_a_time", "tuned"))
        if lonely:
            raise ValueError(f"{', '.join(lonely)} belongs to a script: give script as well")
    if settings.fail_above is not None and settings.fail_above >= 1:
        raise ValueError(
            f"fail_above is {100 * settings.fail_above:g}%: a share below 1 is allowed, such as 5% or 0.05"
        )
    if settings.fail_above is not None and len(settings.script) < 2:
        raise ValueError(
            "fail_above compares scripts: give script twice, the old one first (for runs there is worldsize compare)"
        )
    if not settings.script:
        return
    others = given(settings, tuple(name for name in fields if name not in KEPT))
    if others:
        raise ValueError(
            f"a script brings its own model, data, recipe and batches, and its steps are timed: "
            f"leave out {', '.join(others)}"
        )
