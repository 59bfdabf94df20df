"""Nodes that reach each other over a network alone: each agent runs in a network namespace of its own (needs root)."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

from nodes_here import NodesHere
from worldsize.launch.cluster import Running
from worldsize.launch.hosts import address
from worldsize.launch.job import Job, Node
from worldsize.launch.local import LocalJob
from worldsize.launch.spread import SpreadJob

SWITCH = """
import sys
from worldsize.config import Hosts
from worldsize.launch import hosts
rates = [None if rate == "-" else int(rate) for rate in sys.argv[1:]]
processes = hosts.build(Hosts(count=len(rates)))
for host, rate in enumerate(rates):
    if rate is not None:
        hosts._shape((), f"host{host}", rate)
        hosts._shape(("nsenter", "--target", str(processes[host]), "--net"), hosts.INTERFACE, rate)
print(*processes, flush=True)
sys.stdin.read()
"""
"""A process that is the switch, and holds the networks until its input ends."""


class NodesApart(NodesHere):
    """Nodes with one worker each, in the networks of these processes."""

    def __init__(self, networks: Sequence[str]) -> None:
        super().__init__([1] * len(networks))
        self.networks = networks
        self.nodes = tuple(Node(name=f"n{host}", address=address(host), processes=1) for host in range(len(networks)))

    def start(self, job: Job) -> Running:
        """Each agent in its own network."""

        def agent(job: Job, node: int) -> LocalJob:
            return LocalJob(job, node, ("nsenter", "--target", self.networks[node], "--net"))

        return SpreadJob(job, agent) if job.spread else LocalJob(job)


@contextlib.contextmanager
def nodes_apart(*rates_bits_per_s: int | None) -> Iterator[NodesApart]:
    """One node for each rate of its link; None is as fast as the kernel goes."""
    rates = ["-" if rate is None else str(rate) for rate in rates_bits_per_s]
    command = [sys.executable, "-c", SWITCH, *rates]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as switch:
        assert switch.stdout is not None
        assert switch.stdin is not None
        yield NodesApart(switch.stdout.readline().split())
        switch.stdin.close()
