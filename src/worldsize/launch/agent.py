"""The agent of one job: torch's elastic agent in a process of its own, steered over stdin and stdout.

Each line of stdin is a turn for the workers; each line of stdout is `{"replies": […]}` for one turn, or at the end
`{"failure": …}`. When stdin ends, the parent has gone, and so does everything here.

Run by `local.LocalJob` as `python -m worldsize.launch.agent JOB_FILE`.
"""

import contextlib
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std

from worldsize.launch.job import Job
from worldsize.launch.lifeline import end_with_parent
from worldsize.launch.mailbox import StoreDesk
from worldsize.launch.rendezvous import LoopbackRendezvous
from worldsize.results.records import ErrorRecord


def main(job_file: Path) -> int:
    """Run the job to its end; returns the exit status."""
    end_with_parent()
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # the failure goes to the parent as a value
    job = Job.model_validate_json(job_file.read_bytes())
    rendezvous = LoopbackRendezvous()
    spec = WorkerSpec(
        role="worker",
        local_world_size=job.processes,
        entrypoint=sys.executable,
        args=("-m", "worldsize.launch.worker", str(job_file)),
        rdzv_handler=rendezvous,
        max_restarts=0,
        monitor_interval=0.1,
    )
    logs = DefaultLogsSpecs(log_dir=str(job.folder / "logs"), redirects=Std.ALL)
    threading.Thread(target=_steer, args=(StoreDesk(rendezvous.port, job.processes),), daemon=True).start()
    try:
        result: RunResult = LocalElasticAgent(spec, logs, start_method="spawn").run()
    except SignalException:
        return 128 + signal.SIGTERM
    if not result.is_failed():
        return 0
    _say({"failure": first_cause(job, result).model_dump()})
    return 1


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _steer(desk: StoreDesk) -> None:
    """Carry turns to the workers and replies back until stdin ends, then end this process."""
    number = 0
    replies = desk.collect(number)
    _say({"replies": replies})
    for line in sys.stdin:
        number += 1
        desk.post(number, json.loads(line))
        replies = desk.collect(number)
        if replies is None:
            return
        _say({"replies": replies})
    os.kill(os.getpid(), signal.SIGTERM)


def first_cause(job: Job, result: RunResult) -> ErrorRecord:
    """Why the job failed: the first worker that failed by itself, not those that only lost their peer.

    A worker that was killed left no file; that outranks any file that tells of a lost connection.
    """
    said = []
    for rank in range(job.processes):
        with contextlib.suppress(OSError, ValueError):
            said.append(json.loads(job.error_file(rank).read_text(encoding="utf-8")))
    own = sorted((entry for entry in said if not entry["echo"]), key=lambda entry: float(entry["time"]))
    if own:
        return ErrorRecord.model_validate(own[0]["error"])
    silent = {rank: failure for rank, failure in result.failures.items() if not job.error_file(rank).exists()}
    for rank, failure in sorted(silent.items(), key=lambda item: item[1].exitcode):
        return _ended_silently(rank, failure.exitcode)
    if said:
        return ErrorRecord.model_validate(min(said, key=lambda entry: float(entry["time"]))["error"])
    return ErrorRecord(kind="WorkerError", message="the workers ended without a word; see the logs of the cell")


def _ended_silently(rank: int, exitcode: int) -> ErrorRecord:
    if exitcode >= 0:
        message = f"rank {rank} ended with exit status {exitcode} and without a word; see the logs of the cell"
        return ErrorRecord(kind="WorkerError", message=message, rank=rank)
    name = signal.Signals(-exitcode).name
    hint = "; the kernel's out-of-memory killer is the usual sender" if -exitcode == signal.SIGKILL else ""
    return ErrorRecord(kind="Signal", message=f"rank {rank} was killed by {name}{hint}", rank=rank)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
