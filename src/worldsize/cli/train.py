"""`worldsize train`: one configuration."""

import os
from typing import Any

from worldsize.cli import options as o


def train(
    model: o.Model = None,
    data: o.Data = None,
    data_dir: o.DataDir = None,
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
    learning_rate: o.LearningRate = None,
    lr_scaling: o.LrScaling = None,
    base_batch: o.BaseBatch = None,
    lr_warmup_epochs: o.LrWarmupEpochs = None,
    lr_schedule: o.LrSchedule = None,
    label_smoothing: o.LabelSmoothing = None,
    bucket_mb: o.BucketMb = None,
    hosts: o.Hosts = None,
    link: o.Link = None,
    link_latency: o.LinkLatency = None,
    out: o.Out = None,
    resume: o.Resume = False,
    as_json: o.Json = False,
) -> None:
    """Train one configuration (one epoch if not told otherwise) and say how it went. Also under torchrun."""
    from worldsize.cli.run import run_and_show, run_inside_and_show, stored_settings

    started = int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else None
    workers = world_size if world_size is not None else started or 1
    flags = o.given(
        model=model,
        data=data,
        data_dir=data_dir,
        strategies=None if strategy is None else (strategy,),
        world_sizes=None if world_size is None else (world_size,),
        batch_sizes=None if batch_size is None else (batch_size,),
        steps=steps,
        epochs=epochs,
        precision=precision,
        seed=seed,
        backend=backend,
        threads_per_worker=threads_per_worker,
        loader=loader,
        learning_rate=learning_rate,
        lr_scaling=lr_scaling,
        base_batch=base_batch,
        lr_warmup_epochs=lr_warmup_epochs,
        lr_schedule=lr_schedule,
        label_smoothing=label_smoothing,
        bucket_mb=o.number_or_word(bucket_mb),
        hosts=hosts,
        link=link,
        link_latency=link_latency,
    )
    fresh: dict[str, Any] = {
        "world_sizes": (workers,),
        "strategies": ("ddp" if workers > 1 else "single",),
        "epochs": 1 if steps is None else None,
    }
    values = {**(stored_settings(out) if resume else fresh), **flags}
    if started is None:
        run_and_show(values, out, name="train", resume=resume, as_json=as_json)
    else:
        run_inside_and_show(values, out, as_json=as_json)
