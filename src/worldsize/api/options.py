"""The settings that the functions of the package take, typed: a key for each field of `worldsize.config`.

What each means, its default and what is allowed is said there, and by `worldsize study --help`. A test holds the two
together. Text is read as the command line reads it: `world_sizes="1,2"`, `target_interval="3%"`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypedDict

from worldsize.config.audit import BatchOf, ScalingKind, TableFormat
from worldsize.config.commands import Arithmetic
from worldsize.config.network import Backend
from worldsize.config.rehearse import ReplaySettings
from worldsize.config.study import Baseline, CellChoice, Tracker
from worldsize.config.training import Agreement, Evaluate, Loader, LrScaling, LrSchedule, OptimizerName, Precision

PathLike = Path | str


class NetworkOptions(TypedDict, total=False):
    """Emulated hosts: `config.network.NetworkSettings`."""

    hosts: int | Literal["auto"] | str | None
    link: str | None
    link_latency: str | None
    slow_link: tuple[str, ...] | str


class TrainingOptions(NetworkOptions, total=False):
    """What is trained, on what, and how it is timed: `config.training.TrainingSettings`."""

    model: str
    data: str
    workload: str | None
    data_dir: Path | str | None
    train_samples: int | None
    test_samples: int | None
    loader: Loader
    loader_workers: int
    precision: Precision
    compile: bool
    seed: int
    backend: Backend
    threads_per_worker: int | None
    bucket_mb: float | Literal["auto"] | str | None
    find_unused_parameters: bool
    powersgd_rank: int
    powersgd_start_step: int
    accumulate: int
    sync_every: int
    sync_warmup_steps: int
    outer_learning_rate: float
    outer_momentum: float
    optimizer: OptimizerName
    learning_rate: float
    lr_scaling: LrScaling
    base_batch: int
    lr_warmup_epochs: float
    lr_schedule: LrSchedule
    label_smoothing: float
    leave_out: tuple[Agreement, ...] | str
    clip_norm: float | None
    nesterov: bool
    momentum: float
    weight_decay: float
    epochs: int | None
    steps: int | None
    warmup_steps: int
    budget: str | None
    block_steps: int | None
    target_interval: float | str
    evaluate: Evaluate
    checkpoint: bool
    checkpoint_steps: int | None
    profile: bool
    memory_limit: str | None
    replay: ReplaySettings | None


class TrainOptions(TrainingOptions, total=False):
    """One configuration: what `worldsize train` takes beside strategy, world size and local batch."""

    hang_timeout: str
    max_restarts: int
    min_workers: int | None
    log: tuple[Tracker, ...] | str


class SweepOptions(TrainOptions, total=False):
    """One configuration whose batch grows: what `worldsize sweep` takes beside these."""

    growth: int
    largest_batch: int | None
    resolution: float | str


class StudyOptions(SweepOptions, total=False):
    """A grid of cells: `config.study.StudySettings`."""

    script: tuple[str, ...] | str
    samples_per_step: int | None
    keep_outputs: bool
    in_place: bool
    tuned: bool
    one_at_a_time: bool
    fail_above: float | str | None
    strategies: tuple[str, ...] | str
    world_sizes: tuple[int, ...] | int | str | None
    batch_sizes: tuple[int, ...] | int | str | None
    global_batch: int | None
    sweep: bool
    cells: tuple[CellChoice, ...]
    accuracy_epochs: int | None
    accuracy_batch: int
    accuracy_base_batch: int
    seeds: int
    target_accuracy: float | str | None
    experiment: str
    baseline: Baseline | None
    allow_oversubscribed: bool


class VerifyOptions(StudyOptions, total=False):
    """What is proved: `config.verify.VerifySettings`."""

    arithmetic: Arithmetic


class RehearseOptions(TypedDict, total=False):
    """What is rehearsed, beside the run and the number of hosts: `config.rehearse.RehearseSettings`."""

    link: str | None
    link_latency: str | None
    strategies: tuple[str, ...] | str | None
    batch_size: int | None
    budget: str | None
    steps: int | None
    slow_rank: tuple[str, ...] | str
    slow_link: tuple[str, ...] | str


class CommOptions(NetworkOptions, total=False):
    """The benchmark of the collectives: `config.network.CommSettings`."""

    collectives: tuple[str, ...] | str
    world_size: int
    top_bytes: int | str
    budget: str | None
    samples: int | None
    backend: Backend
    threads_per_worker: int | None
    test_links: bool


class AuditOptions(TypedDict, total=False):
    """What a person says of tables: `config.audit.AuditSettings`."""

    column: Mapping[str, str] | tuple[str, ...] | str
    samples: int | None
    model: str | None
    batch: BatchOf | None
    scaling: ScalingKind | None
    format: TableFormat | None
    table: int | None
