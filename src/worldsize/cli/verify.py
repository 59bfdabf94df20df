"""`worldsize verify`: proves that every strategy trains as one process would."""

from pathlib import Path
from typing import Annotated

import typer

from worldsize.cli import options as o


def verify(
    ctx: typer.Context,
    model: o.Model = None,
    data: o.Data = None,
    data_dir: o.DataDir = None,
    train_samples: o.TrainSamples = None,
    strategies: o.Strategies = None,
    world_sizes: o.WorldSizes = None,
    batch_size: o.BatchSize = None,
    steps: Annotated[int | None, typer.Option(help="Steps that are compared; 3 if not given.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp64, or fp32 or bf16 (autocast), where only the first step is compared.")
    ] = None,
    seed: o.Seed = None,
    backend: o.Backend = None,
    threads_per_worker: o.ThreadsPerWorker = None,
    loader: o.Loader = None,
    loader_workers: o.LoaderWorkers = None,
    optimizer: o.Optimizer = None,
    learning_rate: o.LearningRate = None,
    momentum: o.Momentum = None,
    weight_decay: o.WeightDecay = None,
    label_smoothing: o.LabelSmoothing = None,
    bucket_mb: o.BucketMb = None,
    leave_out: o.LeaveOut = None,
    out: Annotated[Path | None, typer.Option(help="Write verify.json, the table and the logs to this folder.")] = None,
    as_json: o.Json = False,
) -> None:
    """Prove that every strategy trains as one process would: gradients, weights, ranks and data, step by step."""
    import sys
    import tempfile
    from contextlib import nullcontext

    from worldsize.cli.verify_display import print_proof, spinner
    from worldsize.config import VerifySettings, validated
    from worldsize.study.verify import run_verify, write_proof

    flags = o.settings(ctx, "out", "as_json")
    if "batch_size" in flags:
        flags["batch_sizes"] = (flags.pop("batch_size"),)
    if "precision" in flags:
        flags["arithmetic"] = flags.pop("precision")
    settings = validated(VerifySettings, flags)
    place = nullcontext(str(out)) if out else tempfile.TemporaryDirectory(prefix="worldsize-")
    with place as folder, spinner(quiet=as_json) as starting:
        record = run_verify(settings, Path(folder), sys.argv, starting=starting)
    if out is not None:
        write_proof(out, record)
    if as_json:
        print(record.model_dump_json())
    else:
        print_proof(record)
    if record.exit_status:
        raise typer.Exit(record.exit_status)
