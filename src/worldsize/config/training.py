"""Settings of training: what is trained, on what, by which recipe, and how it is timed; and those of one cell."""

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from worldsize.config.base import MAX_BATCH, MAX_WORKERS, SIZES, TIMES, Duration, Share, Size, absent, quantity
from worldsize.config.network import Backend
from worldsize.config.rehearse import ReplaySettings
from worldsize.config.script import CommandSettings
from worldsize.config.synchronisation import SynchronisationSettings
from worldsize.config.workload import refuse_beside_workload

SWEEP_STEPS = 22
"""Cap on timed steps of each batch of a sweep where neither steps nor epochs are given."""
DEFAULT_BATCH_SIZE = 32

Precision = Literal["fp32", "bf16"]
OptimizerName = Literal["sgd", "muon"]
LrScaling = Literal["none", "linear", "sqrt"]
LrSchedule = Literal["constant", "step", "cosine"]
Loader = Literal["batched", "per-sample"]
Evaluate = Literal["auto", "end", "never"]
Agreement = Literal["sampler-epoch", "initial-weights", "learning-rate", "buffers"]


class TrainingSettings(SynchronisationSettings):
    """What is trained, on what, and how it is timed; the same for every cell of a study."""

    model: str = "resnet18"
    """Model to train. Name of a built-in model, `torchvision:NAME`, `package.module:factory` or `file.py:factory`."""
    data: str = "digits"
    """Data set; synthetic[:CxHxW[:CLASSES[:SAMPLES]]] generates one. Others are `digits`, `cifar10`,
    `package.module:factory` or `file.py:factory`."""
    workload: str | None = absent("off")
    """Class with your own model, batches and loss, in place of --model and --data: file.py:Class. It can also be
    `package.module:Class`; see docs/workload.md."""
    data_dir: Path | None = absent("WORLDSIZE_DATA, or your cache folder")
    """Folder that holds the data set. None looks in $WORLDSIZE_DATA, then in the user's cache folder."""
    train_samples: int | None = absent("all", ge=1)
    """Use only the first K training samples. None is all of them."""
    test_samples: int | None = absent("all", ge=1)
    """Use only the first K test samples. None is all of them."""
    loader: Loader = "batched"
    """Loader: batched augments whole batches in the rank's process; per-sample is a torch DataLoader. The
    batches are uint8 tensors."""
    loader_workers: int = Field(default=2, ge=0)
    """Worker processes of the per-sample loader, per rank."""
    precision: Precision = "fp32"
    """Precision; bf16 uses autocast. It is that of forward and backward."""
    compile: bool = False
    """Compile the model with torch.compile, before anything is timed. The time that takes is shown by itself; see
    docs/strategies.md."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of weights, sample order and augmentation."""
    backend: Backend = "auto"
    """Backend of torch.distributed; auto: nccl on GPUs, gloo on CPUs."""
    threads_per_worker: int | None = absent("min(physical cores, CPU quota) / largest world size", ge=1)
    """Compute threads per worker, the same at every N. None divides the cores by the largest world size."""
    optimizer: OptimizerName = "sgd"
    """Optimizer; muon learns faster in short runs, at a rate of about 0.015. It learns more from few updates than `sgd`
    (training/muon.py)."""
    learning_rate: float = Field(default=0.1, gt=0)
    """Learning rate at the base batch (--base-batch). With `lr_scaling = "none"` it holds at any batch."""
    lr_scaling: LrScaling = "none"
    """Learning-rate scaling with the global batch: by B/B0 or its root. `none` keeps the rate."""
    base_batch: int = Field(default=128, ge=1)
    """Base batch B0: the global batch that --learning-rate is for."""
    lr_warmup_epochs: float = Field(default=0, ge=0)
    """Learning-rate warm-up, in epochs. The rate grows from that of the base batch to that of B; parts of an epoch are
    allowed."""
    lr_schedule: LrSchedule = "constant"
    """Learning-rate schedule; step divides by 10 after 1/2 and 3/4 of the epochs. `cosine` lets it fall to 0 over all
    of them."""
    label_smoothing: float = Field(default=0, ge=0, lt=1)
    """Label smoothing. Training gives this share of the label to all classes alike; test losses are without it."""
    leave_out: tuple[Agreement, ...] = ()
    """For teaching: break one thing that ranks must agree on, and see what happens. The ranks, or the epochs, then do
    *not* agree on what is named."""
    clip_norm: float | None = absent("off", gt=0)
    """Clip the norm of all gradients together to this value. None takes all gradients as they are."""
    nesterov: bool = False
    """Nesterov momentum. It takes the place of the plain one."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum."""
    weight_decay: float = Field(default=5e-4, ge=0)
    """Weight decay. This share of the weights is added to the gradients (`sgd`), or, times the rate, taken from them
    (`muon`)."""

    epochs: int | None = absent("off, steps are timed", ge=1)
    """Train K whole epochs; if K > 1, the first is not timed. This is the protocol *epochs* (method.md §8)."""
    steps: int | None = absent("as many as the budget allows", ge=1)
    """Time at most K steps of each cell (configuration), in whole blocks. This is the protocol *steps* (method.md §8),
    which rounds K up."""
    warmup_steps: int = Field(default=3, ge=0)
    """Least number of warm-up steps (not timed); more follow until step times settle. They belong to the
    protocol *steps*."""
    budget: Duration | None = absent("90s, unless epochs or steps are given", allowed="a time such as 90s or 5min")
    """Time budget of the whole command. Cells that are significantly slower than the fastest end early. None is 90 s
    where neither steps nor epochs are given."""
    block_steps: int | None = absent("as many as fit in half a second", ge=1)
    """Timed steps per block; the cells take turns, a block each. They belong to the protocol *steps*; None makes
    blocks of about half a second."""
    target_interval: Share = Field(default=0.03, ge=0, lt=1)
    """Stop when each step-time ratio to the baseline has a 95 % interval of ± this; 0: never early. Only the protocol
    *steps* stops so; the half width of the interval counts, over the ratio."""
    evaluate: Evaluate = "auto"
    """Evaluate on the test set: after each epoch (auto), at the end, or never. `auto` is for the protocol *epochs*; the
    end is that of the cell."""
    checkpoint: bool = False
    """Write a checkpoint after every epoch. Only the protocol *epochs* leaves checkpoints."""
    checkpoint_steps: int | None = absent("off", ge=1)
    """Also write a checkpoint every K steps. It is written within an epoch, between two timed steps."""
    profile: bool = False
    """Profile a few more steps: a Chrome trace of each rank and one of all ranks. They follow each cell's end."""
    memory_limit: Size | None = absent("none")
    """Memory limit of each worker on a CPU, such as 3GiB (Linux). An allocation beyond it fails."""
    replay: ReplaySettings | None = None
    """Of a rehearsal (`worldsize rehearse`): computing is replayed. None computes."""

    @property
    def trained(self) -> tuple[str, ...]:
        """What --model and --data, or --workload, name; a name may lead to the user's own code."""
        if self.replay is not None:  # nothing of it is run
            return ()
        return (self.model, self.data) if self.workload is None else (self.workload,)

    @model_validator(mode="after")
    def _fits_the_workload(self) -> Self:
        refuse_beside_workload(self)
        return self

    @property
    def optimizer_name(self) -> str:
        """`optimizer` as it is written."""
        return {"sgd": "SGD", "muon": "Muon"}[self.optimizer]

    @property
    def memory_limit_bytes(self) -> int | None:
        """`memory_limit` in bytes."""
        if self.memory_limit is None:
            return None
        return round(quantity(self.memory_limit, SIZES, "a size such as 3GiB or 500MiB", "memory_limit"))

    @field_validator("data_dir")
    @classmethod
    def _a_folder(cls, value: Path | None) -> Path | None:
        if value is not None and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(value)):
            raise ValueError("a folder is needed; nothing is read from an address")
        return value

    @model_validator(mode="after")
    def _readable_limit(self) -> Self:
        self.memory_limit_bytes  # noqa: B018 - raises for a size that cannot be read
        return self

    @model_validator(mode="after")
    def _momentum_to_look_ahead(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov is a kind of momentum, and momentum is 0: give another, or leave nesterov out")
        return self

    @model_validator(mode="after")
    def _checkpoints_of_epochs(self) -> Self:
        if self.checkpoint and self.epochs is None:
            raise ValueError("checkpoints belong to the training of whole epochs: give epochs as well")
        if self.checkpoint_steps is not None and not self.checkpoint:
            raise ValueError("checkpoint_steps says how often checkpoints are written: give checkpoint as well")
        return self

    @property
    def budget_s(self) -> float | None:
        """`budget` in seconds."""
        return None if self.budget is None else quantity(self.budget, TIMES, "a time such as 90s or 5min", "budget")

    @model_validator(mode="after")
    def _readable_budget(self) -> Self:
        if self.budget_s == 0:
            raise ValueError(f"budget: {self.budget!r} was given; nothing can be measured in no time")
        if self.budget is not None and self.epochs is not None:
            raise ValueError("budget and epochs exclude each other: whole epochs take what they take")
        return self

    @model_validator(mode="after")
    def _one_protocol(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("epochs and steps exclude each other: give one of them")
        if self.lr_schedule != "constant" and self.steps is not None:
            raise ValueError(f"lr_schedule {self.lr_schedule} falls over epochs: give epochs instead of steps")
        if self.epochs is not None and self.lr_warmup_epochs >= self.epochs and self.lr_warmup_epochs:
            raise ValueError(f"lr_warmup_epochs is {self.lr_warmup_epochs:g} of {self.epochs}: it must end before them")
        return self


class CellSettings(TrainingSettings):
    """One configuration: what `worldsize train` runs, and one cell of a study."""

    strategy: str = "single"
    """Strategy: how gradients are synchronised. Its name, or `module:Class` for one of the user's own."""
    world_size: int = Field(default=1, ge=1, le=MAX_WORKERS)
    """World size: the number of workers N."""
    batch_size: int = Field(default=DEFAULT_BATCH_SIZE, ge=1, le=MAX_BATCH)
    """Local batch b: samples per worker per step."""
    label: str = Field(default="", pattern=r"^[a-z0-9-]*$")
    """Tells cells apart that differ in something else, such as the recipe."""
    program: CommandSettings | None = None
    """The command of a person's own that it runs; then all settings of a training mean nothing."""

    @property
    def global_batch(self) -> int:
        """B = N·b·K, samples per step of all workers (method.md §1)."""
        return self.world_size * self.batch_size * self.accumulate

    @property
    def id(self) -> str:
        """Name of the cell and of its folder; unique within a study."""
        strategy = "".join(c if c.isalnum() or c == "-" else "_" for c in self.strategy)
        if self.program is not None:  # its batch is not known before it runs
            return f"{strategy}-w{self.world_size}"
        return f"{strategy}-w{self.world_size}-b{self.batch_size}" + (f"-{self.label}" if self.label else "")


def micro_batches(settings: CellSettings | None) -> int:
    """K: micro-batches of b in a step; 1 of what has no settings, as a run that was only metered."""
    return 1 if settings is None else settings.accumulate
