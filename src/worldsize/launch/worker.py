"""The main of a worker process: call the job's entry, and if that fails, say why in a file.

Run by the agent as `python -m worldsize.launch.worker JOB_FILE`.
"""

import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from worldsize.errors import WorldsizeError
from worldsize.launch.job import Job
from worldsize.launch.lifeline import end_with_parent
from worldsize.launch.mailbox import StoreTurns
from worldsize.results.records import ErrorRecord


def main(job_file: Path) -> int:
    """Be one worker of the job; returns the exit status."""
    end_with_parent()
    job = Job.model_validate_json(job_file.read_bytes())
    rank = int(os.environ["RANK"])
    try:
        module, _, function = job.entry.partition(":")
        turns = StoreTurns(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), rank)
        getattr(importlib.import_module(module), function)(job.payload, turns)
    except Exception as error:
        traceback.print_exc()
        _say_why(job.error_file(rank), error, rank)
        return 1
    return 0


def _say_why(file: Path, error: Exception, rank: int) -> None:
    record = explain(error, rank)
    content = {"time": time.time(), "echo": is_echo(error), "error": record.model_dump()}
    file.write_text(json.dumps(content), encoding="utf-8")


def explain(error: Exception, rank: int) -> ErrorRecord:
    """The record of an exception: one line of our own errors, type and message of anyone else's."""
    kind, message = type(error).__name__, str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in message:
        kind, message = "OutOfMemory", message.splitlines()[0]
    elif not isinstance(error, WorldsizeError):
        message = f"{kind}: {message}"
    return ErrorRecord(
        kind=kind,
        message=message,
        rank=rank,
        exit_status=error.exit_status if isinstance(error, WorldsizeError) else 1,
        traceback="".join(traceback.format_exception(error)),
    )


def is_echo(error: Exception) -> bool:
    """Whether this is only what a rank sees when another one is gone: a broken connection in a collective."""
    if isinstance(error, WorldsizeError):
        return False
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError | dist.DistStoreError):
        return True
    return isinstance(error, RuntimeError) and ("gloo/transport" in str(error) or "Connection closed" in str(error))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
