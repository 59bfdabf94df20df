"""The flags, defined once: a flag has the same name, meaning and help in every command that has it."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

Model = Annotated[
    str | None,
    typer.Option(help="resnet18, vgg11, torchvision:NAME, package.module:factory or file.py:factory."),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="digits, cifar10, synthetic[:CxHxW[:CLASSES[:SAMPLES]]], package.module:factory or file.py:factory."
    ),
]
DataDir = Annotated[Path | None, typer.Option(help="Folder that holds the data set.")]
TrainSamples = Annotated[int | None, typer.Option(help="Use only the first so many training samples.")]
TestSamples = Annotated[int | None, typer.Option(help="Use only the first so many test samples.")]
Strategy = Annotated[str | None, typer.Option(help="How gradients are synchronised; `doctor` lists the names.")]
Strategies = Annotated[str | None, typer.Option(help="Strategies, separated by commas.")]
WorldSize = Annotated[int | None, typer.Option(help="Number of workers N.")]
WorldSizes = Annotated[str | None, typer.Option(help="Numbers of workers, separated by commas.")]
BatchSize = Annotated[int | None, typer.Option(help="Local batch b: samples per worker per step.")]
BatchSizes = Annotated[str | None, typer.Option(help="Local batches b, separated by commas.")]
GlobalBatch = Annotated[
    int | None, typer.Option(help="The same global batch B at every world size N instead: b = B/N (strong scaling).")
]
Growth = Annotated[int | None, typer.Option(help="Each batch of a sweep is so many times the one before.")]
LargestBatch = Annotated[int | None, typer.Option(help="No batch of a sweep is larger than this.")]
Resolution = Annotated[
    str | None, typer.Option(help="Find the largest batch that fits to within this, such as 5%; 0 finds it exactly.")
]
Steps = Annotated[int | None, typer.Option(help="Time at most this many steps per cell, in blocks taken in turn.")]
Epochs = Annotated[int | None, typer.Option(help="Train whole epochs instead; of several the first only warms up.")]
WarmupSteps = Annotated[int | None, typer.Option(help="Untimed steps before the first timed one.")]
BlockSteps = Annotated[int | None, typer.Option(help="Timed steps in each turn of a cell.")]
TargetInterval = Annotated[
    str | None, typer.Option(help="Stop when each ratio is known to within this, such as 3% (95 % interval).")
]
AccuracyEpochs = Annotated[int | None, typer.Option(help="ddp-large-batch: epochs of the runs that compare accuracy.")]
AccuracyBatch = Annotated[int | None, typer.Option(help="ddp-large-batch: local batch of N workers in these runs.")]
AccuracyBaseBatch = Annotated[int | None, typer.Option(help="ddp-large-batch: batch of one worker in these runs.")]
Evaluate = Annotated[
    str | None, typer.Option(help="Run the test set after each epoch (auto), when a cell has ended (end), or never.")
]
MemoryLimit = Annotated[
    str | None, typer.Option(help="Memory that each worker process may use on a CPU, such as 3GiB (Linux).")
]
Precision = Annotated[str | None, typer.Option(help="fp32, or bf16 (autocast).")]
Seed = Annotated[int | None, typer.Option(help="Seed of weights, sample order and augmentation.")]
Backend = Annotated[str | None, typer.Option(help="auto, gloo or nccl.")]
ThreadsPerWorker = Annotated[int | None, typer.Option(help="Compute threads of each worker, the baseline included.")]
Loader = Annotated[str | None, typer.Option(help="batched, or per-sample (the classic one).")]
LoaderWorkers = Annotated[int | None, typer.Option(help="Worker processes of the per-sample loader, per rank.")]
Optimizer = Annotated[str | None, typer.Option(help="sgd; or muon, for few updates, at a rate of about 0.015.")]
LearningRate = Annotated[float | None, typer.Option(help="Learning rate.")]
LrScaling = Annotated[
    str | None, typer.Option(help="How the rate grows with the global batch B: none, linear (B/B0) or sqrt.")
]
BaseBatch = Annotated[int | None, typer.Option(help="B0: the global batch that --learning-rate belongs to.")]
LrWarmupEpochs = Annotated[float | None, typer.Option(help="Epochs in which the rate grows to that of B.")]
LrSchedule = Annotated[str | None, typer.Option(help="constant, step (by ten at 1/2 and 3/4) or cosine.")]
LabelSmoothing = Annotated[float | None, typer.Option(help="Share of the label given to all classes alike.")]
ClipNorm = Annotated[float | None, typer.Option(help="Scale all gradients together down to at most this norm.")]
Nesterov = Annotated[bool | None, typer.Option("--nesterov", help="Nesterov's momentum in place of the plain one.")]
Momentum = Annotated[float | None, typer.Option(help="Share of the last step that stays in the next.")]
WeightDecay = Annotated[float | None, typer.Option(help="Share of the weights that goes into each step.")]
LeaveOut = Annotated[
    str | None,
    typer.Option(
        help="For demonstrations, what is not agreed on: sampler-epoch, initial-weights, learning-rate, buffers."
    ),
]
Checkpoint = Annotated[
    bool | None,
    typer.Option(
        "--checkpoint/--no-checkpoint", help="Write a checkpoint after every epoch; `train` does if not told otherwise."
    ),
]
CheckpointSteps = Annotated[int | None, typer.Option(help="Write a checkpoint also after so many steps of an epoch.")]
HangTimeout = Annotated[
    str | None, typer.Option(help="End a cell whose ranks begin nothing for so long, such as 20s; none waits for ever.")
]
MaxRestarts = Annotated[
    int | None, typer.Option(help="Go on so often from the last checkpoint of a cell whose worker has failed.")
]
MinWorkers = Annotated[
    int | None, typer.Option(help="Where a training fails for good, train on with fewer workers, at least so many.")
]
Profile = Annotated[
    bool | None,
    typer.Option(
        "--profile", help="After the timed steps, trace a few more: one Chrome trace per rank, and one of all."
    ),
]
Log = Annotated[str | None, typer.Option(help="Copy the history to wandb, tensorboard or mlflow (or several).")]
Out = Annotated[Path | None, typer.Option(help="Run folder; a new one under runs/ if not given.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what is in --out: run only what is missing.")]
Budget = Annotated[str | None, typer.Option(help="How long it may take in all, such as 20s (the default) or 2min.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, nothing else.")]


Hosts = Annotated[
    str | None, typer.Option(help="Emulate this many hosts on this machine, one worker on each (Linux, root).")
]
Link = Annotated[str | None, typer.Option(help="Rate of each emulated host's link, such as 1gbit or 100mbit.")]
LinkLatency = Annotated[str | None, typer.Option(help="Delay added to each packet between hosts, such as 200us.")]


MasterIp = Annotated[str | None, typer.Option(help="Started by hand on each node: the address of node 0.")]
MasterPort = Annotated[int | None, typer.Option(help="Started by hand on each node: a free port of node 0.")]
NumNodes = Annotated[int | None, typer.Option(help="Started by hand on each node: how many nodes there are.")]
NodeRank = Annotated[
    int | None, typer.Option("--rank", help="Started by hand on each node: which one this is, from 0.")
]
BucketMb = Annotated[
    str | None,
    typer.Option(help="MB of gradients that ddp and bucketed send together, or auto."),
]


def settings(ctx: typer.Context, *others: str) -> dict[str, Any]:
    """The flags of this command that were given, read, by the names that settings use; without `others`.

    Raises UsageError for text that cannot be read.
    """
    given = {name: value for name, value in ctx.params.items() if value is not None and name not in others}
    return {
        name: READERS[name](value, f"--{name.replace('_', '-')}") if name in READERS else value
        for name, value in given.items()
    }


BY_HAND = ("master_ip", "master_port", "num_nodes", "rank")


def started(ctx: typer.Context) -> int | None:
    """How many workers were started by others, one of which this process is; None if it is a user's own.

    Raises UsageError where only some of the flags for a start by hand are given.
    """
    from worldsize.errors import UsageError
    from worldsize.launch.by_hand import DEFAULT_PORT, join_by_hand, name_interface, started_workers

    given = {name: ctx.params[name] for name in BY_HAND if ctx.params.get(name) is not None}
    if given:
        missing = [f"--{name.replace('_', '-')}" for name in BY_HAND if name not in given and name != "master_port"]
        if missing:
            raise UsageError(f"a start by hand needs {', '.join(missing)} as well")
        port = given.get("master_port", DEFAULT_PORT)
        join_by_hand(given["master_ip"], given["num_nodes"], given["rank"], port)
    else:
        name_interface()
    return started_workers()


def in_tuples(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags of one configuration as the settings of a study with one cell."""
    several = {"strategy": "strategies", "world_size": "world_sizes", "batch_size": "batch_sizes"}
    return {several.get(name, name): (value,) if name in several else value for name, value in flags.items()}


