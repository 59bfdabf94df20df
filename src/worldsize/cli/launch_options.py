"""The flags that say who starts the workers; the same in every command that has them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from worldsize.cli.help import WHERE, flag

if TYPE_CHECKING:
    from worldsize.config import LaunchSettings

Launcher = Annotated[str | None, flag("Launcher: what starts the workers.", WHERE, choices="launcher")]
Nodes = Annotated[int | None, flag("Slurm, Ray: number of nodes.", WHERE)]
WorkersPerNode = Annotated[int | None, flag("Slurm, Ray: workers per node, at most.", WHERE)]
Time = Annotated[str | None, flag("Slurm: time limit of the job, in minutes or [days-]h:m:s.", WHERE, metavar="TIME")]
Partition = Annotated[str | None, flag("Slurm: partition.", WHERE, metavar="NAME")]
PrintScript = Annotated[bool | None, flag("Slurm: print the batch script; submit nothing.", WHERE, "--print-script")]
Address = Annotated[str | None, flag("Ray: address of a running cluster; none is started.", WHERE, metavar="HOST:PORT")]
Arrangement = Annotated[
    str | None, flag("Ray: pack workers on few nodes or spread them over many.", WHERE, choices="arrangement")
]
MasterIp = Annotated[str | None, flag("Manual start on each node: address of node 0.", WHERE, metavar="ADDRESS")]
MasterPort = Annotated[int | None, flag("Manual start: a free port on node 0.", WHERE)]
NumNodes = Annotated[int | None, flag("Manual start: number of nodes.", WHERE)]
NodeRank = Annotated[int | None, flag("Manual start: rank of this node, from 0.", WHERE, "--rank")]

NAMES = ("launcher", "nodes", "workers_per_node", "partition", "time", "print_script", "address", "arrangement")


def launch_settings(ctx: typer.Context) -> "LaunchSettings":
    """The flags of this command that were given. Raises UsageError for what does not fit together."""
    from worldsize.config import LaunchSettings, validated

    given: dict[str, Any] = {name: ctx.params[name] for name in NAMES if ctx.params.get(name) is not None}
    return validated(LaunchSettings, given)


BY_HAND = ("master_ip", "master_port", "num_nodes", "rank")


def started(ctx: typer.Context) -> int | None:
    """How many workers were started by others, one of which this process is; None if it is a user's own.

    Raises UsageError where only some of the flags for a start by hand are given.
    """
    from worldsize.config import ByHandSettings, validated
    from worldsize.errors import UsageError
    from worldsize.launch.by_hand import join_by_hand, name_interface, started_workers

    given = {name: ctx.params[name] for name in BY_HAND if ctx.params.get(name) is not None}
    if given:
        missing = [f"--{name.replace('_', '-')}" for name in BY_HAND if name not in given and name != "master_port"]
        if missing:
            raise UsageError(f"a start by hand needs {', '.join(missing)} as well")
        node = validated(ByHandSettings, given)
        join_by_hand(node.master_ip, node.num_nodes, node.rank, node.master_port)
    else:
        name_interface()
    return started_workers()
