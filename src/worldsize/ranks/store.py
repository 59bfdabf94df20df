"""The key-value store at which a group meets, and turns over it.

The store is behind a socket of ours that is bound to one address. torch's own listens on every interface of the
machine; whoever can reach it can read and change what ranks agree. The agent of a job posts a turn under a number, and
each rank answers under the same number.
"""

import json
import os
import socket
from datetime import timedelta
from typing import Any

from torch.distributed import DistNetworkError, DistStoreError, TCPStore

from worldsize.errors import UsageError
from worldsize.ranks import STARTED_BY_HAND
from worldsize.ranks.turns import Reply, Turn

_PATIENCE = timedelta(minutes=30)
"""How long a rank waits for those on other nodes: as long as torch does."""
_AGENTS_PATIENCE = timedelta(minutes=5)
_TURN_PATIENCE = timedelta(days=365)
"""How long an idle worker waits for its turn; it ends with its agent, so there is no need to look at a clock."""


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


def turn_key(number: int) -> str:
    """Key of turn `number`."""
    return f"worldsize/turn/{number}"


def reply_key(number: int, rank: int) -> str:
    """Key of a rank's answer to turn `number`."""
    return f"worldsize/reply/{number}/{rank}"


def over_key(number: int, node: int) -> str:
    """Key that says that turn `number` is over; of another node than the first, that its workers are stopped."""
    return f"worldsize/over/{number}/{node}"


class StoreTurns:
    """A worker's end. It has a connection of its own: a wait would block all others that share one."""

    def __init__(self, host: str, port: int, rank: int) -> None:
        self._store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_TURN_PATIENCE)
        self._rank = rank
        self._number = 0

    def reply(self, reply: Reply) -> None:
        """Answer the turn before; the first answer, number 0, says that the rank is ready."""
        self._store.set(reply_key(self._number, self._rank), reply.model_dump_json())

    def next(self) -> Turn:
        """Wait for the next turn; the wait is in the kernel, nothing spins."""
        self._number += 1
        return Turn.model_validate_json(self._store.get(turn_key(self._number)))


class StoreDesk:
    """The agent's end."""

    def __init__(self, host: str, port: int, processes: int) -> None:
        self._store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_TURN_PATIENCE)
        self._processes = processes

    def post(self, number: int, turn: dict[str, Any]) -> None:
        """Give all ranks their next turn."""
        self._store.set(turn_key(number), json.dumps(turn))

    def turn(self, number: int) -> dict[str, Any] | None:
        """Wait for a turn; None once the store is gone because the agent of the first node ended."""
        found = self._get(turn_key(number))
        return None if found is None else dict(json.loads(found))

    def tell_over(self, number: int, node: int) -> None:
        """Tell the others that a turn is over, as the first node; another one tells it that its workers are stopped."""
        self._store.set(over_key(number, node), "")

    def wait_over(self, number: int, node: int) -> bool:
        """Wait until a node has told so; False once the store is gone."""
        return self._get(over_key(number, node)) is not None

    def _get(self, key: str) -> bytes | None:
        try:
            return bytes(self._store.get(key))
        except (DistNetworkError, DistStoreError):
            return None

    def collect(self, number: int) -> list[Any] | None:
        """Wait for the replies of all ranks; None once the store is gone because the agent ended."""
        found = []
        for rank in range(self._processes):
            reply = self._get(reply_key(number, rank))
            if reply is None:
                return None
            found.append(json.loads(reply))
        return found
