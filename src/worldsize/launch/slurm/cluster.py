"""The nodes of the Slurm job in which this process runs."""

import os
import subprocess

from worldsize.errors import UsageError
from worldsize.launch.cluster import Running, ThisMachine, share_out
from worldsize.launch.job import Job, Node
from worldsize.launch.local import LocalJob
from worldsize.launch.slurm.state import run
from worldsize.launch.spread import SpreadJob

STEP = ("--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--mpi=none", "--export=ALL", "--unbuffered")
"""How an agent is started on its node: beside what runs there already, free to place its workers on all cores."""


def inside_a_job() -> bool:
    """Whether this process belongs to a Slurm job (sbatch, salloc or srun)."""
    return "SLURM_JOB_ID" in os.environ


class SlurmCluster(ThisMachine):
    """Nodes that Slurm has given to this job; the first is where the job's script runs, and so this process."""

    def __init__(self, workers_per_node: int | None = None) -> None:
        """`workers_per_node` None is as many as a node has GPUs, or one. Raises UsageError outside a job."""
        room = workers_per_node or _gpus_of_a_node() or 1
        self.nodes = tuple(
            Node(name=name, address=_address(name), processes=room) for name in _names(os.environ["SLURM_JOB_NODELIST"])
        )

    def share_out(self, processes: int) -> tuple[Node, ...]:
        """One node after the other."""
        return share_out(self.nodes, processes)

    def prefix(self, node: Node) -> tuple[str, ...]:
        """Run it in a step of its own."""
        return ("srun", *STEP, f"--nodelist={node.name}")

    def start(self, job: Job) -> Running:
        """A job over the nodes that it names, or here."""
        return SpreadJob(job, _agent) if job.spread else LocalJob(job)


def _agent(job: Job, node: int) -> LocalJob:
    """The agent of one node, in a step of its own."""
    return LocalJob(job, node, ("srun", *STEP, f"--nodelist={job.nodes[node].name}"))


def _gpus_of_a_node() -> int:
    return int(os.environ.get("SLURM_GPUS_ON_NODE") or 0)


def _names(nodelist: str) -> list[str]:
    return _printed("scontrol", "show", "hostnames", nodelist).split()


def _address(name: str) -> str:
    """Where the other nodes reach it; Slurm itself does so, too."""
    words = _printed("scontrol", "show", "node", name, "--oneliner").split()
    return next((word.removeprefix("NodeAddr=") for word in words if word.startswith("NodeAddr=")), name)


def _printed(*command: str) -> str:
    try:
        return run(*command)
    except subprocess.CalledProcessError as error:
        raise UsageError(f"Slurm does not tell this job's nodes: {error.stderr.strip()}") from None
