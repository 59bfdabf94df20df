"""Run a script as `__main__` and time its optimizer's steps by the wall clock, with nothing else put into it.

`python step_clock.py SCRIPT` or `torchrun … step_clock.py SCRIPT`. Rank 0 counts from the fifth step on for `CLOCK_S`
seconds, goes on to a multiple of `CLOCK_CADENCE` steps, writes seconds and steps into `CLOCK_FILE`, and ends the job.
"""

import json
import multiprocessing
import os
import runpy
import sys
import time
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook

FIRST = 5
"""The step from whose end on time counts: those before it warm up."""
ENDED = 3
"""Exit status of rank 0 at the end: not 0, for then torchrun ends the others at once."""


class StepClock:
    """Counts steps from the end of the fifth on, and ends the process when enough time has passed."""

    def __init__(self, wanted_s: float, cadence: int, file: Path) -> None:
        self.wanted_s, self.cadence, self.file = wanted_s, cadence, file
        self.steps = -FIRST
        self.began_s = 0.0

    def count(self, *_: object) -> None:
        """Count a step that has ended."""
        self.steps += 1
        now_s = time.monotonic()
        if self.steps == 0:
            self.began_s = now_s
        elif self.steps > 0 and self.steps % self.cadence == 0 and now_s - self.began_s >= self.wanted_s:
            self.end(now_s - self.began_s)

    def end(self, elapsed_s: float) -> None:
        """Write what was counted and leave without a word; loader processes would outlive that by seconds."""
        self.file.write_text(json.dumps({"elapsed_s": elapsed_s, "steps": self.steps}), encoding="utf-8")
        for child in multiprocessing.active_children():
            child.kill()
        os._exit(ENDED)


if __name__ == "__main__":
    if os.environ.get("RANK", "0") == "0":
        clock = StepClock(
            float(os.environ["CLOCK_S"]), int(os.environ["CLOCK_CADENCE"]), Path(os.environ["CLOCK_FILE"])
        )
        register_optimizer_step_post_hook(clock.count)
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
