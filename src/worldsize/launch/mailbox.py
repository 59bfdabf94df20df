"""Turns over the agent's store: the agent posts a turn under a number, each rank answers under the same number."""

import json
from datetime import timedelta
from typing import Any

from torch.distributed import DistNetworkError, DistStoreError, TCPStore

from worldsize.ranks.turns import Reply, Turn

_PATIENCE = timedelta(days=365)
"""How long an idle worker waits for its turn; it ends with its agent, so there is no need to look at a clock."""


def turn_key(number: int) -> str:
    """Key of turn `number`."""
    return f"worldsize/turn/{number}"


def reply_key(number: int, rank: int) -> str:
    """Key of a rank's answer to turn `number`."""
    return f"worldsize/reply/{number}/{rank}"


class StoreTurns:
    """A worker's end. It has a connection of its own: a wait would block all others that share one."""

    def __init__(self, host: str, port: int, rank: int) -> None:
        self._store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_PATIENCE)
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
        self._store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_PATIENCE)
        self._processes = processes

    def post(self, number: int, turn: dict[str, Any]) -> None:
        """Give all ranks their next turn."""
        self._store.set(turn_key(number), json.dumps(turn))

    def collect(self, number: int) -> list[Any] | None:
        """Wait for the replies of all ranks; None once the store is gone because the agent ended."""
        try:
            return [json.loads(self._store.get(reply_key(number, rank))) for rank in range(self._processes)]
        except (DistNetworkError, DistStoreError):
            return None
