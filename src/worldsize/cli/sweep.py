"""`worldsize sweep`: the largest batch that fits, and the smallest that is worth it."""

import typer

from worldsize.cli import options as o


def sweep(
    ctx: typer.Context,
    model: o.Model = None,
    data: o.Data = None,
    data_dir: o.DataDir = None,
    train_samples: o.TrainSamples = None,
    strategy: o.Strategy = None,
    world_size: o.WorldSize = None,
    batch_size: o.BatchSize = None,
    growth: o.Growth = None,
    largest_batch: o.LargestBatch = None,
    resolution: o.Resolution = None,
    memory_limit: o.MemoryLimit = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    precision: o.Precision = None,
    seed: o.Seed = None,
    backend: o.Backend = None,
    threads_per_worker: o.ThreadsPerWorker = None,
    loader: o.Loader = None,
    hosts: o.Hosts = None,
    link: o.Link = None,
    link_latency: o.LinkLatency = None,
    out: o.Out = None,
    resume: o.Resume = False,
    as_json: o.Json = False,
) -> None:
    """Grow the local batch until memory or the data ends: largest batch, peak memory, step time, knee."""
    from worldsize.cli.run import run_and_show, stored_settings
    from worldsize.config import LaunchSettings

    flags = o.in_tuples(o.settings(ctx, "out", "resume", "as_json"))
    fresh = {
        "sweep": True,
        "experiment": "batch-sweep",
        "evaluate": "never",
        "strategies": ("ddp" if (world_size or 1) > 1 else "single",),
        "world_sizes": (1,),
    }
    values = {**(stored_settings(out) if resume else fresh), **flags}
    run_and_show(values, out, LaunchSettings(), name="sweep", resume=resume, as_json=as_json)
