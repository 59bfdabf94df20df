"""A training script of the user's own, run as it is: how it is named, and what a study of it leaves no room for."""

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from pydantic import Field, SerializationInfo, field_serializer

from worldsize.config.base import Settings
from worldsize.config.redact import safe_command
from worldsize.config.workload import given
from worldsize.traits import TRAITS

ALLOWED = "a Python file and its arguments, such as 'train.py --lr 0.1', or '-m package.module …', is allowed"
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "srun", "uv")
PYTHON = re.compile(r"(?P<place>.*/)?python[0-9.]*")
"""The first word of a command line as people copy it; with its place it is that interpreter, and its environment."""
KEPT = frozenset(
    (
        *("script", "samples_per_step", "keep_outputs", "fail_above", "strategies", "world_sizes", "seed"),
        *("steps", "warmup_steps", "budget", "block_steps", "target_interval", "allow_oversubscribed"),
        *("backend", "threads_per_worker", "hosts", "link", "link_latency", "slow_link"),
        *("hang_timeout", "log"),
    )
)
"""Settings that mean the same for any work; all others are those of a training of worldsize's own."""


TO_RUN = {"secrets": True}
"""Context of a dump that is not kept."""


class ScriptSettings(Settings):
    """A script as one cell runs it."""

    words: tuple[str, ...] = Field(min_length=1)
    """What stands behind `python`."""
    python: str | None = None
    """The interpreter that runs it, by its path; None is the one that runs worldsize."""
    samples_per_step: int | None = Field(default=None, ge=1)
    """Samples of a process in a step of the optimizer; None counts them."""
    keep_outputs: bool = False
    """Whether what it writes in its working folder is kept."""

    @field_serializer("words")
    def _without_secrets(self, words: tuple[str, ...], info: SerializationInfo) -> tuple[str, ...]:
        """What is kept; only the worker that runs it is told all (`TO_RUN`)."""
        return words if info.context == TO_RUN else safe_command(words)

    @property
    def name(self) -> str:
        """The file, or the module, without its arguments."""
        return self.words[1] if self.words[0] == "-m" else self.words[0]

    @property
    def text(self) -> str:
        """As it is typed."""
        return shlex.join(safe_command(self.words))


def script_of(text: str) -> ScriptSettings:
    """A command line, with or without `python` before it; raise ValueError for what runs no Python file or module."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise ValueError(f"script: {text!r} was given, with a quotation that does not end; {ALLOWED}") from None
    interpreter = PYTHON.fullmatch(words[0]) if words else None
    words = words[1:] if interpreter else words
    words = words[1:] if words[:1] == ["-u"] else words  # its output goes to a file, line by line
    module = len(words) > 1 and words[0] == "-m" and not words[1].startswith("-")
    if words and words[0] in LAUNCHERS:
        raise ValueError(f"script: {text!r} was given; worldsize starts the workers itself: leave {words[0]} out")
    if not words or (words[0].startswith("-") and not module):
        raise ValueError(f"script: {text!r} was given; {ALLOWED}")
    python = interpreter[0] if interpreter and interpreter["place"] else None
    return ScriptSettings(words=tuple(words), python=python)


def script_names(scripts: Sequence[str]) -> list[str]:
    """What their cells are called: the name of the file or module, with a number where another has the same.

    Raises ValueError for a script that cannot be read.
    """
    names: list[str] = []
    for script in scripts:
        words = script_of(script).words
        plain = words[1].rpartition(".")[2] if words[0] == "-m" else PurePath(words[0]).stem
        name = re.sub(r"[^A-Za-z0-9]+", "-", plain).strip("-") or "script"
        name = re.sub(r"-(?=[wb][0-9])", "", name)  # train-w2 would be a cell
        if name in TRAITS:  # a script of this name need not synchronise so
            name = f"{name}-script"
        taken = sum(other == name or other.startswith(f"{name}-run") for other in names)
        names.append(f"{name}-run{taken + 1}" if taken else name)
    return names


def refuse_beside_script(settings: Any) -> None:
    """Raise ValueError for settings that mean nothing beside `settings.script`, or need one."""
    fields = tuple(type(settings).model_fields)
    if not settings.script:
        lonely = given(settings, ("samples_per_step", "keep_outputs"))
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
