"""The key-value store at which a group meets, behind a socket of ours that is bound to one address.

torch's own store listens on every interface of the machine; whoever can reach it can read and change what ranks agree.
"""

import os
import socket
from datetime import timedelta

from torch.distributed import TCPStore

from worldsize.errors import UsageError
from worldsize.ranks import STARTED_BY_HAND

_PATIENCE = timedelta(minutes=30)
"""How long a rank waits for those on other nodes: as long as torch does."""
_AGENTS_PATIENCE = timedelta(minutes=5)


def listen(address: str, port: int = 0, timeout: timedelta = _AGENTS_PATIENCE) -> tuple[TCPStore, int]:
    """A store that serves on this address alone, and its port; 0 takes a free one. Raises OSError if it cannot."""
    family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    listener = socket.create_server(place, family=family)
    port = int(listener.getsockname()[1])
    # The store owns the descriptor from here on; detach, or Python would close it a second time.
    store = TCPStore(
        address,
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
        multi_tenant=True,
        timeout=timeout,
    )
    return store, port


def store_by_hand(rank: int) -> TCPStore | None:
    """The store of a group that was started by hand, served by rank 0; None where somebody else has one.

    Raises UsageError on rank 0 if it cannot listen on the address that all were given.
    """
    if STARTED_BY_HAND not in os.environ:
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank != 0:
        return TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=_PATIENCE)
    try:
        return listen(address, port, _PATIENCE)[0]
    except OSError as error:
        why = str(error.strerror or error).partition(" (")[0]
        raise UsageError(
            f"rank 0 cannot listen on {address}, port {port}: {why}\n"
            "--master-ip is an address of rank 0's own machine, and --master-port one that is free there."
        ) from None
