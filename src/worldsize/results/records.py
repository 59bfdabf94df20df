"""The records: the one contract between measuring and everything after it (design.md, "The run folder").

Times are in seconds (`_s`) unless they are points on a rank's own monotonic clock (`_ns`); sizes in bytes.
Absent is `None`, never 0: an interval of one sample, a bandwidth at world size 1 (method.md §5, §8).
"""

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from worldsize.config import CellSettings, StudySettings
from worldsize.config.redact import without_credentials
from worldsize.config.training import micro_batches
from worldsize.results.base import Record
from worldsize.results.check_records import VerifyRecord
from worldsize.results.memory_records import MemoryParts
from worldsize.results.placement_records import Placement as Placement
from worldsize.results.placement_records import RankPlace as RankPlace
from worldsize.results.provenance import Provenance, UserCode
from worldsize.results.step_records import BlockActivity, BlockConditions, UnobservedBlock
from worldsize.results.training_records import (
    DataRecord,
    Evaluation,
    GradientTimes,
    MessageCount,
    ModelRecord,
    ReplayedRecord,
)
from worldsize.traits import TraitsRecord
from worldsize.wire import WireBytes

SCHEMA_VERSION = 2

CellState = Literal["planned", "running", "complete", "failed", "interrupted"]
SeenState = CellState | Literal["unreadable"]
"""The state of a cell for who reads it: its record or its samples may be damaged."""

NAMES = ("strategy", "world_size", "batch_size", "label")
"""What tells a cell from the others of its run."""
STEP_PARTS = ("data_wait_s", "copy_s", "forward_s", "backward_s", "exposed_sync_s", "optimizer_s", "other_s")
"""What a step of any training consists of, in order."""
BESIDE_PARTS = ("evaluation_s", "checkpoint_s", "restart_s", "logging_s", "garbage_s")
"""What a loop of a person's own does beside training, as its share of each step; absent in any other."""
PARTS = (*STEP_PARTS, *BESIDE_PARTS)
"""The parts of a step; they add up to `step_s` (method.md §2)."""


class Estimate(Record):
    """A value with its 95 % interval; one sample has no spread, so no interval (method.md §8)."""

    value: float
    low: float | None = None
    high: float | None = None
    samples: int
    """How many independent samples (blocks, or steps where there is one block) stand behind it."""


class WarningRecord(Record):
    """A warning is a value: what was seen, the likely cause, and what to do."""

    code: str
    """Stable, for scripts: `unverified-data`, `oversubscribed`, `busy-machine` …"""
    message: str

    @field_validator("message")
    @classmethod
    def _without_credentials(cls, text: str) -> str:
        return without_credentials(text)


class ErrorRecord(Record):
    """Why a cell failed: the first cause, not its echo on the other ranks."""

    kind: str
    """Name of the exception, or `Signal` for a worker that was killed."""
    message: str
    rank: int | None = None
    exit_status: int = 1
    """2 if the user's input caused it, 1 for a failed run (as in errors.py)."""
    traceback: str | None = None

    @field_validator("message", "traceback")
    @classmethod
    def _without_credentials(cls, text: str | None) -> str | None:
        """What a library or a user's code said may name an address with a password in it."""
        return None if text is None else without_credentials(text)


class Findings(Record):
    """What is known of a study before it starts: its data, its model, the devices, what each strategy takes."""

    data: DataRecord | None
    """None of a workload of the user's own, which does not say how many samples it has."""
    model: ModelRecord | None
    """None of a script of the user's own."""
    gpus: tuple[str, ...]
    matmul_flops_per_s: float | None = None
    """Matrix-multiply rate of the machine's cores, or of a GPU, before the study (method.md §12)."""
    world_sizes: tuple[int, ...] = ()
    """Those of the study: as asked for, or as many as there is room for."""
    processes: dict[str, int] = Field(default_factory=dict)
    """`strategy@world size` → processes; what a strategy refuses is not in it."""
    refused: dict[str, str] = Field(default_factory=dict)
    """`strategy@world size` → why it cannot be."""
    own_traits: dict[str, TraitsRecord] = Field(default_factory=dict)
    """Of each strategy of the user's own, as its class says."""
    user_code: UserCode | None = None
    warnings: list[WarningRecord] = Field(default_factory=list)

    @property
    def train_samples(self) -> int | None:
        """D, where it is known."""
        return self.data.train_samples if self.data else None


