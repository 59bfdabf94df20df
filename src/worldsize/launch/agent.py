"""The agent of one job: torch's elastic agent in a process of its own, steered over stdin and stdout.

Each line of stdin is a turn for the workers; each line of stdout is `{"replies": […]}` for one turn, or at the end
`{"failure": …}`. When stdin ends, the parent has gone, and so does everything here.

Of a job on several nodes each has an agent. That of the first listens, says where, and has the desk; the first line of
stdin of the others tells them where that is (spread.py).

Run by `local.LocalJob` as `python -m worldsize.launch.agent JOB_FILE PARENT_PID NODE`.
"""

import itertools
import json
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from torch.distributed import DistError
from torch.distributed.elastic.agent.server.api import RunResult, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std

from worldsize.errors import WorldsizeError
from worldsize.launch import hosts
from worldsize.launch.by_hand import SOCKET_VARIABLES, interface_to
from worldsize.launch.failure import explain, first_cause
from worldsize.launch.job import Job
from worldsize.launch.lifeline import end_with_parent
from worldsize.launch.mailbox import StoreDesk
from worldsize.launch.rendezvous import LOOPBACK, JoinedRendezvous, LocalRendezvous


def main(job_file: Path, parent: int, node: int) -> int:
    """Run the job, or this node's part of it, to its end; returns the exit status."""
    end_with_parent(parent or os.getppid())
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # the failure goes to the parent as a value
    job = Job.model_validate_json(job_file.read_bytes())
    try:
        rendezvous = _meet(job, node) if job.spread else LocalRendezvous(_networks(job))
    except (WorldsizeError, OSError, DistError) as error:
        _say({"failure": explain(error, None).model_dump()})
        return 1
    spec = WorkerSpec(
        role="worker",
        local_world_size=job.nodes[node].processes if job.spread else job.processes,
        entrypoint=sys.executable,
        args=("-m", "worldsize.launch.worker", str(job_file), str(os.getpid())),
        rdzv_handler=rendezvous,
        max_restarts=0,
        monitor_interval=0.1,
    )
    logs = DefaultLogsSpecs(log_dir=str(job.folder / "logs"), redirects=Std.ALL)
    for work in (_hand_out, _hand_back) if node == 0 else ():
        desk = StoreDesk(rendezvous.address, rendezvous.port, job.processes)
        threading.Thread(target=work, args=(desk,), daemon=True).start()
    if node:
        threading.Thread(target=_wait_for_the_end, daemon=True).start()
    try:
        result: RunResult = LocalElasticAgent(spec, logs, start_method="spawn").run()
    except SignalException:
        return 128 + signal.SIGTERM
    except DistError as error:  # the first node's agent has gone
        _say({"failure": explain(error, None).model_dump()})
        return 1
    if not result.is_failed():
        return 0
    _say({"failure": first_cause(job, result).model_dump()})
    return 1


def _networks(job: Job) -> str:
    """Make the emulated hosts, if the job has any; returns the address at which the workers reach this agent."""
    if job.hosts is None:
        return LOOPBACK
    os.environ[hosts.NETWORKS_VARIABLE] = ",".join(str(process) for process in hosts.build(job.hosts))
    return hosts.SWITCH


def _meet(job: Job, node: int) -> LocalRendezvous:
    """Listen on the first node, join it on the others; the messages of this node's workers take the same network.

    Raises UsageError for an address that leads nowhere, OSError for one that is not this node's.
    """
    nodes = len(job.nodes)
    if node == 0:
        address = socket.gethostbyname(job.nodes[0].address)
        rendezvous = LocalRendezvous(address, nodes)
        _say({"replies": [{"address": address, "port": rendezvous.port}]})
    else:
        where = json.loads(sys.stdin.readline())
        address = where["address"]
        rendezvous = JoinedRendezvous(address, where["port"], node=node, nodes=nodes)
    for name in SOCKET_VARIABLES:
        os.environ.setdefault(name, interface_to(address))
    return rendezvous


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _hand_out(desk: StoreDesk) -> None:
    """Post the turns on stdin until it ends, then end this process, whatever the workers are doing."""
    for number, line in enumerate(sys.stdin, start=1):
        desk.post(number, json.loads(line))
    os.kill(os.getpid(), signal.SIGTERM)


def _wait_for_the_end() -> None:
    """End this process, and so its workers, when stdin ends."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _hand_back(desk: StoreDesk) -> None:
    """Carry the replies to stdout, turn by turn; a thread of its own, because it waits for the workers."""
    for number in itertools.count():
        replies = desk.collect(number)
        if replies is None:
            return
        _say({"replies": replies})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
