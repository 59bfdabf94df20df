"""Settings of a run, validated once at the edge; everything behind it trusts them.

Names, units and defaults here are those of the command line: `--batch-size` is `batch_size`. A wrong value
is the user's mistake and raises `errors.UsageError` (through `read_study`), never an assertion.
"""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from worldsize.errors import UsageError

Precision = Literal["fp32", "bf16"]
LrScaling = Literal["none", "linear", "sqrt"]
LrSchedule = Literal["constant", "step", "cosine"]
Backend = Literal["auto", "gloo", "nccl"]
Loader = Literal["batched", "per-sample"]
Baseline = Literal["single", "wrapped", "both"]

MULTI_WORKER_STRATEGIES = ("data-parallel", "gather-scatter", "all-reduce", "ddp", "bucketed")


class Settings(BaseModel):
    """Base of all settings: keyword-only, immutable, an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Hosts(Settings):
    """Emulated hosts: how many, and how each is linked to the switch between them (launch/hosts.py)."""

    count: int = Field(ge=2)
    rate_bits_per_s: int | None = Field(default=None, ge=1_000)
    """Of each link, in each direction; None is as fast as the kernel goes."""
    latency_s: float | None = Field(default=None, gt=0)
    """Added to each packet that leaves a host; needs the kernel's netem."""

    @property
    def payload_bytes_per_s(self) -> float | None:
        """What TCP over Ethernet with an MTU of 1,500 can carry: rated × 1448/1514 (method.md §12)."""
        return None if self.rate_bits_per_s is None else self.rate_bits_per_s / 8 * 1448 / 1514


def quantity(text: str, units: dict[str, float], allowed: str) -> float:
    """A number and its unit, such as `1gbit`, in the base unit; raise ValueError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", text.strip())
    if not found or found[2].lower() not in units:
        raise ValueError(f"{text!r} was given; {allowed} is allowed")
    return float(found[1]) * units[found[2].lower()]


RATES = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
DELAYS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
SIZES = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 1e3, "mb": 1e6, "gb": 1e9}


class NetworkSettings(Settings):
    """Where the workers are put: on this machine's loopback, or on emulated hosts."""

    hosts: int | None = Field(default=None, ge=2)
    """Emulated hosts, one worker on each; None is this machine as it is."""
    link: str | None = None
    """Rate of each emulated host's link, such as `1gbit` or `100mbit`."""
    link_latency: str | None = None
    """Delay of each packet that leaves an emulated host, such as `200us` or `1ms`."""

    @model_validator(mode="after")
    def _links_belong_to_hosts(self) -> Self:
        if self.hosts is None and (self.link or self.link_latency):
            raise ValueError("link and link_latency belong to emulated hosts: give hosts as well")
        self.emulated  # noqa: B018 - raises for a rate or a latency that cannot be read
        return self

    @property
    def emulated(self) -> Hosts | None:
        """The emulated hosts, if any."""
        if self.hosts is None:
            return None
        rate = None if self.link is None else round(quantity(self.link, RATES, "a rate such as 1gbit or 100mbit"))
        delay = None if self.link_latency is None else quantity(self.link_latency, DELAYS, "a delay such as 200us")
        return Hosts(count=self.hosts, rate_bits_per_s=rate, latency_s=delay)


class CommSettings(NetworkSettings):
    """What `worldsize comm` measures."""

    collectives: tuple[str, ...] = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "gather", "scatter")
    world_size: int = Field(default=2, ge=1)
    top_bytes: int = Field(default=16 * 2**20, ge=1024)
    """The largest S; the smallest is 1 KiB."""
    samples: int = Field(default=7, ge=1)
    """Samples of each size, in rounds over all of them."""
    backend: Backend = "auto"
    threads_per_worker: int | None = Field(default=None, ge=1)