class CellSummary(Record):
    """What the steps of a cell add up to; it can be computed again from the raw samples."""

    step_s: Estimate
    """Elapsed time ÷ timed steps, from the end of a step on its last rank to that of the next (method.md §8)."""
    typical_step_s: float | None = None
    """The median of these steps: what the mean is where nothing recurs that makes some longer."""
    samples_per_s: Estimate
    """Global samples over that time."""
    parts_s: dict[str, float]
    """Mean of each part of PARTS that was marked, over timed steps and ranks; they add up to a rank's mean step."""
    comm_s: float | None = None
    """Mean length of the union of the communication intervals of a step, over ranks; None at N = 1."""
    overlapped_s: float | None = None
    """The part of `comm_s` that is hidden behind compute; exposed + overlapped = comm (method.md §3)."""
    timed_steps: int
    disturbed_steps: int = 0  # of the timed ones, those beside which the short computation was slow (method.md §8)
    blocks: int


class CellRecord(Record):
    """cells/<cell>/cell.json: state, warnings, error and summary; written whole or not at all."""

    schema_version: int = SCHEMA_VERSION
    id: str
    strategy: str
    """With world size, local batch and label: what tells a cell from the others of its run."""
    world_size: int
    """N."""
    batch_size: int
    """b: samples per worker per step."""
    label: str = ""
    settings: CellSettings | None = None
    """What was trained, on what and how; None of a run that was only metered. Likewise all that follows."""
    state: CellState = "planned"
    error: ErrorRecord | None = None
    warnings: list[WarningRecord] = Field(default_factory=list)
    placement: Placement | None = None
    own_traits: TraitsRecord | None = None
    """Of a strategy of the user's own; those that come with worldsize have theirs in traits.py."""
    wire: WireBytes | None = None
    ended_by: Literal["precision", "settled", "cap", "budget", "epochs"] | None = None
    """Which of the stopping rules ended the timing (method.md §8)."""
    launches: int = 0
    """How often its workers were started, over all sessions."""
    compile_s: list[float] = Field(default_factory=list)  # of each launch, before its first turn; in no other time
    steps_per_epoch: int | None = None
    """floor(D / B): the last, partial batch of an epoch is dropped (method.md §1)."""
    evaluations: list[Evaluation] = Field(default_factory=list)
    matmul_flops_per_s: float | None = None
    """Matrix-multiply rate of one worker with its own cores, measured beside the steps (method.md §12)."""
    matmul_precision: str | None = None
    """The arithmetic of that rate: `fp32`, `tf32` or `bf16`."""
    peak_memory_bytes: int | None = None
    """Largest over the processes: resident memory on a CPU, allocated device memory on a GPU."""
    memory: MemoryParts | None = None
    peak_reserved_bytes: int | None = None
    """What the allocator of a GPU held at most, tensors in it or not; None on a CPU."""
    verified: VerifyRecord | None = None
    """Whether this cell trains as the reference does; asked before its first step (method.md §10)."""
    unobserved: list[UnobservedBlock] = Field(default_factory=list)
    """The other half of the pairs that tell the instrumentation overhead (method.md §2)."""
    ranks: list[RankPlace] = Field(default_factory=list)
    """Where each process ran, when it was started last."""
    gradients: GradientTimes | None = None
    """When backward has each gradient, on rank 0; None where it was not recorded, as in a script."""
    replayed: ReplayedRecord | None = None
    """Of a rehearsal: what was replayed, and how well."""
    messages: list[MessageCount] = Field(default_factory=list)
    """What travelled before the first step, on rank 0: weights, buffers and what the wrapper checks."""
    conditions: list[BlockConditions] = Field(default_factory=list)
    """What else went on during the timed blocks: the cause of a drift between them is looked for here."""
    activities: list[BlockActivity] = Field(default_factory=list)
    """What its own threads did meanwhile: why a rank is slow is looked for here."""
    summary: CellSummary | None = None

    @model_validator(mode="before")
    @classmethod
    def _named_by_its_settings(cls, content: Any) -> Any:
        """Records of schema 1 are: the names of these settings had no place of their own."""
        settings = content.get("settings") if isinstance(content, dict) else None
        named = {name: settings[name] for name in NAMES if name in settings} if isinstance(settings, dict) else {}
        return {**named, **content} if named else content

    @classmethod
    def of(cls, settings: CellSettings, **given: Any) -> Self:
        """The record of a cell with these settings, by their id where no other is given."""
        return cls(**{**{name: getattr(settings, name) for name in ("id", *NAMES)}, **given}, settings=settings)

    @property
    def global_batch(self) -> int:
        """B = N·b·K, samples per step of all workers (method.md §1)."""
        return self.world_size * self.batch_size * micro_batches(self.settings)

    @property
    def threads_per_worker(self) -> int | None:
        """Compute threads of each worker; None where nothing says it, as in older metered runs."""
        if self.placement is not None:
            return self.placement.threads_per_worker
        return self.ranks[0].threads if self.ranks else None

    @property
    def of_epochs(self) -> bool:
        """Whether whole epochs were trained: a training that --resume goes on with, not steps in turn."""
        return self.settings is not None and self.settings.epochs is not None


