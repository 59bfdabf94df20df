"""What a submitted job does: the study, as a command of its own, which is told to stop before the time limit.

submitit pickles this object; it holds the words of a command and a path, nothing else.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from submitit.helpers import DelayedSubmission

from worldsize.launch.slurm.files import JobEnd, end_file, log_file
from worldsize.results.files import write_whole

PREFIX = "\nworldsize: "
"""With which a command says why it ends (cli/app.py)."""


class Batch:
    """Runs the command to its end, or goes on with it where an earlier start of this job was stopped."""

    def __init__(self, command: Sequence[str], run: Path) -> None:
        self.command = list(command)
        self.run = str(run)
        self._study: subprocess.Popen[bytes] | None = None

    def __call__(self) -> None:
        """Run the study; ends this process with its status."""
        run, job_id = Path(self.run), os.environ["SLURM_JOB_ID"]
        end_file(run, job_id).unlink(missing_ok=True)
        # Slurm itself may have started this job again, after a node failed or for another job's sake.
        again = ["--resume"] if (run / "study.json").exists() else []
        log = log_file(run, job_id)
        with log.open("ab") as messages:
            begin = messages.tell()
            self._study = subprocess.Popen([*self.command, *again], stdin=subprocess.DEVNULL, stderr=messages)
            status = self._end()
        _, said, message = ("\n" + log.read_bytes()[begin:].decode(errors="replace")).rpartition(PREFIX)
        end = JobEnd(job_id=job_id, exit_status=status, message=message.strip() if said else "")
        write_whole(end_file(run, job_id), end.model_dump_json(indent=2) + "\n")
        if status:
            raise SystemExit(status if status > 0 else 128 - status)

    def checkpoint(self) -> DelayedSubmission:
        """Called by submitit when the time limit is near, or another job takes this one's place: stop in order.

        submitit then lets Slurm queue the job again, and that goes on from here.
        """
        if self._study is not None and self._study.returncode is None:
            self._study.terminate()
            self._end()
        return DelayedSubmission(Batch(self.command, Path(self.run)))

    def _end(self) -> int:
        """Wait for the study's end; a wait of its own kind, since a signal may begin a second one inside the first."""
        assert self._study is not None
        os.waitid(os.P_PID, self._study.pid, os.WEXITED | os.WNOWAIT)
        return self._study.wait()
