"""The exact command that tries an advice: the settings of the study, with a change, as flags that can be pasted.

Settings that differ from the command's own defaults become flags, and those that are changed, so that the change is
seen. What no trial needs is left out: copies of the history, checkpoints, the folder of the run. On the nodes on which
the study ran, the flags of the launch that was typed come with it.
"""

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.collective_cost import least_s, roomy_budget
from worldsize.config import (
    DEFAULT_BUDGET,
    CommSettings,
    LaunchSettings,
    StudySettings,
    preset_names,
    read_study,
    validated,
)
from worldsize.config.base import Settings
from worldsize.config.network import DEFAULT_BUDGET_S
from worldsize.traits import BASELINE_STRATEGY

WHAT = ("model", "data", "workload", "data_dir", "train_samples", "test_samples")
WHERE = ("hosts", "link", "link_latency", "slow_link", "backend", "threads_per_worker", "memory_limit")
INPUT = ("loader", "loader_workers")
PROTOCOL = ("epochs", "steps", "budget", "warmup_steps", "block_steps", "target_interval", "evaluate", "profile")
RECIPE = (
    "precision",
    "compile",
    "seed",
    "optimizer",
    "learning_rate",
    "lr_scaling",
    "base_batch",
    "lr_warmup_epochs",
    "lr_schedule",
    "label_smoothing",
    "momentum",
    *("nesterov", "weight_decay", "clip_norm", "leave_out"),
)
_SENT = "powersgd_rank powersgd_start_step accumulate sync_every sync_warmup_steps outer_learning_rate outer_momentum"
HOW = tuple(_SENT.split())
"""What a strategy sends, and how often."""
STUDY_FLAGS = (
    *WHAT,
    *("strategies", "world_sizes", "batch_sizes", "global_batch", "baseline", "bucket_mb", "find_unused_parameters"),
    *HOW,
    *WHERE,
    *INPUT,
    *PROTOCOL,
    "allow_oversubscribed",
    *RECIPE,
)
"""Settings of a grid that `worldsize study` takes as flags, in the order in which they are written; those of the
further parts of an experiment are no trial's business."""
FURTHER = ("seeds",)
"""Those of further parts that a command has where it asks for them."""
TRAIN_FLAGS = (
    *WHAT,
    "bucket_mb",
    "find_unused_parameters",
    *HOW,
    *WHERE,
    *INPUT,
    *(name for name in PROTOCOL if name not in ("budget", "warmup_steps", "block_steps", "target_interval")),
    *RECIPE,
)
SWEEP_FLAGS = (
    *("model", "data", "data_dir", "train_samples"),
    *("growth", "largest_batch", "resolution", "find_unused_parameters", "accumulate"),
    *(name for name in WHERE if name != "slow_link"),
    *("loader", "epochs", "steps", "precision", "compile", "seed"),
)
COMM_FLAGS = ("world_size", "hosts", "link", "link_latency", "slow_link", "backend", "threads_per_worker", "budget")

SCRIPT_FLAGS = (
    *("script", "samples_per_step", "in_place", "tuned", "one_at_a_time", "world_sizes"),
    *(name for name in WHERE if name not in ("memory_limit", "threads_per_worker")),
    *("steps", "budget", "warmup_steps", "block_steps", "target_interval", "allow_oversubscribed"),
)
"""Those of a study of scripts: all else is the script's own business."""

EXACT = 2**53
"""Integers below it are floats exactly."""

COUNTERPARTS = {
    "steps": "epochs",
    "epochs": "steps",
    "budget": "steps",
    "batch_sizes": "global_batch",
    "global_batch": "batch_sizes",
}
"""Giving one of the two unsets the other one of a preset."""
HAVE_LAUNCHERS = ("study", "train")
"""The commands that run on the nodes of a cluster; the others run on this machine alone."""
NEVER = ("print_script",)
BY_HAND = "--master-ip"
"""With which a study is started by hand on each node."""


