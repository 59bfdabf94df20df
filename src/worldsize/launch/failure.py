"""Why a job failed: each failing worker says it in a file, and the first cause is told from its echoes."""

import contextlib
import json
import os
import signal
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

import torch.distributed as dist

from worldsize.errors import WorldsizeError
from worldsize.launch.job import Job
from worldsize.launch.secondary_errors import is_secondary_message
from worldsize.ranks.memory import is_out_of_memory
from worldsize.results.records import ErrorRecord


def say_why(file: Path, error: Exception, rank: int) -> None:
    """Write why this worker fails where `first_cause` looks for it; raises OSError where that cannot be.

    The time is that of a clock that is never set: whose failure was first must not depend on one that jumps.
    """
    record = explain(error, rank)
    content = {"time": time.monotonic(), "echo": is_echo(error), "error": record.model_dump()}
    try:
        file.write_text(json.dumps(content), encoding="utf-8")
    except OSError:
        with contextlib.suppress(OSError):
            file.unlink()  # half a word is none
        raise


def explain(error: Exception, rank: int | None) -> ErrorRecord:
    """The record of an exception: one line of our own errors, type and message of anyone else's."""
    kind, message = type(error).__name__, str(error)
    if is_out_of_memory(error):
        kind, message = "OutOfMemory", (message.splitlines() or ["Python could not allocate memory"])[0]
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
    return isinstance(error, RuntimeError) and is_secondary_message(str(error))


def first_cause(job: Job, failed: Mapping[int, int]) -> ErrorRecord:
    """Why the job failed: the first worker that failed by itself, not those that only lost their peer.

    `failed` is how workers ended (rank → exit status, or minus the signal), the first one first. A worker that was
    killed left no file; that outranks any file that tells of a lost connection.
    """
    said = []
    for rank in range(job.processes):
        with contextlib.suppress(OSError, ValueError):
            said.append(json.loads(job.error_file(rank).read_text(encoding="utf-8")))
    own = sorted((entry for entry in said if not entry["echo"]), key=lambda entry: float(entry["time"]))
    if own:
        return ErrorRecord.model_validate(own[0]["error"])
    silent = {rank: status for rank, status in failed.items() if not job.error_file(rank).exists()}
    for rank, status in sorted(silent.items(), key=lambda item: item[1]):
        return _ended_silently(rank, status)
    if said:
        return ErrorRecord.model_validate(min(said, key=lambda entry: float(entry["time"]))["error"])
    return ErrorRecord(kind="WorkerError", message="the workers ended without a word; see the logs of the cell")


def _ended_silently(rank: int, exitcode: int) -> ErrorRecord:
    if exitcode == os.EX_IOERR:
        message = f"rank {rank} could not write: its disk is full or read-only, or its folder is gone"
        return ErrorRecord(kind="OutputError", message=message, rank=rank, exit_status=2)
    if exitcode >= 0:
        message = f"rank {rank} ended with exit status {exitcode} and without a word; see the logs of the cell"
        return ErrorRecord(kind="WorkerError", message=message, rank=rank)
    name = signal.Signals(-exitcode).name
    hint = "; the kernel's out-of-memory killer is the usual sender" if -exitcode == signal.SIGKILL else ""
    return ErrorRecord(kind="Signal", message=f"rank {rank} was killed by {name}{hint}", rank=rank)
