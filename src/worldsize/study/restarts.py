"""Train on after a worker has failed, with as many workers or with fewer.

A job that failed is started again as a whole, by a new agent, as often as was asked for, each time with a warning, and
reads its last checkpoint. Our agent starts no worker again by itself: it would have to read the same checkpoint, for
what was in its memory is gone, and only the schedule knows which turn comes next from there. A new job has a new store
and new ports, so nothing of the broken group is met again; and a hang, or the end of the agent itself, is mended in the
same way. It costs the start of one more process, which is a few seconds.

Where workers cannot be had again, fewer train on in a cell of its own, from the last checkpoint. A cell is one
(strategy, N, b): step times of another N would make its numbers mean nothing. So what is trained with fewer workers is
a new cell with the same global batch B = N·b, hence the same steps, learning rate and sample order (method.md §1, §10).
It is not the same training to the last bit: BatchNorm normalises over b, which has grown.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from worldsize.launch.cluster import Cluster, ThisMachine
from worldsize.launch.placement import place
from worldsize.results.checkpoints import checkpoint_folder, hand_over
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run, write_study
from worldsize.results.records import ErrorRecord, Placement
from worldsize.study.ledger import Ledger
from worldsize.study.memory import OUT_OF_MEMORY
from worldsize.study.plan import PlannedCell

SURE_TO_FAIL_AGAIN = frozenset({"LossNotFiniteError", OUT_OF_MEMORY})
"""The same weights and the same data end in the same way."""
_ID = re.compile(r".*-after-w\d+")


def sure_to_fail_again(error: ErrorRecord) -> bool:
    """Whether another try would only end in the same way: the user's mistake, too little memory, no number."""
    return error.exit_status == 2 or error.kind in SURE_TO_FAIL_AGAIN


Successor = Callable[[PlannedCell, ErrorRecord], PlannedCell | None]


class Restarts:
    """Counts the restarts of each cell of a session."""

    def __init__(self, most: int, ledger: Ledger, fewer: Successor = lambda cell, error: None) -> None:
        self.most = most
        self.fewer = fewer
        """Finds the cell that trains on, with fewer workers, for one that failed for good."""
        self._ledger = ledger
        self._done: dict[str, int] = {}

    def again(self, cell: PlannedCell, error: ErrorRecord) -> bool:
        """Whether a cell that failed is to go on; notes it in its record."""
        done = self._done.get(cell.id, 0)
        if done >= self.most or sure_to_fail_again(error):
            return False
        self._done[cell.id] = done + 1
        self._ledger.restarted(cell, error, done + 1, self.most)
        return True


def pieces(trained: int, epoch: int, steps: int, *, every: int | None) -> list[int]:
    """Steps from one checkpoint to the next, from those that are trained to the end of an epoch of so many `steps`."""
    end, each = (epoch + 1) * steps, every or steps
    edges = [trained, *(edge for edge in range(epoch * steps + each, end, each) if edge > trained), end]
    return [following - edge for edge, following in pairwise(edges)]


def is_shrunk(cell_id: str) -> bool:
    """Whether this is such a cell, which no plan has from the start."""
    return _ID.fullmatch(cell_id) is not None


@dataclass(frozen=True)
class Shrink:
    """Finds the cell that goes on for one that failed for good."""

    run: Path
    least: int | None
    """The fewest workers that it may be; None is no such cell."""
    processes: Mapping[str, int]
    """`strategy@world size` → processes, of what can be run."""
    ledger: Ledger
    cluster: Cluster = field(default_factory=ThisMachine)

    def after(self, cell: PlannedCell, error: ErrorRecord) -> PlannedCell | None:
        """The cell that goes on, in the plan and with its checkpoint; None where there is none."""
        found = None if self.least is None or sure_to_fail_again(error) else self._smaller(cell, self.least)
        if found is None:
            return None
        study = load_run(self.run).study
        if found.id not in study.plan:
            study.plan.append(found.id)
            write_study(self.run, study)
        source, target = (checkpoint_folder(cell_folder(self.run, each.id)) for each in (cell, found))
        step = hand_over(source, target, found.settings, found.placement.processes)
        self.ledger.took_over(found, cell, step, error)
        return found

    def _smaller(self, cell: PlannedCell, least: int) -> PlannedCell | None:
        """The largest world below, with the same global batch, in which each worker is a process, too."""
        s, placement = cell.settings, cell.placement
        if placement.processes != s.world_size:
            return None
        for workers in range(s.world_size - 1, least - 1, -1):
            shared = s.global_batch % (workers * s.accumulate) == 0
            if shared and self.processes.get(f"{s.strategy}@{workers}") == workers:
                label = "-".join(filter(None, [s.label, f"after-w{s.world_size}"]))
                batch = s.global_batch // (workers * s.accumulate)
                update = {"world_size": workers, "batch_size": batch, "label": label}
                return PlannedCell(s.model_copy(update=update), self._placed(workers, placement), cell.own_traits)
        return None

    def _placed(self, workers: int, like: Placement) -> Placement:
        return place(
            world_size=workers,
            processes=workers,
            threads_per_worker=like.threads_per_worker,
            cores=self.cluster.cores,
            gpus=workers if like.device == "cuda" else 0,
            backend=like.backend,
            nodes=self.cluster.share_out(workers),
        )