class TrainingSettings(NetworkSettings):
    """What is trained, on what, and how it is timed; the same for every cell of a study."""

    model: str = "resnet18"
    """Name of a built-in model, `torchvision:NAME`, `package.module:factory` or `file.py:factory`."""
    data: str = "digits"
    """`digits`, `cifar10`, `synthetic[:CxHxW[:CLASSES[:SAMPLES]]]`, `package.module:factory` or `file.py:factory`."""
    data_dir: Path | None = None
    """Folder that holds the data set; none looks in $WORLDSIZE_DATA, then in the user's cache folder."""
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
    threads_per_worker: int | None = Field(default=None, ge=1)
    """Compute threads of each worker, the baseline included; none divides the cores by the largest world size."""
    bucket_mb: Annotated[float, Field(gt=0)] | Literal["auto"] | None = None
    """MB of gradients that `ddp` and `bucketed` send together; `auto` plans with the link and the backward that it
    measures; none is the strategy's own default."""
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
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=5e-4, ge=0)

    epochs: int | None = Field(default=None, ge=1)
    """Protocol *epochs* (method.md §8): this many epochs; with more than one, the first only warms up."""
    steps: int | None = Field(default=None, ge=1)
    """Protocol *steps* (method.md §8): at most so many timed steps per cell, rounded up to whole blocks."""
    warmup_steps: int = Field(default=3, ge=0)
    """Protocol *steps*: untimed steps before the first timed one."""
    block_steps: int = Field(default=2, ge=1)
    """Protocol *steps*: timed steps in each turn of a cell."""
    target_interval: float = Field(default=0.03, gt=0, lt=1)
    """Protocol *steps*: stop when the half width of the 95 % interval of each ratio is below this share of it."""

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
    world_size: int = Field(default=1, ge=1)
    """N: how many workers share the work."""
    batch_size: int = Field(default=32, ge=1)
    """b: samples per worker per step (the *local* batch)."""

    @property
    def global_batch(self) -> int:
        """B = N·b, samples per step of all workers (method.md §1)."""
        return self.world_size * self.batch_size

    @property
    def id(self) -> str:
        """Name of the cell and of its folder; unique within a study."""
        strategy = "".join(c if c.isalnum() or c == "-" else "_" for c in self.strategy)
        return f"{strategy}-w{self.world_size}-b{self.batch_size}"


class StudySettings(TrainingSettings):
    """A grid of cells: strategies × world sizes × local batches."""

    strategies: tuple[str, ...] = Field(default=("single", *MULTI_WORKER_STRATEGIES), min_length=1)
    world_sizes: tuple[int, ...] | None = Field(default=None, min_length=1)
    """None is one worker and as many as there are cores (or GPUs), up to 4."""
    batch_sizes: tuple[int, ...] = Field(default=(32,), min_length=1)
    """Local batches b: samples per worker per step."""
    baseline: Baseline = "both"
    """What runs at world size 1: `single` only, each strategy `wrapped` around one worker, or `both` (method.md §6)."""
    allow_oversubscribed: bool = False
    """Print speed-ups also of cells with more threads than cores (method.md §8)."""

    @model_validator(mode="after")
    def _positive_grid(self) -> Self:
        for name, values in (("world_sizes", self.world_sizes or ()), ("batch_sizes", self.batch_sizes)):
            for value in values:
                if value < 1:
                    raise ValueError(f"{name}: {value} was given; each must be at least 1")
        return self


S = TypeVar("S", bound=Settings)


def validated(kind: type[S], values: dict[str, Any], source: str = "") -> S:
    """Build settings from plain values; raise UsageError with one line for the first mistake.

    `source` names where the values came from (a file) and starts the message.
    """
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "__root__")
        if first["type"] == "extra_forbidden":
            known = ", ".join(sorted(kind.model_fields))
            text = f"unknown key {where!r}; known: {known}"
        elif where:
            text = f"{where}: {first['input']!r} was given; {first['msg'][:1].lower()}{first['msg'][1:]}"
        else:
            text = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"{source}: {text}" if source else text) from None


def preset_names() -> list[str]:
    """Names of the presets that come with worldsize (files in presets/)."""
    return sorted(path.stem for path in (Path(__file__).parent / "presets").glob("*.toml"))


def read_study(path_or_preset: str) -> dict[str, Any]:
    """Read the values of a study from a preset's name or a TOML file; raise UsageError if that fails.

    The values are not validated yet: flags of the command line still go on top of them.
    """
    path = Path(path_or_preset)
    if path_or_preset in preset_names():
        path = Path(__file__).parent / "presets" / f"{path_or_preset}.toml"
    elif path.suffix != ".toml":
        raise UsageError(
            f"unknown preset {path_or_preset!r}; known: {', '.join(preset_names())}\n"
            "To run a study of your own, give the path of a .toml file."
        )
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"no such study file: {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a TOML study: {error}") from None
