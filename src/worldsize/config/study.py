"""Settings of a study: which cells are run and compared; and its world sizes where none are given.

Those are as many workers as there is room for, and fewer.
"""

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_serializer, model_validator

from worldsize.config.base import MAX_BATCH, MAX_WORKERS, TIMES, Duration, Settings, Share, absent, quantity
from worldsize.config.redact import safe_words
from worldsize.config.script import CommandSettings, refuse_beside_script, script_names
from worldsize.config.synchronisation import refuse_beside_shards
from worldsize.config.training import DEFAULT_BATCH_SIZE, Agreement, LrScaling, TrainingSettings
from worldsize.traits import BASELINE_STRATEGY, DEFAULT_STRATEGIES, RUNGS

Baseline = Literal["single", "wrapped", "both"]

Tracker = Literal["wandb", "tensorboard", "mlflow"]

AUTO = "auto"
"""In place of strategies: all that may pay."""
DEFAULT_BUDGET = "90s"
"""Of a study that is told nothing else: of six cells of ResNet-18 on two cores it leaves a minute for steps."""
MAX_SEEDS = 100
"""More seeds are a slip of the pen."""
MAX_SEED = 2**63 - 1
"""The largest that torch takes."""
EACH = "at least 1"
"""World sizes and local batches (`_positive_grid`)."""
MAX_ON_CORES = 4
"""The largest default world on the cores of a machine; larger ones are measured when they are asked for."""


class CellChoice(Settings):
    """One cell that is named by itself; what is not given is that of the study."""

    strategy: str
    world_size: int = Field(ge=1, le=MAX_WORKERS)
    batch_size: int = Field(ge=1, le=MAX_BATCH)
    label: str = ""
    lr_scaling: LrScaling | None = None
    lr_warmup_epochs: float | None = None
    leave_out: tuple[Agreement, ...] | None = None
    program: CommandSettings | None = None
    threads_per_worker: int | None = Field(default=None, ge=1)


