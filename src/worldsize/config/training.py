"""Settings of training: what is trained, on what, by which recipe, and how it is timed; and those of one cell."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from worldsize.config.base import MOST_BATCH, MOST_WORKERS, SIZES, TIMES, absent, quantity
from worldsize.config.network import Backend, NetworkSettings

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


class TrainingSettings(NetworkSettings):
    """What is trained, on what, and how it is timed; the same for every cell of a study."""

    model: str = "resnet18"
    """Name of a built-in model, `torchvision:NAME`, `package.module:factory` or `file.py:factory`."""
    data: str = "digits"
    """`digits`, `cifar10`, `synthetic[:CxHxW[:CLASSES[:SAMPLES]]]`, `package.module:factory` or `file.py:factory`."""
    data_dir: Path | None = absent("WORLDSIZE_DATA, or your cache folder")
    """Folder that holds the data set; none looks in $WORLDSIZE_DATA, then in the user's cache folder."""
    train_samples: int | None = absent("all", ge=1)
    """Training samples that are used, the first ones of the set; none is all of them."""
    test_samples: int | None = absent("all", ge=1)
    """Test samples that are used, the first ones of the set; none is all of them."""
    loader: Loader = "batched"
    """`batched` augments whole batches of uint8 tensors; `per-sample` is the classic one-image-at-a-time loader."""
    loader_workers: int = Field(default=2, ge=0)
    """Worker processes of the per-sample loader, per rank."""
    precision: Precision = "fp32"
    """Arithmetic of forward and backward: `fp32`, or `bf16` autocast."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the weights, of the sample order and of the augmentation."""
    backend: Backend = "auto"
    """Library that carries the collectives; `auto` is nccl on GPUs and gloo on CPUs."""
    threads_per_worker: int | None = absent("min(physical cores, CPU quota) / largest world size", ge=1)
    """Compute threads of each worker, the baseline included; none divides the cores by the largest world size."""
    bucket_mb: Annotated[float, Field(gt=0)] | Literal["auto"] | None = absent("that of the strategy")
    """MB of gradients that `ddp` and `bucketed` send together; `auto` plans with the link and the backward that it
    measures; none is the strategy's own default."""
    optimizer: OptimizerName = "sgd"
    """How gradients change the weights: `sgd`, or `muon`, which learns more from few updates (training/muon.py)."""
    learning_rate: float = Field(default=0.1, gt=0)
    """Of the base batch; with `lr_scaling = "none"` of any batch."""
    lr_scaling: LrScaling = "none"
    """How the learning rate grows with the global batch B: not at all, with B/B₀, or with its square root."""
    base_batch: int = Field(default=128, ge=1)
    """B₀: the global batch that `learning_rate` belongs to."""
    lr_warmup_epochs: float = Field(default=0, ge=0)
    """Epochs (or parts of one) in which the rate grows from that of the base batch to that of B."""
    lr_schedule: LrSchedule = "constant"
    """How the rate falls over the epochs: not at all, by ten at one half and three quarters, or as a cosine."""
    label_smoothing: float = Field(default=0, ge=0, lt=1)
    """Share of the label that training gives to all classes alike; test losses are without it."""
    leave_out: tuple[Agreement, ...] = ()
    """For demonstrations: what the ranks, or the epochs, do *not* agree on as they should (training/leave_out.py)."""
    clip_norm: float | None = absent("off", gt=0)
    """Largest norm of all gradients together; a larger one is scaled down to it. None takes them as they are."""
    nesterov: bool = False
    """Nesterov's momentum in place of the plain one."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=5e-4, ge=0)
    """Share of the weights that is added to the gradients (`sgd`), or, times the rate, taken from them (`muon`)."""

    epochs: int | None = absent("none, but steps", ge=1)
    """Protocol *epochs* (method.md §8): this many epochs; with more than one, the first only warms up."""
    steps: int | None = absent("as many as the budget allows", ge=1)
    """Protocol *steps* (method.md §8): at most so many timed steps per cell, rounded up to whole blocks."""
    warmup_steps: int = Field(default=3, ge=0)
    """Protocol *steps*: untimed steps before the first timed one."""
    budget: str | None = absent("90s, unless epochs or steps are given", allowed="a time such as 90s or 5min")
    """How long the command may take from its start to its answer, such as `90s` or `5min`; cells that are not the
    fastest, with certainty, end early. None is 90 s where neither steps nor epochs are given."""
    block_steps: int | None = absent("as many as half a second takes", ge=1)
    """Protocol *steps*: timed steps in each turn of a cell; none makes turns of about half a second."""
    target_interval: float = Field(default=0.03, ge=0, lt=1)
    """Protocol *steps*: stop when the half width of the 95 % interval of each ratio is below this share of it; 0 runs
    all steps."""
    evaluate: Evaluate = "auto"
    """When the test set is run: `auto` after each epoch of the protocol *epochs*, `end` when a cell has ended."""
    checkpoint: bool = False
    """Protocol *epochs*: write a checkpoint after every epoch."""
    checkpoint_steps: int | None = absent("off", ge=1)
    """Write one also after each so many steps of an epoch, between two timed steps."""
    profile: bool = False
    """Run a few more steps of each cell under torch's profiler when it has ended, and keep a trace of each rank."""
    memory_limit: str | None = absent("none")
    """Memory that each worker process may use on a CPU, such as `3GiB`; an allocation beyond it fails."""

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
    """Name of a strategy, or `module:Class` for one of the user's own."""
    world_size: int = Field(default=1, ge=1, le=MOST_WORKERS)
    """N: how many workers share the work."""
    batch_size: int = Field(default=DEFAULT_BATCH_SIZE, ge=1, le=MOST_BATCH)
    """b: samples per worker per step (the *local* batch)."""
    label: str = Field(default="", pattern=r"^[a-z0-9-]*$")
    """Tells cells apart that differ in something else, such as the recipe."""

    @property
    def global_batch(self) -> int:
        """B = N·b, samples per step of all workers (method.md §1)."""
        return self.world_size * self.batch_size

    @property
    def id(self) -> str:
        """Name of the cell and of its folder; unique within a study."""
        strategy = "".join(c if c.isalnum() or c == "-" else "_" for c in self.strategy)
        return f"{strategy}-w{self.world_size}-b{self.batch_size}" + (f"-{self.label}" if self.label else "")
