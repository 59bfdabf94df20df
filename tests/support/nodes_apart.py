"""Nodes that reach each other over a network alone: each agent runs in a network namespace of its own (needs root)."""

import contextlib
from collections.abc import Iterator, Sequence

from held_hosts import held_hosts
from nodes_here import NodesHere
from worldsize.launch.cluster import Running
from worldsize.launch.hosts import address
from worldsize.launch.job import Job, Node
from worldsize.launch.local import LocalJob
from worldsize.launch.spread import SpreadJob


class NodesApart(NodesHere):
    """Nodes with one worker each; `there` begins a command that runs on one of them."""

    def __init__(self, there: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.there = there
        self.nodes = tuple(Node(name=f"n{host}", address=address(host), processes=1) for host in range(len(there)))

    def start(self, job: Job) -> Running:
        """Each agent in its own network."""
        return SpreadJob(job, lambda job, node: LocalJob(job, node, self.there[node])) if job.spread else LocalJob(job)


@contextlib.contextmanager
def nodes_apart(*rates_bits_per_s: int) -> Iterator[NodesApart]:
    """One node for each rate of its link."""
    with held_hosts(*rates_bits_per_s) as there:
        yield NodesApart(there)
