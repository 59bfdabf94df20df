"""`worldsize verify`: proves that every strategy trains as one process would."""

from pathlib import Path
from typing import Annotated

import typer

from worldsize.cli import options as o
from worldsize.cli.flags import Flags, takes
from worldsize.cli.panels import OUTPUT

OF_PROOFS = """model data train_samples data_dir precision compile seed loader loader_workers
    strategies world_sizes batch_size bucket_mb find_unused_parameters accumulate steps
    learning_rate optimizer momentum weight_decay label_smoothing leave_out backend threads_per_worker"""

Folder = Annotated[
    Path | None,
    o.flag("Write verify.json, the table and the logs to this folder.", OUTPUT, metavar="FOLDER", default="nothing"),
]


@takes("VerifySettings", only=OF_PROOFS, precision="arithmetic", batch_size="batch_sizes")
def verify(flags: Flags, out: Folder = None, as_json: o.Json = False) -> None:
    """Check that every strategy trains as one process would.

    Compares gradients, weights and data step by step with a single-process reference.
    """
    import sys
    import tempfile
    from contextlib import nullcontext

    from worldsize.cli.output import print_json
    from worldsize.cli.verify_display import print_proof, spinner
    from worldsize.config import VerifySettings, validated
    from worldsize.study.verify import run_verify, write_proof

    settings = validated(VerifySettings, flags.of("VerifySettings"))
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
