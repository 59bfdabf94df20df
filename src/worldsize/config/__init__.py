"""Settings of a run, validated once at the edge; everything behind it trusts them.

Names, units and defaults here are those of the command line: `--batch-size` is `batch_size`. A wrong value
is the user's mistake and raises `errors.UsageError` (through `validated`), never an assertion.
"""

from worldsize.config.audit import AuditSettings, BatchOf, ScalingKind, TableFormat, audit_settings
from worldsize.config.base import DELAYS, MAX_BATCH, MAX_WORKERS, RATES, SIZES, Settings, quantity
from worldsize.config.commands import Arithmetic, CompareSettings, JudgeBy, SweepSettings, TrainSettings, VerifySettings
from worldsize.config.launch import DEFAULT_PORT, ByHandSettings, Launcher, LaunchSettings
from worldsize.config.network import Backend, CommSettings, Hosts, NetworkSettings, SlowestLink, burst_bytes
from worldsize.config.predict import PredictSettings
from worldsize.config.reading import laid_over, preset_names, read_study, validated
from worldsize.config.rehearse import RehearseSettings, ReplaySettings, SlowRank
from worldsize.config.script import CommandSettings
from worldsize.config.study import (
    DEFAULT_BUDGET,
    Baseline,
    CellChoice,
    Question,
    Room,
    StudySettings,
    chosen_world_sizes,
)
from worldsize.config.training import (
    DEFAULT_BATCH_SIZE,
    SWEEP_STEPS,
    Agreement,
    CellSettings,
    Loader,
    LrScaling,
    LrSchedule,
    Precision,
    TrainingSettings,
)

__all__ = [
    "DEFAULT_PORT",
    "SWEEP_STEPS",
    "DELAYS",
    "MAX_BATCH",
    "MAX_WORKERS",
    "DEFAULT_BATCH_SIZE",
    "DEFAULT_BUDGET",
    "RATES",
    "SIZES",
    "Agreement",
    "Arithmetic",
    "AuditSettings",
    "Backend",
    "Baseline",
    "BatchOf",
    "ByHandSettings",
    "CellChoice",
    "CellSettings",
    "CommSettings",
    "CompareSettings",
    "Hosts",
    "burst_bytes",
    "JudgeBy",
    "LaunchSettings",
    "Launcher",
    "Loader",
    "LrScaling",
    "LrSchedule",
    "NetworkSettings",
    "PredictSettings",
    "Precision",
    "Question",
    "RehearseSettings",
    "ReplaySettings",
    "Room",
    "ScalingKind",
    "CommandSettings",
    "Settings",
    "SlowRank",
    "SlowestLink",
    "StudySettings",
    "SweepSettings",
    "TableFormat",
    "TrainSettings",
    "TrainingSettings",
    "VerifySettings",
    "audit_settings",
    "chosen_world_sizes",
    "laid_over",
    "preset_names",
    "quantity",
    "read_study",
    "validated",
]