class StudyRecord(Record):
    """study.json: plan, settings and provenance."""

    schema_version: int = SCHEMA_VERSION
    name: str
    settings: StudySettings | None = None
    """None, as data and model, of a metered run. Scripts have no data and no model, own workloads no data."""
    plan: list[str]
    """Ids of the cells, in the order of the plan."""
    provenance: Provenance
    data: DataRecord | None = None
    model: ModelRecord | None = None
    warnings: list[WarningRecord] = Field(default_factory=list)
    sessions: list[Provenance] = Field(default_factory=list)
    """Provenance of each later start with --resume."""
    used_s: float | None = None
    """Of its budget, what had been used before it was made larger; None once that is used up as well."""
    kept: list[str] = Field(default_factory=list)
    """Ids of complete cells and names of files of comm/ when a session last ended: what is gone since was lost."""

    @model_validator(mode="after")
    def _of_training(self) -> Self:
        if self.settings is not None and self.settings.script:
            return self
        own = self.settings is not None and (self.settings.workload is not None or self.rehearses)
        if len({self.settings is None, self.data is None and not own, self.model is None}) > 1:
            raise ValueError("settings, data and model belong together: all of them, or none")
        return self

    @property
    def training(self) -> tuple[StudySettings, DataRecord, ModelRecord]:
        """What was trained, of a study of a data set; an experiment and a sweep are."""
        assert self.settings is not None
        assert self.data is not None
        assert self.model is not None
        return self.settings, self.data, self.model

    @property
    def train_samples(self) -> int | None:
        """D; None of a run that was only metered, and of a workload of the user's own."""
        return self.data.train_samples if self.data else None

    @property
    def trains(self) -> bool:
        """Whether worldsize itself trained, so that its commands can try other strategies, batches and models."""
        return self.settings is not None and not self.settings.script

    @property
    def rehearses(self) -> bool:
        """Whether its computing was replayed from another run (method.md §15)."""
        return self.settings is not None and self.settings.replay is not None

    @property
    def asked(self) -> StudySettings:
        """What was asked for; the defaults where nothing was, as in a run that was only metered."""
        return self.settings or StudySettings()

    @field_validator("plan")
    @classmethod
    def _each_once(cls, plan: list[str]) -> list[str]:
        if len(set(plan)) < len(plan):
            raise ValueError(f"{max(plan, key=plan.count)!r} is there twice")
        return plan
