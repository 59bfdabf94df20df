"""A Ray cluster of two nodes on this machine, apart from the processes of a test: started here, ended here.

Run as a script it is the cluster's parent, until its stdin ends.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from jobs import alive, wait_until

ROOM = 2
"""Workers on each of the nodes."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}
SRC = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class RayNodes:
    """The cluster."""

    address: str
    folder: Path
    """Its own temporary files."""

    def processes(self) -> list[psutil.Process]:
        """All that runs for the cluster, the actors of its users included."""
        return [process for process in psutil.process_iter() if str(self.folder) in _session(process)]

    def seats(self) -> list[psutil.Process]:
        """The actors that hold the agents of somebody's study."""
        return [process for process in self.processes() if "ray::WorkerActor" in " ".join(process.cmdline())]


def _session(process: psutil.Process) -> str:
    """Its command, and the folder that it was told to use: an actor has another name than it was started by."""
    try:
        return " ".join([*process.cmdline(), process.environ().get("RAY_TMPDIR", "")])
    except psutil.Error:
        return ""


@contextlib.contextmanager
def ray_nodes() -> Iterator[RayNodes]:
    """Two nodes with room for two workers each; nothing of them is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="rn-", dir="/tmp"))  # short: its sockets' names may have 107 characters
    with (folder / "cluster.err").open("w") as said:
        parent = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, **QUIET, "RAY_TMPDIR": str(folder), "PYTHONPATH": str(SRC)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    try:
        parent.wait()  # it has gone on as nobody's child: what Ray starts and ends is none of the tests'
        assert parent.stdin is not None
        assert parent.stdout is not None
        address = parent.stdout.readline().strip()
        assert address, (folder / "cluster.err").read_text()
        cluster = RayNodes(address, folder)
        yield cluster
    finally:
        started = RayNodes("", folder).processes()
        for pipe in (parent.stdin, parent.stdout):
            assert pipe is not None
            pipe.close()
        ended = wait_until(lambda: not alive(started), 60.0)
        for process in alive(started):
            process.kill()
        shutil.rmtree(folder)
        assert ended, f"Ray has not ended: {started}"


def _be_the_parent() -> None:
    if os.fork():
        os._exit(0)
    from ray.cluster_utils import Cluster

    small: dict[str, Any] = {"num_cpus": ROOM, "object_store_memory": 80_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    cluster.add_node(**small)
    sys.stdout.write(f"{cluster.address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    _be_the_parent()
