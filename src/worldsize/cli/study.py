"""`worldsize study`: a grid of strategies × world sizes × local batches."""

from typing import Annotated

import typer

from worldsize.cli import launch_options as lo
from worldsize.cli import options as o


def study(
    ctx: typer.Context,
    preset: Annotated[
        str | None, typer.Argument(help="Name of a preset, or a TOML file with the same keys as the flags.")
    ] = None,
    model: o.Model = None,
    data: o.Data = None,
    data_dir: o.DataDir = None,
    train_samples: o.TrainSamples = None,
    test_samples: o.TestSamples = None,
    strategies: o.Strategies = None,
    world_sizes: o.WorldSizes = None,
    batch_sizes: o.BatchSizes = None,
    global_batch: o.GlobalBatch = None,
    growth: o.Growth = None,
    largest_batch: o.LargestBatch = None,
    resolution: o.Resolution = None,
    budget: o.Budget = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    warmup_steps: o.WarmupSteps = None,
    block_steps: o.BlockSteps = None,
    target_interval: o.TargetInterval = None,
    precision: o.Precision = None,
    seed: o.Seed = None,
    backend: o.Backend = None,
    threads_per_worker: o.ThreadsPerWorker = None,
    loader: o.Loader = None,
    loader_workers: o.LoaderWorkers = None,
    evaluate: o.Evaluate = None,
    memory_limit: o.MemoryLimit = None,
    optimizer: o.Optimizer = None,
    learning_rate: o.LearningRate = None,
    lr_scaling: o.LrScaling = None,
    base_batch: o.BaseBatch = None,
    lr_warmup_epochs: o.LrWarmupEpochs = None,
    lr_schedule: o.LrSchedule = None,
    label_smoothing: o.LabelSmoothing = None,
    momentum: o.Momentum = None,
    clip_norm: o.ClipNorm = None,
    nesterov: o.Nesterov = None,
    weight_decay: o.WeightDecay = None,
    leave_out: o.LeaveOut = None,
    accuracy_epochs: o.AccuracyEpochs = None,
    accuracy_batch: o.AccuracyBatch = None,
    accuracy_base_batch: o.AccuracyBaseBatch = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="World size 1 is run by `single` only, by each strategy (`wrapped`), or by `both`."),
    ] = None,
    allow_oversubscribed: Annotated[
        bool | None, typer.Option("--allow-oversubscribed", help="Print speed-ups with more threads than cores too.")
    ] = None,
    bucket_mb: o.BucketMb = None,
    checkpoint: o.Checkpoint = None,
    checkpoint_steps: o.CheckpointSteps = None,
    hang_timeout: o.HangTimeout = None,
    max_restarts: o.MaxRestarts = None,
    min_workers: o.MinWorkers = None,
    hosts: o.Hosts = None,
    link: o.Link = None,
    link_latency: o.LinkLatency = None,
    master_ip: o.MasterIp = None,
    master_port: o.MasterPort = None,
    num_nodes: o.NumNodes = None,
    rank: o.NodeRank = None,
    launcher: lo.Launcher = None,
    nodes: lo.Nodes = None,
    workers_per_node: lo.WorkersPerNode = None,
    partition: lo.Partition = None,
    time: lo.Time = None,
    print_script: lo.PrintScript = None,
    address: lo.Address = None,
    arrangement: lo.Arrangement = None,
    profile: o.Profile = None,
    log: o.Log = None,
    out: o.Out = None,
    resume: o.Resume = False,
    as_json: o.Json = False,
) -> None:
    """Measure how training scales: every cell of a grid, in turns, then a table, a verdict and a report."""
    from worldsize.cli.run import run_and_show, run_inside_and_show, stored_settings
    from worldsize.config import read_study

    flags = o.settings(ctx, "preset", "out", "resume", "as_json", *o.BY_HAND, *lo.NAMES)
    base = stored_settings(out) if resume else read_study(preset) if preset else {}
    if flags.keys() & {"epochs", "steps", "budget"}:  # how much is measured is said by flags alone
        for name in ("epochs", "steps", "budget"):
            base.pop(name, None)
    if "batch_sizes" in flags:
        base.pop("global_batch", None)
    elif "global_batch" in flags:
        base.pop("batch_sizes", None)
    name = preset.rsplit("/", 1)[-1].removesuffix(".toml") if preset else "study"
    launch = lo.launch_settings(ctx)
    if o.started(ctx) is None:
        values = {**base, **flags}
        run_and_show(values, out, launch, name=name, resume=resume, as_json=as_json, source=preset or "")
    else:
        run_inside_and_show({**base, **flags}, out, name=name, resume=resume, as_json=as_json)
