"""`worldsize verify`: proves that every strategy trains as one process would."""

from pathlib import Path
from typing import Annotated

import typer

from worldsize.cli import options as o
from worldsize.cli import recipe_options as r
from worldsize.cli.help import MEASURE, OUTPUT, TRAIN, flag


def verify(
    ctx: typer.Context,
    model: o.Model = None,
    data: o.Data = None,
    train_samples: o.TrainSamples = None,
    data_dir: o.DataDir = None,
    precision: Annotated[
        str | None,
        flag("fp64; with fp32 or bf16 (autocast) only the first step is compared.", TRAIN, choices="arithmetic"),
    ] = None,
    seed: o.Seed = None,
    loader: o.Loader = None,
    loader_workers: o.LoaderWorkers = None,
    strategies: o.Strategies = None,
    world_sizes: o.WorldSizes = None,
    batch_size: o.BatchSize = None,
    bucket_mb: o.BucketMb = None,
    steps: Annotated[int | None, flag("Compare K steps.", MEASURE)] = None,
    learning_rate: r.LearningRate = None,
    optimizer: r.Optimizer = None,
    momentum: r.Momentum = None,
    weight_decay: r.WeightDecay = None,
    label_smoothing: r.LabelSmoothing = None,
    leave_out: r.LeaveOut = None,
    backend: o.Backend = None,
    threads_per_worker: o.ThreadsPerWorker = None,
    out: Annotated[
        Path | None,
        flag("Write verify.json, the table and the logs to this folder.", OUTPUT, metavar="FOLDER", default="nothing"),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Check that every strategy trains as one process would.

    Compares gradients, weights and data step by step with a single-process reference.
    """
    import sys
    import tempfile
    from contextlib import nullcontext

    from worldsize.cli.json_output import print_json
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
    with place as folder, spinner() as starting:
        record = run_verify(settings, Path(folder), sys.argv, starting=starting)
    if out is not None:
        write_proof(out, record)
    if as_json:
        print_json(record.model_dump(mode="json"))
    else:
        print_proof(record)
    if record.exit_status:
        raise typer.Exit(record.exit_status)
