"""Train on with fewer workers where the others cannot be had: a cell of its own, from the last checkpoint.

A cell is one (strategy, N, b): step times of another N would make its numbers mean nothing. So what is trained with
fewer workers is a new cell with the same global batch B = N·b, hence the same steps, learning rate and sample order
(method.md §1, §10). It is not the same training to the last bit: BatchNorm normalises over b, which has grown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from worldsize.launch.cluster import Cluster, ThisMachine
from worldsize.launch.placement import place
from worldsize.results.checkpoints import checkpoint_folder, hand_over
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run, write_study
from worldsize.results.records import ErrorRecord, Placement
from worldsize.study.ledger import Ledger
from worldsize.study.plan import PlannedCell
from worldsize.study.restarts import sure_to_fail_again

_ID = re.compile(r".*-after-w\d+")


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
            if s.global_batch % workers == 0 and self.processes.get(f"{s.strategy}@{workers}") == workers:
                label = "-".join(filter(None, [s.label, f"after-w{s.world_size}"]))
                update = {"world_size": workers, "batch_size": s.global_batch // workers, "label": label}
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