def study_command(settings: StudySettings, **changes: Any) -> str | None:
    """`worldsize study` with the settings of a study and some changes; by the name of its experiment if it has one.

    With a strategy that the experiment does not have it is no longer that experiment, and is not called so. Cells that
    were named one by one become the grid that they span. None where no flag can say it: a comma ends an entry.
    """
    if settings.script:
        within = {name: value for name, value in changes.items() if name in SCRIPT_FLAGS}
        wanted = settings.model_copy(update=within)
        return _line("study", *_flags(wanted, StudySettings(budget=DEFAULT_BUDGET), SCRIPT_FLAGS, within))
    wanted = settings.model_copy(update={"cells": (), **changes})
    names = (*STUDY_FLAGS, *(name for name in FURTHER if name in changes))
    preset = _preset(settings)
    usual = StudySettings(budget=DEFAULT_BUDGET)
    base = validated(StudySettings, read_study(preset)) if preset else usual
    another = not set(wanted.strategies) <= set(settings.strategies)  # whose report would not be that experiment's
    if preset and (another or not all(_sayable(name, wanted, base) for name in names)):
        preset, base = "", usual
    if any("," in strategy for strategy in wanted.strategies):
        return None
    return _line("study", preset, *_flags(wanted, base, names, changes))


def focused(settings: StudySettings, cell: CellAnalysis, *strategies: str, **changes: Any) -> str | None:
    """A study of one cell and of what it is compared with: one worker, and the strategies that are named.

    All of them by the recipe of the cell. None where no flag can say it.
    """
    if settings.script:
        return None
    baseline = (BASELINE_STRATEGY,) if BASELINE_STRATEGY in settings.strategies else ()
    batch = {"global_batch": cell.global_batch} if settings.global_batch else {"batch_sizes": (cell.batch_size,)}
    only = {
        "strategies": tuple(dict.fromkeys((*baseline, *(strategies or (cell.strategy,))))),
        "world_sizes": tuple(dict.fromkeys((1, cell.world_size))) if baseline else (cell.world_size,),
        **batch,
    }
    return study_command(_with_recipe(settings, cell), **{**only, **changes})


def of_script(command: str | None) -> bool:
    """Whether a command is one of a study of scripts, or of the link between its workers."""
    return command is not None and (command.startswith("worldsize comm") or " --script " in command)


def by_steps(settings: StudySettings) -> StudySettings:
    """A study of whole epochs timed by steps in turn instead: an epoch is one block, and has no interval."""
    if settings.epochs is None:
        return settings
    return settings.model_copy(update={"epochs": None, "lr_schedule": "constant", "lr_warmup_epochs": 0.0})


def train_command(settings: StudySettings, cell: CellAnalysis, **changes: Any) -> str:
    """`worldsize train` for one cell: one epoch, or as many as the study trains."""
    settings = _with_recipe(settings, cell)
    # A warm-up of the learning rate may be longer than the one epoch of `train`: then the steps are kept.
    steps = settings.steps if settings.lr_warmup_epochs else None
    here: dict[str, Any] = {"hosts": None, "link": None, "link_latency": None, "slow_link": ()}
    alone = here if cell.world_size == 1 else {}
    wanted = settings.model_copy(update={"steps": steps, "profile": False, **alone, **changes})
    strategy, batch = changes.get("strategy", cell.strategy), changes.get("batch_size", cell.batch_size)
    which = ("--strategy", strategy, "--world-size", str(cell.world_size), "--batch-size", str(batch))
    return _line("train", *which, *_flags(wanted, StudySettings(), TRAIN_FLAGS, changes))


def sweep_command(settings: StudySettings, cell: CellAnalysis, **changes: Any) -> str:
    """`worldsize sweep` upward from the batch of a cell.

    What a sweep has no flag for is left out: the recipe, which does not change what fits, and the length of blocks.
    """
    wanted = settings.model_copy(update=changes)
    which = ("--strategy", cell.strategy, "--world-size", str(cell.world_size), "--batch-size", str(cell.batch_size))
    return _line("sweep", *which, *_flags(wanted, StudySettings(), SWEEP_FLAGS, changes))


def comm_command(settings: StudySettings, world_size: int) -> str:
    """`worldsize comm` over the links of a study, with a longer budget where they are too slow for the usual one."""
    network = settings.model_dump(include=set(COMM_FLAGS) - {"budget"})
    wanted = validated(CommSettings, {**network, "world_size": world_size})
    if least_s(wanted) > DEFAULT_BUDGET_S / 2:
        wanted = wanted.model_copy(update={"budget": roomy_budget(wanted)})
    return _line("comm", *_flags(wanted, CommSettings(), COMM_FLAGS, ("world_size",)))


