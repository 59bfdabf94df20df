"""Settings of a run, validated once at the edge; everything behind it trusts them.

Names, units and defaults here are those of the command line: `--batch-size` is `batch_size`. A wrong value
is the user's mistake and raises `errors.UsageError` (through `validated`), never an assertion.
"""

from worldsize.config.base import DELAYS, MOST_BATCH, MOST_WORKERS, RATES, SIZES, Settings, quantity
from worldsize.config.compare import CompareSettings, JudgeBy
from worldsize.config.launch import Launcher, LaunchSettings
from worldsize.config.network import Backend, CommSettings, Hosts, NetworkSettings
from worldsize.config.reading import preset_names, read_study, validated
from worldsize.config.room import Question, Room, chosen_world_sizes
from worldsize.config.study import DEFAULT_BUDGET, MULTI_WORKER_STRATEGIES, Baseline, CellChoice, StudySettings
from worldsize.config.training import (
    Agreement,
    CellSettings,
    Loader,
    LrScaling,
    LrSchedule,
    Precision,
    TrainingSettings,
)
from worldsize.config.verify import Arithmetic, VerifySettings

__all__ = [
    "DELAYS",
    "MOST_BATCH",
    "MOST_WORKERS",
    "DEFAULT_BUDGET",
    "MULTI_WORKER_STRATEGIES",
    "RATES",
    "SIZES",
    "Agreement",
    "Arithmetic",
    "Backend",
    "Baseline",
    "CellChoice",
    "CellSettings",
    "CommSettings",
    "CompareSettings",
    "Hosts",
    "JudgeBy",
    "LaunchSettings",
    "Launcher",
    "Loader",
    "LrScaling",
    "LrSchedule",
    "NetworkSettings",
    "Precision",
    "Question",
    "Room",
    "Settings",
    "StudySettings",
    "TrainingSettings",
    "VerifySettings",
    "chosen_world_sizes",
    "preset_names",
    "quantity",
    "read_study",
    "validated",
]