class StudySettings(TrainingSettings):
    """A grid of cells: strategies × world sizes × local batches."""

    script: tuple[str, ...] = absent("off", default=())
    """Training script of your own, run by `python` and by `torchrun` at each world size: "train.py --lr 0.1"; or a
    launcher's command with {n} for the number of workers: "accelerate launch --num_processes {n} train.py". May be
    given again, to compare. See docs/own-training.md."""
    samples_per_step: int | None = absent("counted", ge=1)
    """Samples per process and step, if not the first dimension of its batches. For --script."""
    keep_outputs: bool = False
    """Keep the files that --script writes. They are in RUN/cells/CELL/outputs; your own folders stay as they are."""
    in_place: bool = False
    """Let --script write where it would by itself, into your own folders."""
    tuned: bool = False
    """Add a cell of --script at each world size with variables that make training on CPUs quicker: an allocator, huge
    pages."""
    one_at_a_time: bool = False
    """Run the cells of --script one after the other, each launched anew for each of its turns."""
    fail_above: Share | None = absent("no gate", ge=0, allow_inf_nan=False)
    """With two or more --script: fail (exit status 3) if a later one is slower than the first by more than this, such
    as 5%. It must be significantly slower."""
    strategies: tuple[str, ...] = Field(default=DEFAULT_STRATEGIES, min_length=1)
    """Strategies (ways to synchronise gradients), comma-separated; see docs/strategies.md. `auto` is one worker and
    each strategy that may pay off on this link, exact and compressed, with planned buckets."""
    world_sizes: tuple[int, ...] | None = absent(
        "powers of two up to all GPUs, or up to 4 cores", allowed=EACH, min_length=1
    )
    """World sizes (numbers of workers N), comma-separated. None is 1, 2, 4 … and all: workers of the nodes,
    GPUs, or physical cores up to 4 (config/study.py)."""
    batch_sizes: tuple[int, ...] | None = absent(
        f"{DEFAULT_BATCH_SIZE}, or fewer in a budget where a step would be long", allowed=EACH, min_length=1
    )
    """Local batches b (samples per worker per step), comma-separated. None is DEFAULT_BATCH_SIZE, or in a budget what
    this machine makes often enough (study/budget.py)."""
    global_batch: int | None = absent("off", ge=1)
    """Global batch B, the same at every N: b = B/N (strong scaling), or B/(N·K) with K micro-batches per step. It
    takes the place of local batches."""
    sweep: bool = False
    """Grow the local batch from the given ones until memory or the data ends, each trial in fresh processes
    (method.md §9)."""
    growth: int = Field(default=4, ge=2)
    """Preset batch-sweep: multiply the batch by K each time."""
    largest_batch: int | None = absent("what memory or data allow", ge=1)
    """Preset batch-sweep: largest batch to try. None lets memory or the data end it."""
    resolution: Share = Field(default=0.05, ge=0, lt=1)
    """Preset batch-sweep: precision of the largest batch that fits; 0 finds it exactly. It is a share of that batch."""
    cells: tuple[CellChoice, ...] = ()
    """Cells named one by one, in place of the grid."""
    accuracy_epochs: int | None = absent("no such runs", ge=1)
    """Preset ddp-large-batch: epochs of the runs that compare learning-rate rules. None leaves them out."""
    accuracy_batch: int = Field(default=512, ge=1)
    """Preset ddp-large-batch: local batch of the runs with N workers that compare learning-rate rules."""
    accuracy_base_batch: int = Field(default=128, ge=1)
    """Preset ddp-large-batch: batch of the one-worker runs that compare learning-rate rules. It is also
    the B₀ of the rules."""
    seeds: int = Field(default=1, ge=1, le=MAX_SEEDS)
    """Repeat each training run with K seeds, from --seed upwards. Only whole epochs are trained so; the spread of
    accuracies between seeds is then known. In `ddp-large-batch` these are the runs that compare learning-rate rules."""
    target_accuracy: Share | None = absent("the highest that all reach, without an interval", gt=0, le=1)
    """Target test accuracy, such as 0.8 or 80%: compare the epochs and time to reach it. Statistical efficiency is told
    at it (method.md §10). None takes the largest that every training has reached, which is known only afterwards."""
    experiment: str = ""
    """Name of the experiment whose tables the report shows (docs/experiments.md)."""
    baseline: Baseline | None = absent("single with a budget, else both")
    """One-worker baseline: the plain model (single), the model in each strategy's wrapper (wrapped), or both. See
    method.md §6."""
    allow_oversubscribed: bool = False
    """Report speed-ups even with more threads than cores. See method.md §8."""
    hang_timeout: Duration = "10min"
    """End a cell that makes no progress for this long, such as 20s; none: never. Progress is that the ranks
    begin something: a step, a batch."""
    max_restarts: int = Field(default=0, ge=0)
    """If a worker fails, restart from the last checkpoint, at most K times. Only whole epochs leave checkpoints."""
    min_workers: int | None = absent("off", ge=1)
    """If restarts fail, continue with fewer workers, at least K. The smaller training goes on from the last
    checkpoint, with the same global batch and as a cell of its own. None is no such cell."""
    log: tuple[Tracker, ...] = ()
    """Also log to these experiment trackers, comma-separated. The run folder stays the record (docs/trackers.md)."""

    @model_validator(mode="before")
    @classmethod
    def _named_by_their_scripts(cls, values: Any) -> Any:
        """Cells of a script are called after it, not after a strategy."""
        scripts = values.get("script") if isinstance(values, dict) else None
        if not isinstance(scripts, list | tuple) or not scripts or not all(isinstance(each, str) for each in scripts):
            return values
        names, chosen = script_names(scripts), values.get("strategies")
        if chosen is not None and list(chosen) != names:
            raise ValueError("strategies were given: a script synchronises in its own way, so leave them out")
        if values.get("baseline") == "both":  # the default of run folders before 0.1.0
            values = {name: value for name, value in values.items() if name != "baseline"}
        return {**values, "strategies": tuple(names)}

    @model_validator(mode="before")
    @classmethod
    def _every_rung(cls, values: Any) -> Any:
        """`auto`: which strategy pays off, the buckets planned, and one worker as the only baseline."""
        chosen = values.get("strategies") if isinstance(values, dict) else None
        if not isinstance(chosen, list | tuple) or AUTO not in chosen:
            return values
        if len(chosen) > 1:
            raise ValueError(f"strategies: {', '.join(map(str, chosen))} was given; auto stands alone")
        return {"bucket_mb": AUTO, "baseline": "single", **values, "strategies": (BASELINE_STRATEGY, *RUNGS)}

    @field_serializer("script")
    def _without_secrets(self, scripts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(safe_words, scripts))

    @model_validator(mode="after")
    def _fits_the_script(self) -> Self:
        refuse_beside_script(self)
        return self

    @model_validator(mode="after")
    def _fits_the_shards(self) -> Self:
        refuse_beside_shards(self)
        return self

    @model_validator(mode="before")
    @classmethod
    def _grid_of_the_cells(cls, values: Any) -> Any:
        """Cells that are named one by one span a grid of their own."""
        if not isinstance(values, dict) or not values.get("cells") or not isinstance(values["cells"], list | tuple):
            return values
        try:
            cells = [CellChoice.model_validate(cell) for cell in values["cells"]]
        except ValidationError:
            return values  # the field itself says which of them is wrong
        derived = {
            "strategies": tuple(dict.fromkeys(cell.strategy for cell in cells)),
            "world_sizes": tuple(dict.fromkeys(cell.world_size for cell in cells)),
            "batch_sizes": tuple(dict.fromkeys(cell.batch_size for cell in cells)),
        }
        for name, wanted in derived.items():
            given = values.get(name)
            if isinstance(given, list | tuple) and not (
                all(each in wanted for each in given) and {*wanted} <= {*given}
            ):
                raise ValueError(f"cells and {name} exclude each other: the cells are named one by one")
        return {**values, **derived}

    @property
    def one_worker(self) -> Baseline:
        """`baseline`; in a budget, wrapped models take time that tells more of several workers."""
        return self.baseline or ("both" if self.budget is None else "single")

    @property
    def hang_timeout_s(self) -> float | None:
        """`hang_timeout` in seconds; None is for ever."""
        if self.hang_timeout == "none":
            return None
        return quantity(self.hang_timeout, TIMES, "a time such as 20s or 10min, or none,", "hang_timeout")

    @model_validator(mode="after")
    def _readable_timeout(self) -> Self:
        if self.hang_timeout_s == 0:
            raise ValueError(f"hang_timeout: {self.hang_timeout!r} was given; a job without time always hangs")
        return self

    @model_validator(mode="after")
    def _restarts_from_checkpoints(self) -> Self:
        if (self.max_restarts or self.min_workers) and not self.checkpoint:
            name = "max_restarts" if self.max_restarts else "min_workers"
            raise ValueError(f"{name} goes on from checkpoints: give epochs and checkpoint as well")
        return self

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds that the trainings of whole epochs are run with."""
        return tuple(range(self.seed, self.seed + self.seeds))

    @model_validator(mode="after")
    def _seeds_of_trainings(self) -> Self:
        for name, given in (("seeds", self.seeds > 1), ("target_accuracy", self.target_accuracy is not None)):
            if given and (self.sweep or (self.epochs is None and self.accuracy_epochs is None)):
                raise ValueError(f"{name} belongs to the training of whole epochs: give epochs as well, and no sweep")
        if self.target_accuracy is not None and self.accuracy_epochs is None and self.evaluate != "auto":
            raise ValueError(f"target_accuracy needs the test set after each epoch: evaluate is {self.evaluate}")
        if self.all_seeds[-1] > MAX_SEED:
            raise ValueError(f"seeds: {self.seeds} were given from {self.seed} on; the last must be below 2^63")
        return self

    @model_validator(mode="after")
    def _positive_grid(self) -> Self:
        grids = (("world_sizes", self.world_sizes, MAX_WORKERS), ("batch_sizes", self.batch_sizes, MAX_BATCH))
        for name, values, most in grids:
            for value in values or ():
                if value < 1:
                    raise ValueError(f"{name}: {value} was given; each must be at least 1")
                if value > most:
                    raise ValueError(f"{name}: {value} was given; each must be at most {most}")
        if self.sweep and (self.cells or self.global_batch):
            raise ValueError("a sweep grows the local batch: give neither cells nor global_batch")
        if self.sweep and self.largest_batch is not None:
            first = max(self.batch_sizes or (DEFAULT_BATCH_SIZE,))
            if first > self.largest_batch:
                raise ValueError(f"the first batch of {first} is larger than largest_batch {self.largest_batch}")
        if self.global_batch is not None and self.batch_sizes is not None:
            raise ValueError("batch_sizes and global_batch exclude each other: give one of them")
        return self

    def grid(self, world_size: int) -> Iterator[int]:
        """The local batches at a world size; raise ValueError if a global batch cannot be divided by it."""
        if self.global_batch is None:
            yield from dict.fromkeys(self.batch_sizes or (DEFAULT_BATCH_SIZE,))
        elif self.global_batch % (world_size * self.accumulate):
            workers = f"{world_size} workers" + (f" × {self.accumulate} micro-batches" if self.accumulate > 1 else "")
            raise ValueError(f"a global batch of {self.global_batch} cannot be divided among {workers}")
        else:
            yield self.global_batch // (world_size * self.accumulate)


class Room(Settings):
    """How many workers fit where a study runs, as far as it is known before anybody has looked for GPUs."""

    cores: int = Field(default=1, ge=1)
    """min(physical cores, CPU quota) of this machine, as far as the study may use them, in whole threads."""
    on_nodes: int | None = Field(default=None, ge=1)
    """Workers that all nodes of a cluster take together; None is this machine alone."""


class Question(Settings):
    """What the look before the start is asked (training/probe.py)."""

    settings: StudySettings
    room: Room


def chosen_world_sizes(settings: StudySettings, room: Room, gpus: int) -> tuple[int, ...]:
    """The world sizes that were asked for, or 1, 2, 4 … up to all workers for which there is room.

    There is room for as many as the nodes of the cluster take; on one machine for one on each of its emulated hosts
    and each of its `gpus`, and where no GPU is used for one on each physical core, as far
    as a quota permits (method.md §8), up to 4.
    """
    if settings.world_sizes:
        return settings.world_sizes
    if room.on_nodes is not None:
        return powers_up_to(room.on_nodes)
    on_gpus = 0 if settings.backend == "gloo" else gpus
    if settings.emulated:
        return powers_up_to(min(settings.emulated.count, on_gpus or settings.emulated.count))
    return powers_up_to(on_gpus or min(room.cores, MAX_ON_CORES))


def powers_up_to(most: int) -> tuple[int, ...]:
    """The powers of two from 1 up to `most`, and `most` itself."""
    return (*(2**k for k in range((most - 1).bit_length())), most)
