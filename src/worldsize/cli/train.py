"""`worldsize train`: one configuration."""

import typer

from worldsize.cli import launch_options as lo
from worldsize.cli import options as o
from worldsize.cli import recipe_options as r


def train(
    ctx: typer.Context,
    model: o.Model = None,
    data: o.Data = None,
    train_samples: o.TrainSamples = None,
    test_samples: o.TestSamples = None,
    data_dir: o.DataDir = None,
    precision: o.Precision = None,
    seed: o.Seed = None,
    loader: o.Loader = None,
    loader_workers: o.LoaderWorkers = None,
    strategy: o.Strategy = None,
    world_size: o.WorldSize = None,
    batch_size: o.BatchSize = None,
    bucket_mb: o.BucketMb = None,
    epochs: o.Epochs = None,
    steps: o.Steps = None,
    evaluate: o.Evaluate = None,
    profile: o.Profile = None,
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
    log: o.Log = None,
) -> None:
    """Train one configuration and report on it.

    Trains one epoch by default. Also runs under torchrun.
    """
    from worldsize.cli.run import run_and_show, run_inside_and_show
    from worldsize.config import TrainSettings, validated
    from worldsize.study.again import settings_to_resume

    started = lo.started(ctx)
    again = o.resuming(resume=resume, anew=anew)
    flags = o.in_tuples(o.settings(ctx, "out", "resume", "anew", "as_json", *lo.BY_HAND, *lo.NAMES))
    launch = lo.launch_settings(ctx)
    if not resume and "world_sizes" not in flags and (started is not None or launch.nodes or launch.workers_per_node):
        flags["world_sizes"] = (started or launch.workers,)
    settings = settings_to_resume(out, flags) if resume else validated(TrainSettings, flags).study
    if started is None:
        run_and_show(settings, out, launch, name="train", resume=again, as_json=as_json)
    else:
        run_inside_and_show(settings, out, name="train", resume=again, as_json=as_json)
