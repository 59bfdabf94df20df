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
    flag("Data to train it on; synthetic[:CxHxW[:CLASSES[:SAMPLES]]] makes them.", TRAIN, complete=complete.data),
]
DataDir = Annotated[Path | None, flag("Folder that holds the data set.", TRAIN)]
TrainSamples = Annotated[int | None, flag("Use only the first K training samples.", TRAIN)]
TestSamples = Annotated[int | None, flag("Use only the first K test samples.", TRAIN)]
Precision = Annotated[str | None, flag("Arithmetic; bf16 is autocast.", TRAIN, choices="precision")]
Seed = Annotated[int | None, flag("Seed of weights, sample order and augmentation.", TRAIN)]
Loader = Annotated[str | None, flag("Input pipeline; per-sample is the classic one.", TRAIN, choices="loader")]
LoaderWorkers = Annotated[int | None, flag("Worker processes of the per-sample loader, per rank.", TRAIN)]

Strategy = Annotated[str | None, flag("How gradients are synchronised.", VARY, complete=complete.strategy)]
Strategies = Annotated[
    str | None, flag("How gradients are synchronised; several by commas.", VARY, complete=complete.strategies)
]
WorldSize = Annotated[int | None, flag("Number of workers N.", VARY)]
WorldSizes = Annotated[str | None, flag("Numbers of workers N, by commas.", VARY)]
BatchSize = Annotated[int | None, flag("Local batch b: samples per worker and step.", VARY)]
BatchSizes = Annotated[str | None, flag("Local batches b (samples per worker and step), by commas.", VARY)]
GlobalBatch = Annotated[int | None, flag("Keep the global batch B at every N instead: b = B/N (strong scaling).", VARY)]
BucketMb = Annotated[str | None, flag("MB of gradients that ddp and bucketed send together.", VARY, metavar="MB")]
Growth = Annotated[int | None, flag("Sweep: each batch is K times the one before.", VARY)]
LargestBatch = Annotated[int | None, flag("Sweep: try no larger batch than this.", VARY)]
Resolution = Annotated[
    str | None,
    flag("Sweep: find the largest batch that fits to within this share; 0 finds it exactly.", VARY, metavar="SHARE"),
]

Budget = Annotated[str | None, flag("Answer within this time, from Enter to the report.", MEASURE, metavar="TIME")]
Steps = Annotated[int | None, flag("Time at most K steps per cell, in blocks taken in turn.", MEASURE)]
Epochs = Annotated[int | None, flag("Train K whole epochs instead; of several the first only warms up.", MEASURE)]
TargetInterval = Annotated[
    str | None,
    flag(
        "Stop when each ratio is known to within this (95 % interval); 0 runs all steps.",
        MEASURE,
        metavar="SHARE",
    ),
]
WarmupSteps = Annotated[int | None, flag("Untimed steps before the first timed one.", MEASURE)]
BlockSteps = Annotated[int | None, flag("Timed steps in each turn of a cell.", MEASURE)]
Baseline = Annotated[
    str | None,
    flag(
        "What runs at world size 1: single, each strategy around one worker, or both.",
        MEASURE,
        choices="baseline",
    ),
]
Evaluate = Annotated[
    str | None,
    flag("Run the test set after each epoch (auto), when a cell has ended, or never.", MEASURE, choices="evaluate"),
]
Profile = Annotated[
    bool | None,
    flag("Trace a few more steps after the timed ones: a Chrome trace per rank, and one of all.", MEASURE, "--profile"),
]
AllowOversubscribed = Annotated[
    bool | None, flag("Print speed-ups with more threads than cores too.", MEASURE, "--allow-oversubscribed")
]

Backend = Annotated[str | None, flag("Library of the collectives; auto is nccl on GPUs.", WHERE, choices="backend")]
ThreadsPerWorker = Annotated[int | None, flag("Compute threads of each worker, the baseline included.", WHERE)]
MemoryLimit = Annotated[
    str | None, flag("Memory that each worker may use on a CPU, such as 3GiB (Linux).", WHERE, metavar="SIZE")
]
Hosts = Annotated[
    str | None,
    flag("Emulate K hosts on this machine, one worker on each (Linux, root); none emulates none.", WHERE, metavar="K"),
]
Link = Annotated[
    str | None, flag("Rate of each emulated host's link, such as 1gbit or 100mbit.", WHERE, metavar="RATE")
]
LinkLatency = Annotated[
    str | None, flag("Delay added to each packet between hosts, such as 200us.", WHERE, metavar="TIME")
]

Resume = Annotated[
    bool, flag("Go on with what is in --out: run only what is missing.", STOPS, "--resume", default="off")
]
Anew = Annotated[
    bool,
    flag(
        "With --resume: where your own code has changed, set aside what is in --out and measure it again.",
        STOPS,
        "--anew",
        default="off",
    ),
]
Checkpoint = Annotated[
    bool | None, flag("Write a checkpoint after every epoch.", STOPS, "--checkpoint/--no-checkpoint")
]
CheckpointSteps = Annotated[int | None, flag("Write a checkpoint also after every K steps of an epoch.", STOPS)]
HangTimeout = Annotated[
    str | None,
    flag("End a cell whose ranks begin nothing for so long, such as 20s; none waits for ever.", STOPS, metavar="TIME"),
]
MaxRestarts = Annotated[
    int | None, flag("When a worker fails, go on from the last checkpoint, at most K times.", STOPS)
]
MinWorkers = Annotated[
    int | None, flag("Where a training fails for good, train on with fewer workers, but at least K.", STOPS)
]

Out = Annotated[
    Path | None,
    flag("Run folder.", OUTPUT, metavar="FOLDER", default="a new one under runs/", complete=complete.out),
]
Json = Annotated[
    bool,
    flag("Print one JSON object on stdout, nothing else; progress goes to stderr.", OUTPUT, "--json", default="off"),
]
Log = Annotated[str | None, flag("Copy the history to clients, by commas.", OUTPUT, several="log")]


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