def names(text: str, flag: str) -> tuple[str, ...]:
    """`a,b` as a tuple."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def number_or_word(text: str, flag: str) -> float | str:
    """`5` as a number, `auto` as it is."""
    try:
        return float(text)
    except ValueError:
        return text


def hosts_or_word(text: str, flag: str) -> int | str | None:
    """`4`, `auto` or `none`; raise UsageError for anything else."""
    if text in ("auto", "none"):
        return None if text == "none" else text
    if text.isdigit():
        return int(text)
    from worldsize.errors import UsageError

    raise UsageError(f"{flag}: {text!r} was given; a number of hosts, auto or none is allowed")


def numbers(text: str, flag: str) -> tuple[int, ...]:
    """`1,2` as a tuple of whole numbers; raise UsageError for anything else."""
    try:
        return tuple(int(part) for part in names(text, flag))
    except ValueError:
        from worldsize.errors import UsageError

        raise UsageError(f"{flag}: {text!r} was given; whole numbers separated by commas are allowed") from None


def size(text: str, flag: str) -> int:
    """`16MiB` or `4096` in bytes; raise UsageError for anything else."""
    from worldsize.config import SIZES, quantity
    from worldsize.errors import UsageError

    try:
        return int(text) if text.isdigit() else round(quantity(text, SIZES, "a size such as 16MiB or 4096"))
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None


def share(text: str, flag: str) -> float:
    """`3%` or `0.03` as 0.03; raise UsageError for anything else."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        from worldsize.errors import UsageError

        raise UsageError(f"{flag}: {text!r} was given; a share such as 3% or 0.03 is allowed") from None


READERS: dict[str, Callable[[str, str], Any]] = {
    "strategies": names,
    "leave_out": names,
    "log": names,
    "collectives": names,
    "world_sizes": numbers,
    "batch_sizes": numbers,
    "target_interval": share,
    "resolution": share,
    "fail_above": share,
    "bucket_mb": number_or_word,
    "top": size,
    "hosts": hosts_or_word,
}
"""How the text of a flag is read, where it is no plain value; by the flag's name."""
