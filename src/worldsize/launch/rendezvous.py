"""A rendezvous that listens on one address alone: loopback, the switch of emulated hosts, or the first node.

torch's own c10d rendezvous opens its store on every interface. Here the listening socket is made by us, bound to
that address, and handed to the store; workers then use the agent's store exactly as they do under torchrun.
"""

import uuid

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from worldsize.ranks.store import listen

LOOPBACK = "127.0.0.1"


class LocalRendezvous(RendezvousHandler):
    """The agent of the first node, alone or with others that join it: its store is that of all workers."""

    def __init__(self, address: str = LOOPBACK, nodes: int = 1) -> None:
        store, port = listen(address)
        self._be(store, address, port, node=0, nodes=nodes)

    def _be(self, store: TCPStore, address: str, port: int, *, node: int, nodes: int) -> None:
        self.store, self.address, self.port = store, address, port
        self.node, self.nodes = node, nodes
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
        """The group of all agents, which is known from the start."""
        return RendezvousInfo(self.store, self.node, self.nodes, RendezvousStoreInfo(self.address, self.port))

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


class JoinedRendezvous(LocalRendezvous):
    """The agent of another node: it and its workers use the store of the first."""

    def __init__(self, address: str, port: int, *, node: int, nodes: int) -> None:
        store = TCPStore(address, port, is_master=False, wait_for_workers=False)
        self._be(store, address, port, node=node, nodes=nodes)
