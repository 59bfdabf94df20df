"""Be one node of a group that is started by hand, one command on each: `--master-ip --num-nodes --rank`."""

import errno
import os
import socket

import psutil

from worldsize.config.launch import DEFAULT_PORT
from worldsize.errors import UsageError
from worldsize.measure.machine import loopback_interface
from worldsize.ranks import STARTED_BY_HAND

SOCKET_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Name the network interface that carries the messages."""
TORCHRUN_PORT = 29400
"""Where its c10d rendezvous listens unless told otherwise."""


def join_by_hand(master_ip: str, num_nodes: int, rank: int, port: int = DEFAULT_PORT) -> None:
    """Set the variables by which torch finds the group, and the interface that leads to the master.

    What the user has set wins. Raises UsageError for a rank that cannot be, or a master that no interface leads to.
    """
    if not 0 <= rank < num_nodes:
        raise UsageError(f"rank {rank} of {num_nodes} nodes was given; ranks are 0 to {num_nodes - 1}")
    interface = interface_to(master_ip)
    if rank == 0:
        _check_port(master_ip, port)
    group = {
        "MASTER_ADDR": master_ip,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(num_nodes),
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        STARTED_BY_HAND: "1",
    }
    os.environ.update(group)
    for name in SOCKET_VARIABLES:
        os.environ.setdefault(name, interface)


def _check_port(address: str, port: int) -> None:
    """Raise UsageError for a port of this address that another process listens on; nothing listens for it here."""
    try:
        family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the store that comes next
            probe.bind(place)
    except OverflowError:
        raise UsageError(f"--master-port {port} was given; ports are 1 to 65535") from None
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            return  # what else is wrong is told by those who use it
        raise UsageError(
            f"--master-port {port} cannot be had on this node: {os.strerror(error.errno).lower()}\n"
            "Give another --master-port, the same on every node."
        ) from None


def started_workers() -> int | None:
    """How many workers torchrun, or a command on each node, has started; None where this process is a user's own."""
    here = "TORCHELASTIC_RUN_ID" in os.environ or STARTED_BY_HAND in os.environ
    return int(os.environ["WORLD_SIZE"]) if here else None


def torchrun_words() -> tuple[str, ...]:
    """The words of a torchrun that would start such workers again, up to the command; empty where it started none.

    The address at which nodes meet is no variable of a worker: the first node at torchrun's own port stands for it.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ()
    nodes, each = os.environ.get("GROUP_WORLD_SIZE", "1"), os.environ.get("LOCAL_WORLD_SIZE", "1")
    if nodes == "1":
        return ("torchrun", "--standalone", "--nproc-per-node", each, "-m", "--")
    meeting = f"{os.environ['MASTER_ADDR']}:{TORCHRUN_PORT}"
    at = ("--rdzv-backend", "c10d", "--rdzv-endpoint", meeting)
    return ("torchrun", "--nnodes", nodes, "--nproc-per-node", each, *at, "-m", "--")


def name_interface() -> None:
    """Under torchrun, let the messages take the interface that leads to the first node, and so record it.

    gloo would take the one of the host's own name, which on many is loopback, where no other node is. What the user
    has set wins. An interface that cannot be found, or that is loopback and there are several nodes, is left to gloo.
    """
    master = os.environ.get("MASTER_ADDR")
    if "TORCHELASTIC_RUN_ID" not in os.environ or not master:
        return
    try:
        interface = interface_to(master)
    except UsageError:
        return
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1" or interface != loopback_interface():
        for name in SOCKET_VARIABLES:
            os.environ.setdefault(name, interface)


def interface_to(address: str) -> str:
    """Name of the network interface whose address this machine would use to reach another."""
    try:
        family = socket.getaddrinfo(address, None, type=socket.SOCK_DGRAM)[0][0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # sends nothing: it only asks for the route
            own = probe.getsockname()[0]
    except OSError as error:
        raise UsageError(f"--master-ip {address} cannot be reached: {error.strerror or error}") from None
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == own for each in addresses):
            return str(name)
    raise UsageError(f"--master-ip {address}: no network interface has the address {own} that leads to it")
