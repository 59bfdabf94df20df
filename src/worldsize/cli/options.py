"""The flags, defined once: a flag has the same name, meaning and help in every command that has it.

What is allowed, and what holds where a flag is not given, is said by the settings alone, and read there for the help.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worldsize.cli import complete
from worldsize.cli.help import MEASURE, ONE_CELL, OUTPUT, STOPS, TRAIN, VARY, WHERE, flag

if TYPE_CHECKING:
    from worldsize.study.resuming import Resume as Resumed

Model = Annotated[str | None, flag("Model to train.", TRAIN, complete=complete.model)]
Data = Annotated[
    str | None,
    flag("Data set; synthetic[:CxHxW[:CLASSES[:SAMPLES]]] generates one.", TRAIN, complete=complete.data),
]
DataDir = Annotated[Path | None, flag("Folder that holds the data set.", TRAIN)]
TrainSamples = Annotated[int | None, flag("Use only the first K training samples.", TRAIN)]
TestSamples = Annotated[int | None, flag("Use only the first K test samples.", TRAIN)]
Precision = Annotated[str | None, flag("Precision; bf16 uses autocast.", TRAIN, choices="precision")]
Seed = Annotated[int | None, flag("Seed of weights, sample order and augmentation.", TRAIN)]
Loader = Annotated[
    str | None,
    flag("Data loader; per-sample is a usual DataLoader.", TRAIN, choices="loader"),
]
LoaderWorkers = Annotated[int | None, flag("Worker processes of the per-sample loader, per rank.", TRAIN)]

Strategy = Annotated[str | None, flag("Strategy: how gradients are synchronised.", VARY, complete=complete.strategy)]
Strategies = Annotated[
    str | None, flag("Strategies (ways to synchronise gradients), by commas.", VARY, complete=complete.strategies)
]
WorldSize = Annotated[int | None, flag("World size: the number of workers N.", VARY)]
WorldSizes = Annotated[str | None, flag("World sizes (numbers of workers N), by commas.", VARY)]
BatchSize = Annotated[int | None, flag("Local batch b: samples per worker per step.", VARY)]
BatchSizes = Annotated[str | None, flag("Local batches b (samples per worker per step), by commas.", VARY)]
GlobalBatch = Annotated[int | None, flag("Global batch B, the same at every N: b = B/N (strong scaling).", VARY)]
BucketMb = Annotated[str | None, flag("Bucket size of ddp and bucketed, in MB.", VARY, metavar="MB")]
Growth = Annotated[int | None, flag("Sweep: multiply the batch by K each time.", VARY)]
LargestBatch = Annotated[int | None, flag("Sweep: largest batch to try.", VARY)]
Resolution = Annotated[
    str | None,
    flag("Sweep: precision of the largest batch that fits; 0 finds it exactly.", VARY, metavar="SHARE"),
]

Budget = Annotated[str | None, flag("Time budget, from Enter to the report.", MEASURE, metavar="TIME")]
Steps = Annotated[int | None, flag("Time at most K steps of each cell (configuration).", MEASURE)]
Epochs = Annotated[int | None, flag("Train K whole epochs instead; if K > 1, the first is warm-up.", MEASURE)]
TargetInterval = Annotated[
    str | None,
    flag(
        "Stop when the 95 % interval of each ratio is within ± this share; 0 runs all steps.",
        MEASURE,
        metavar="SHARE",
    ),
]
WarmupSteps = Annotated[int | None, flag("Warm-up steps, which are not timed.", MEASURE)]
BlockSteps = Annotated[int | None, flag("Timed steps in each block; the cells take turns block by block.", MEASURE)]
Baseline = Annotated[
    str | None,
    flag(
        "Baseline at N = 1: single, each strategy wrapped around one worker, or both.",
        MEASURE,
        choices="baseline",
    ),
]
Evaluate = Annotated[
    str | None,
    flag("Evaluate on the test set: after each epoch (auto), at the end, or never.", MEASURE, choices="evaluate"),
]
Profile = Annotated[
    bool | None,
    flag("Profile a few more steps: a Chrome trace of each rank and one of all ranks.", MEASURE, "--profile"),
]
AllowOversubscribed = Annotated[
    bool | None, flag("Report speed-ups even with more threads than cores.", MEASURE, "--allow-oversubscribed")
]

Backend = Annotated[str | None, flag("Backend of torch.distributed; auto: nccl on GPUs.", WHERE, choices="backend")]
ThreadsPerWorker = Annotated[int | None, flag("Compute threads per worker, for the baseline as well.", WHERE)]
MemoryLimit = Annotated[
    str | None, flag("Memory limit of each worker on a CPU, such as 3GiB (Linux).", WHERE, metavar="SIZE")
]
Hosts = Annotated[
    str | None,
    flag("Emulate K hosts on this machine, with one worker each (Linux, root); none: do not.", WHERE, metavar="K"),
]
Link = Annotated[str | None, flag("Bandwidth of each emulated link, such as 1gbit or 100mbit.", WHERE, metavar="RATE")]
LinkLatency = Annotated[str | None, flag("Latency added to each emulated link, such as 200us.", WHERE, metavar="TIME")]

Resume = Annotated[bool, flag("Resume the study in --out: run only what is missing.", STOPS, "--resume", default="off")]
Anew = Annotated[
    bool,
    flag(
        "With --resume, after your code has changed: keep the old results aside and measure again.",
        STOPS,
        "--anew",
        default="off",
    ),
]
Checkpoint = Annotated[
    bool | None, flag("Write a checkpoint after every epoch.", STOPS, "--checkpoint/--no-checkpoint")
]
CheckpointSteps = Annotated[int | None, flag("Also write a checkpoint every K steps.", STOPS)]
HangTimeout = Annotated[
    str | None,
    flag("End a cell that makes no progress for this long, such as 20s; none waits for ever.", STOPS, metavar="TIME"),
]
MaxRestarts = Annotated[
    int | None, flag("If a worker fails, restart from the last checkpoint, at most K times.", STOPS)
]
MinWorkers = Annotated[int | None, flag("If restarts do not help, go on with fewer workers, but at least K.", STOPS)]

Out = Annotated[
    Path | None,
    flag("Run folder.", OUTPUT, metavar="FOLDER", default="a new one under runs/", complete=complete.out),
]
Json = Annotated[
    bool,
    flag("Print one JSON object on stdout and nothing else; progress goes to stderr.", OUTPUT, "--json", default="off"),
]
PrintToml = Annotated[
    bool,
    flag(
        "Print the settings as a TOML file to start from; run nothing.",
        OUTPUT,
        "--print-toml",
        default="off",
    ),
]
Log = Annotated[str | None, flag("Also log to these experiment trackers, by commas.", OUTPUT, several="log")]


def settings(ctx: typer.Context, *others: str) -> dict[str, Any]:
    """The flags of this command that were given, read, by the names that settings use; without `others`.

    Raises UsageError for text that cannot be read.
    """
    given = {name: value for name, value in ctx.params.items() if value is not None and name not in others}
    from worldsize.config.text import READERS
    from worldsize.errors import UsageError

    for name, value in given.items():
        reader = READERS.get(FIELDS.get(name, name))
        try:
            given[name] = reader(value) if reader is not None and isinstance(value, str) else value
        except ValueError as error:
            raise UsageError(f"--{name.replace('_', '-')}: {error}") from None
    return given


FIELDS = {"top": "top_bytes"}
"""Flags that are not named as their field."""


def resuming(*, resume: bool, anew: bool) -> "Resumed":
    """How the study is gone on with; raise UsageError for --anew alone."""
    if anew and not resume:
        from worldsize.errors import UsageError

        raise UsageError("--anew was given without --resume: it is for a folder that holds a study of other code")
    return "anew" if anew else resume


def in_tuples(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags of one configuration as the settings of a study with one cell."""
    return {ONE_CELL.get(name, name): (value,) if name in ONE_CELL else value for name, value in flags.items()}
