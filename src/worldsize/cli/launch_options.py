"""The flags that say who starts the workers; the same in every command that has them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from worldsize.config import LaunchSettings

Launcher = Annotated[str | None, typer.Option(help="Who starts the workers: local, slurm or ray.")]
Nodes = Annotated[int | None, typer.Option(help="Nodes to ask a cluster's scheduler for.")]
WorkersPerNode = Annotated[
    int | None, typer.Option(help="Most workers on one node; default: as many as it has GPUs, or one.")
]
Partition = Annotated[str | None, typer.Option(help="Slurm: the partition to submit to.")]
Time = Annotated[str | None, typer.Option(help="Slurm: how long the job may take: minutes, or [days-]h:m:s.")]
PrintScript = Annotated[
    bool | None, typer.Option("--print-script", help="Slurm: print what would be submitted, and submit nothing.")
]
Address = Annotated[str | None, typer.Option(help="Ray: the cluster's address; default: RAY_ADDRESS, or one here.")]
Arrangement = Annotated[
    str | None, typer.Option(help="Ray: workers on as few nodes as possible (packed) or on as many (spread).")
]

NAMES = ("launcher", "nodes", "workers_per_node", "partition", "time", "print_script", "address", "arrangement")


def launch_settings(ctx: typer.Context) -> "LaunchSettings":
    """The flags of this command that were given. Raises UsageError for what does not fit together."""
    from worldsize.config import LaunchSettings, validated

    given: dict[str, Any] = {name: ctx.params[name] for name in NAMES if ctx.params.get(name) is not None}
    return validated(LaunchSettings, given)
