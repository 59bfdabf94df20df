"""The main of a worker process: call the job's entry, and if that fails, say why in a file.

Run by the agent as `python -m worldsize.launch.worker JOB_FILE AGENT_PID`.
"""

import importlib
import os
import sys
import traceback
from pathlib import Path

from worldsize.launch.failure import say_why
from worldsize.launch.hosts import join_own
from worldsize.launch.job import Job
from worldsize.launch.lifeline import end_with_parent
from worldsize.launch.mailbox import StoreTurns
from worldsize.ranks.pulse import open_pulse


def main(job_file: Path, agent: int) -> int:
    """Be one worker of the job; returns the exit status."""
    end_with_parent(agent)
    job = Job.model_validate_json(job_file.read_bytes())
    rank = int(os.environ["RANK"])
    try:
        open_pulse(job.pulse_file(rank), job.stack_file(rank))
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


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
