"""The agent of one job, or of one node's part of it: starts its workers, hands turns to them, says how they ended.

Each line of stdin is a turn for the workers; each line of stdout is `{"replies": […]}` for one turn, or at the end
`{"failure": …}`. When stdin ends, the parent has gone, and so does everything here.

Of a job on several nodes each has an agent. That of the first listens, says where, and has the desk; the first line of
stdin of the others tells them where that is (spread.py).

Between two turns its workers are stopped whole (workers.py): they take no core from the cell whose turn it is, and what
lies ready for them lies there unchanged.

torch's elastic agent does the same with new interpreters, or forks while its store's thread runs; workers that are
forked must be there before any thread is. What it does beyond, restarts and a changing number of nodes, is left to the
study (study/restarts.py). Started by a warm server (server.py).
"""

import contextlib
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import DistError, TCPStore

from worldsize.errors import WorldsizeError
from worldsize.launch import hosts
from worldsize.launch.by_hand import SOCKET_VARIABLES, interface_to
from worldsize.launch.failure import explain, first_cause
from worldsize.launch.job import Job
from worldsize.launch.workers import LocalRanks, Workers
from worldsize.parent_death import end_with_parent
from worldsize.ranks.store import StoreDesk, listen

LOOPBACK = "127.0.0.1"
PARTING_S = 1.5
"""How long workers of the first node that have done all their turns may take to leave by themselves: each ends what it
has started, and takes away its files, such as the sockets of a DataLoader's processes. On the others it is not known
that they have."""
LAST = "finish"
"""What the last turn asks for."""
LEAVE_S = 10.0
"""How long the first node waits for the others to end: they use its store until then."""


def main(job_file: str, number: str) -> int:
    """Run the job, or this node's part of it, to its end; returns the exit status."""
    job, node = Job.model_validate_json(Path(job_file).read_bytes()), int(number)
    try:
        address = _networks(job)
        workers = Workers(job, LocalRanks.of(job, node))  # before anything here starts a thread
    except (WorldsizeError, OSError) as error:
        _say({"failure": explain(error, None).model_dump()})
        return 1
    with workers:
        return _steer(job, node, workers, address)


def _steer(job: Job, node: int, workers: Workers, address: str) -> int:
    try:
        store, address, port = _meet(job, node, address)
        workers.send_to(address, port, {name: os.environ[name] for name in SOCKET_VARIABLES if name in os.environ})
        for work in (_hand_out, _hand_back) if node == 0 else (_follow, _wait_for_the_end):
            desk = StoreDesk(address, port, job.processes)
            threading.Thread(target=work, args=(desk, workers), daemon=True).start()
        # In order, should the parent end: what the workers have started would outlive us all.
        signal.signal(signal.SIGTERM, lambda *_: workers.hang_up())
        end_with_parent(os.getppid(), signal.SIGTERM)
        failed = workers.wait()
        _leave_together(store, job, node, patience_s=0.0 if failed else LEAVE_S)
    except (WorldsizeError, OSError, DistError) as error:  # the first node's agent may have gone
        _say({"failure": explain(error, None).model_dump()})
        return 1
    if workers.hung_up:
        return 128 + signal.SIGTERM
    if not failed:
        return 0
    _say({"failure": first_cause(job, failed).model_dump()})
    return 1


def _networks(job: Job) -> str:
    """Make the emulated hosts, if the job has any; returns the address at which the workers reach this agent."""
    if job.hosts is None:
        return LOOPBACK
    os.environ[hosts.NETWORKS_VARIABLE] = ",".join(str(process) for process in hosts.build(job.hosts))
    return hosts.SWITCH


def _meet(job: Job, node: int, address: str) -> tuple[TCPStore, str, int]:
    """Listen on one address alone, or on the other nodes join the first; the store, its address and its port.

    torch's own rendezvous opens its store on every interface. The messages of a job on several nodes take the network
    that leads to the first. Raises UsageError for an address that leads nowhere, OSError for one that is not ours.
    """
    if not job.spread:
        store, port = listen(address)
        return store, address, port
    if node == 0:
        address = socket.gethostbyname(job.nodes[0].address)
        store, port = listen(address)
        _say({"replies": [{"address": address, "port": port}]})
    else:
        where = json.loads(sys.stdin.readline())
        address, port = where["address"], where["port"]
        store = TCPStore(address, port, is_master=False, wait_for_workers=False)
    for name in SOCKET_VARIABLES:
        os.environ.setdefault(name, interface_to(address))
    return store, address, port


def _leave_together(store: TCPStore, job: Job, node: int, patience_s: float) -> None:
    """The first node is the last to leave: its store is that of all workers."""
    keys = [f"worldsize/left/{other}" for other in range(1, len(job.nodes))]
    with contextlib.suppress(DistError):  # the first has left, because it failed
        if node:
            store.set(keys[node - 1], "")
        elif keys and patience_s:
            store.wait(keys, timedelta(seconds=patience_s))


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _hand_out(desk: StoreDesk, workers: Workers) -> None:
    """Post the turns on stdin until it ends, then end the workers, whatever they are doing."""
    turn: dict[str, Any] = {}
    for number, line in enumerate(sys.stdin, start=1):
        turn = json.loads(line)
        workers.go_on(number)
        desk.post(number, turn)
    if turn.get("op") == LAST:
        time.sleep(PARTING_S)  # at most: when the last of them has left, so does this process
    workers.hang_up()


def _hand_back(desk: StoreDesk, workers: Workers) -> None:
    """Carry the replies to stdout, turn by turn, once all workers are stopped; a thread, because it waits for them."""
    for number in itertools.count():
        replies = desk.collect(number)
        if replies is None:
            return
        desk.tell_over(number, 0)
        last = _stop_after(desk, number, workers)
        others = () if last else range(1, workers.ranks.nodes)
        if not all(desk.wait_over(number, node) for node in others):
            return
        _say({"replies": replies})


def _follow(desk: StoreDesk, workers: Workers) -> None:
    """Let the workers of another node than the first go on with each turn, and stop them after it."""
    for number in itertools.count():
        if number:
            if desk.turn(number) is None:
                return
            workers.go_on(number)
        if not desk.wait_over(number, 0):
            return
        _stop_after(desk, number, workers)
        desk.tell_over(number, workers.ranks.node)


def _stop_after(desk: StoreDesk, number: int, workers: Workers) -> bool:
    """Stop the workers after a turn; whether it was the last, after which they leave by themselves."""
    turn = desk.turn(number) if number else {}  # before the first they get ready
    last = turn is None or turn.get("op") == LAST
    if not last:
        workers.stop(number)
    return last


def _wait_for_the_end(desk: StoreDesk, workers: Workers) -> None:
    """End the workers when stdin ends."""
    sys.stdin.read()
    workers.hang_up()
