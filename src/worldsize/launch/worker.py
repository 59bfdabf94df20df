"""The main of a worker process: wait for where the group meets, call the job's entry, and if that fails, say why."""

import importlib
import os
import sys
import traceback
from pathlib import Path

from worldsize.launch.failure import say_why
from worldsize.launch.hosts import join_own
from worldsize.launch.job import Job
from worldsize.measure.limits import begin_to_count_memory
from worldsize.ranks.heartbeat import open_heartbeat
from worldsize.ranks.store import StoreTurns


def main(job_file: str) -> int:
    """Be one worker of the job; returns the exit status. Its stdin tells who it is (workers.py)."""
    text = sys.stdin.read()
    if not text:
        return 1  # the agent had no room for all workers, or nowhere to meet
    os.environ.update(dict(line.split("=", 1) for line in text.splitlines()))
    begin_to_count_memory()
    job = Job.model_validate_json(Path(job_file).read_bytes())
    rank = int(os.environ["RANK"])
    try:
        open_heartbeat(job.pulse_file(rank), job.stack_file(rank))
        join_own(rank)
        module, _, function = job.entry.partition(":")
        turns = StoreTurns(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), rank)
        getattr(importlib.import_module(module), function)(job.payload, turns)
    except Exception as error:
        try:
            say_why(job.error_file(rank), error, rank)
            traceback.print_exc()
        except OSError:
            return os.EX_IOERR  # a full disk, most likely what the error was about
        return 1
    return 0
