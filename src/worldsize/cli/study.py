"""`worldsize study`: a grid of strategies × world sizes × local batches."""

from typing import Annotated

import typer

from worldsize.cli import complete
from worldsize.cli import launch_options as lo
from worldsize.cli import options as o
from worldsize.cli import recipe_options as r
from worldsize.cli.help import argument


def study(
    ctx: typer.Context,
    preset: Annotated[
        str | None,
        argument("Name of a preset, or a TOML file with the same keys as the flags.", complete=complete.study),
    ] = None,
    model: o.Model = None,
    data: o.Data = None,
    train_samples: o.TrainSamples = None,
    test_samples: o.TestSamples = None,
    data_dir: o.DataDir = None,
    precision: o.Precision = None,
    seed: o.Seed = None,
    loader: o.Loader = None,
    loader_workers: o.LoaderWorkers = None,
    strategies: o.Strategies = None,
    world_sizes: o.WorldSizes = None,
    batch_sizes: o.BatchSizes = None,
    global_batch: o.GlobalBatch = None,
    bucket_mb: o.BucketMb = None,
    growth: o.Growth = None,
    largest_batch: o.LargestBatch = None,
    resolution: o.Resolution = None,
    budget: o.Budget = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    target_interval: o.TargetInterval = None,
    warmup_steps: o.WarmupSteps = None,
    block_steps: o.BlockSteps = None,
    baseline: o.Baseline = None,
    evaluate: o.Evaluate = None,
    profile: o.Profile = None,
    allow_oversubscribed: o.AllowOversubscribed = None,
    learning_rate: r.LearningRate = None,
    optimizer: r.Optimizer = None,
    lr_scaling: r.LrScaling = None,
    base_batch: r.BaseBatch = None,
    lr_warmup_epochs: r.LrWarmupEpochs = None,
    lr_schedule: r.LrSchedule = None,
    momentum: r.Momentum = None,
    nesterov: r.Nesterov = None,
    weight_decay: r.WeightDecay = None,
    label_smoothing: r.LabelSmoothing = None,
    clip_norm: r.ClipNorm = None,
    leave_out: r.LeaveOut = None,
    seeds: r.Seeds = None,
    target_accuracy: r.TargetAccuracy = None,
    accuracy_epochs: r.AccuracyEpochs = None,
    accuracy_batch: r.AccuracyBatch = None,
    accuracy_base_batch: r.AccuracyBaseBatch = None,
    backend: o.Backend = None,
    threads_per_worker: o.ThreadsPerWorker = None,
    memory_limit: o.MemoryLimit = None,
    launcher: lo.Launcher = None,
    nodes: lo.Nodes = None,
    workers_per_node: lo.WorkersPerNode = None,
    time: lo.Time = None,
    partition: lo.Partition = None,
    print_script: lo.PrintScript = None,
    address: lo.Address = None,
    arrangement: lo.Arrangement = None,
    hosts: o.Hosts = None,
    link: o.Link = None,
    link_latency: o.LinkLatency = None,
    master_ip: lo.MasterIp = None,
    master_port: lo.MasterPort = None,
    num_nodes: lo.NumNodes = None,
    rank: lo.NodeRank = None,
    resume: o.Resume = False,
    anew: o.Anew = False,
    checkpoint: o.Checkpoint = None,
    checkpoint_steps: o.CheckpointSteps = None,
    hang_timeout: o.HangTimeout = None,
    max_restarts: o.MaxRestarts = None,
    min_workers: o.MinWorkers = None,
    out: o.Out = None,
    as_json: o.Json = False,
    print_toml: o.PrintToml = False,
    log: o.Log = None,
) -> None:
    """Measure how training scales over a grid of cells.

    A cell is one configuration: strategy, world size and local batch. Prints a verdict, advice and a table, and writes
    a report. Also runs under torchrun.
    """
    from worldsize.cli.run import run_and_show, run_inside_and_show
    from worldsize.config import StudySettings, laid_over, read_study, validated
    from worldsize.study.again import settings_to_resume

    again = o.resuming(resume=resume, anew=anew)
    flags = o.settings(ctx, "preset", "out", "resume", "anew", "as_json", "print_toml", *lo.BY_HAND, *lo.NAMES)
    if resume:
        settings = settings_to_resume(out, flags)
    else:
        settings = validated(StudySettings, laid_over(read_study(preset) if preset else {}, flags), preset or "")
    name = preset.rsplit("/", 1)[-1].removesuffix(".toml") if preset else "study"
    launch = lo.launch_settings(ctx)
    if print_toml:
        from worldsize.cli.print_toml import print_study

        print_study(settings, ctx, as_json=as_json)
        return
    if lo.started(ctx) is None:
        run_and_show(settings, out, launch, name=name, resume=again, as_json=as_json)
    else:
        run_inside_and_show(settings, out, name=name, resume=again, as_json=as_json)
