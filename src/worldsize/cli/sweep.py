"""`worldsize sweep`: the largest batch that fits, and the smallest that is worth it."""

import typer

from worldsize.cli import options as o


def sweep(
    ctx: typer.Context,
    model: o.Model = None,
    data: o.Data = None,
    train_samples: o.TrainSamples = None,
    data_dir: o.DataDir = None,
    precision: o.Precision = None,
    seed: o.Seed = None,
    loader: o.Loader = None,
    batch_size: o.BatchSize = None,
    growth: o.Growth = None,
    largest_batch: o.LargestBatch = None,
    resolution: o.Resolution = None,
    strategy: o.Strategy = None,
    world_size: o.WorldSize = None,
    steps: o.Steps = None,
    epochs: o.Epochs = None,
    memory_limit: o.MemoryLimit = None,
    hang_timeout: o.HangTimeout = None,
    backend: o.Backend = None,
    threads_per_worker: o.ThreadsPerWorker = None,
    hosts: o.Hosts = None,
    link: o.Link = None,
    link_latency: o.LinkLatency = None,
    resume: o.Resume = False,
    anew: o.Anew = False,
    out: o.Out = None,
    as_json: o.Json = False,
) -> None:
    """Find the largest local batch that fits, and the best one.

    Grows the batch until memory or the data run out. Reports the largest batch, peak memory, step time, and the knee:
    the smallest batch that is as fast as any.
    """
    from worldsize.cli.run import run_and_show
    from worldsize.config import LaunchSettings, SweepSettings, validated
    from worldsize.study.again import settings_to_resume

    again = o.resuming(resume=resume, anew=anew)
    flags = o.in_tuples(o.settings(ctx, "out", "resume", "anew", "as_json"))
    settings = settings_to_resume(out, flags) if resume else validated(SweepSettings, flags).study
    run_and_show(settings, out, LaunchSettings(), name="sweep", resume=again, as_json=as_json)