def _with_recipe(settings: StudySettings, cell: CellAnalysis) -> StudySettings:
    """The settings of a study with the recipe of a cell: one that was named by itself may have its own."""
    if cell.record is None or not (cell.label or settings.cells):
        return settings
    return settings.model_copy(update={name: getattr(cell.record.settings, name) for name in RECIPE})


def _preset(settings: StudySettings) -> str:
    """The experiment, if it can be run again at the price of its cells: not one with further parts."""
    name = settings.experiment
    return name if name in preset_names() and not settings.sweep and settings.accuracy_epochs is None else ""


def _sayable(name: str, wanted: StudySettings, base: StudySettings) -> bool:
    """Whether flags on top of a preset can give a setting this value: hardly any can unset one."""
    value = getattr(wanted, name)
    if value not in (None, False, ()) or value == getattr(base, name) or name == "hosts":
        return True
    return name in COUNTERPARTS and getattr(wanted, COUNTERPARTS[name]) is not None


def _flags(wanted: Settings, base: Settings, names: tuple[str, ...], changed: Iterable[str]) -> list[str]:
    flags = []
    for name in names:
        value, usual = getattr(wanted, name), getattr(base, name)
        unsaid = value in (None, False, ()) and (name in COUNTERPARTS or value == usual)
        if unsaid or (value == usual and name not in changed):
            continue
        flag = f"--{name.replace('_', '-')}"
        if name == "script":
            flags += [word for text in value for word in (flag, text)]
            continue
        flags += [flag] if value is True else [flag, value_text(value)]
    return flags


def value_text(value: Any) -> str:
    """A value as a flag takes it: every digit of a number, for the command must mean the same."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < EXACT else repr(value)
    return "none" if value is None else str(value)


def _line(*words: str) -> str:
    return shlex.join(["worldsize", *(word for word in words if word)])


def launched_as(typed: Sequence[str], command: str | None, started_by: Sequence[str] = ()) -> str | None:
    """The command of an advice with the launcher of the command that was typed for the study.

    None where the study ran on the nodes of a cluster, and the command can only run on one machine. `started_by` is the
    torchrun that started its workers, if one did.
    """
    if command is not None and _sizes(shlex.split(command)) == {1}:
        return command  # one worker needs no other node
    if command is not None and any(word.partition("=")[0] == BY_HAND for word in typed):
        return None  # to be typed on each node, with the rank of each
    if started_by and command is not None:
        return _by_torchrun(started_by, command)
    launch = _launch(typed)
    if command is None or launch.launcher == "local":
        return command
    if shlex.split(command)[1] not in HAVE_LAUNCHERS:
        return None
    given = {name: value for name in LaunchSettings.model_fields if (value := getattr(launch, name)) is not None}
    flags = [(f"--{name.replace('_', '-')}", value_text(value)) for name, value in given.items() if name not in NEVER]
    return f"{command} {shlex.join(word for pair in flags for word in pair)}"


def _by_torchrun(words: Sequence[str], command: str) -> str | None:
    """The command behind a torchrun that starts its workers; plain where one node is enough for it without."""
    typed = shlex.split(command)
    nodes = int(after("--nnodes", words) or 1)
    sizes = _sizes(typed)
    most = max(sizes, default=nodes * int(after("--nproc-per-node", words) or 1))
    # torchrun starts so many workers, and the command has them, or one of them.
    fits = typed[1] in HAVE_LAUNCHERS and sizes <= {1, most} and most % nodes == 0
    if not fits:
        return command if nodes == 1 else None
    place = list(words).index("--nproc-per-node") + 1
    return shlex.join([*words[:place], str(most // nodes), *words[place + 1 :], *typed])


def _sizes(typed: Sequence[str]) -> set[int]:
    """The world sizes of a command; none where it gives none."""
    given = after("--world-sizes", typed) or after("--world-size", typed)
    return {int(size) for size in given.split(",") if size.isdigit()}


def after(flag: str, words: Sequence[str]) -> str:
    """The value of a flag; empty where it is not given."""
    words = list(words)
    return words[words.index(flag) + 1] if flag in words else ""


def _launch(typed: Sequence[str]) -> LaunchSettings:
    """What the flags say of the launch; this machine where they cannot be read."""
    found = {}
    for number, word in enumerate(typed):
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if flag.startswith("--") and name in LaunchSettings.model_fields and name not in NEVER:
            found[name] = value if equals else "".join(typed[number + 1 : number + 2])
    try:
        return LaunchSettings.model_validate(found)
    except ValidationError:
        return LaunchSettings()
