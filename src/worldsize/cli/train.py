"""`worldsize train`: one configuration."""

from typing import Any

import typer

from worldsize.cli import launch_options as lo
from worldsize.cli import options as o


def train(
    ctx: typer.Context,
    model: o.Model = None,
    data: o.Data = None,
    data_dir: o.DataDir = None,
    train_samples: o.TrainSamples = None,
    test_samples: o.TestSamples = None,
    strategy: o.Strategy = None,
    world_size: o.WorldSize = None,
    batch_size: o.BatchSize = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
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
    """Train one configuration (one epoch if not told otherwise) and say how it went. Also under torchrun."""
    from worldsize.cli.run import run_and_show, run_inside_and_show, stored_settings

    started, launch = o.started(ctx), lo.launch_settings(ctx)
    workers = world_size if world_size is not None else started or (1 if resume else launch.workers)
    flags = o.in_tuples(o.settings(ctx, "out", "resume", "as_json", *o.BY_HAND, *lo.NAMES))
    fresh: dict[str, Any] = {
        "world_sizes": (workers,),
        "strategies": ("ddp" if workers > 1 else "single",),
        "epochs": 1 if steps is None else None,
        "checkpoint": steps is None,
    }
    values = {**(stored_settings(out) if resume else fresh), **flags}
    if started is None:
        run_and_show(values, out, launch, name="train", resume=resume, as_json=as_json)
    else:
        run_inside_and_show(values, out, name="train", resume=resume, as_json=as_json)
