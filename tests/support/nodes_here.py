"""Several nodes of a cluster, all of them this machine: what launch does over nodes, without anybody's scheduler."""

from collections.abc import Sequence

from worldsize.launch.cluster import Running, ThisMachine, share_out
from worldsize.launch.job import Job, Node
from worldsize.launch.local import LocalJob
from worldsize.launch.spread import SpreadJob


class NodesHere(ThisMachine):
    """Nodes with an agent each, which a command starts, as a scheduler's would."""

    def __init__(self, rooms: Sequence[int] = (1, 1), address: str = "127.0.0.1", *, evenly: bool = False) -> None:
        self.evenly = evenly
        self.nodes = tuple(Node(name=f"n{i}", address=address, processes=room) for i, room in enumerate(rooms))

    def share_out(self, processes: int) -> tuple[Node, ...]:
        """One node after the other, or evenly."""
        return share_out(self.nodes, processes, evenly=self.evenly)

    def start(self, job: Job) -> Running:
        """A job over the nodes that it names."""
        return SpreadJob(job, lambda job, node: LocalJob(job, node, ("env",))) if job.spread else LocalJob(job)
