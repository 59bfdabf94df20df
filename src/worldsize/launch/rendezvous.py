"""A rendezvous for one machine that listens on one address alone: loopback, or the switch of emulated hosts.

torch's own c10d rendezvous opens its store on every interface. Here the listening socket is made by us, bound to
that address, and handed to the store; workers then use the agent's store exactly as they do under torchrun.
"""

import uuid

from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from worldsize.ranks.store import listen

LOOPBACK = "127.0.0.1"


class LocalRendezvous(RendezvousHandler):
    """One agent, alone: it meets nobody, and shares its store with its workers."""

    def __init__(self, address: str = LOOPBACK) -> None:
        self.address = address
        self.store, self.port = listen(address)
        self._run_id = uuid.uuid4().hex
        self._closed = False

    def get_backend(self) -> str:
        """Name of this rendezvous."""
        return "worldsize-local"

    @property
    def use_agent_store(self) -> bool:
        """Workers connect to the agent's store instead of opening one of their own."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """The group of one agent."""
        return RendezvousInfo(self.store, 0, 1, RendezvousStoreInfo(self.address, self.port))

    def is_closed(self) -> bool:
        """Whether the rendezvous was closed."""
        return self._closed

    def set_closed(self) -> None:
        """Close the rendezvous."""
        self._closed = True

    def num_nodes_waiting(self) -> int:
        """Nobody ever waits to join."""
        return 0

    def get_run_id(self) -> str:
        """A name for this start of the job."""
        return self._run_id

    def shutdown(self) -> bool:
        """Close the rendezvous."""
        self._closed = True
        return True
