"""Bandwidth utilisation: bytes per epoch ÷ communication time per epoch, measured and inferred (method.md §5)."""

from collections.abc import Sequence
from dataclasses import dataclass

from worldsize.analysis.breakdown import EpochSplit
from worldsize.analysis.cells import CellAnalysis


@dataclass(frozen=True)
class Utilisation:
    """What the busiest rank sends in an epoch, and how fast; it receives as much."""

    cell: CellAnalysis
    formula: str
    step_bytes: int
    steps_per_epoch: int
    """floor(D/B): the last, partial batch is dropped."""
    transfer_s: float | None
    """Measured time of an epoch in which messages are transferred; waiting for a late rank is not in it."""
    inferred_s: float | None
    """Communication per epoch by the classic subtraction (method.md §7); None where it comes out as 0 or less."""

    @property
    def epoch_bytes(self) -> int:
        """Steps per epoch × bytes per step."""
        return self.steps_per_epoch * self.step_bytes

    @property
    def measured_bytes_per_s(self) -> float | None:
        """Bytes ÷ transfer time."""
        return self.epoch_bytes / self.transfer_s if self.transfer_s else None

    @property
    def inferred_bytes_per_s(self) -> float | None:
        """Bytes ÷ inferred communication time."""
        return self.epoch_bytes / self.inferred_s if self.inferred_s else None


def utilisations(cells: Sequence[CellAnalysis], splits: Sequence[EpochSplit], train_samples: int) -> list[Utilisation]:
    """One for each cell of several workers that was measured; at N = 1 it is absent, not 0."""
    by_cell = {split.cell_id: split for split in splits}
    found = []
    for cell in cells:
        record = cell.record
        if cell.world_size == 1 or cell.summary is None or record is None or record.wire is None:
            continue
        steps = record.steps_per_epoch or train_samples // cell.global_batch
        split = by_cell.get(cell.id)
        # The split is over D/B steps, not rounded (method.md §6): brought to the whole steps of an epoch.
        whole = steps / (train_samples / cell.global_batch)
        inferred = None if split is None else split.inferred_comm_s * whole
        found.append(
            Utilisation(
                cell=cell,
                formula=record.wire.formula,
                step_bytes=record.wire.busiest_rank_bytes,
                steps_per_epoch=steps,
                transfer_s=None if cell.communication is None else cell.communication.transfer_s * steps,
                inferred_s=inferred if inferred and inferred > 0 else None,
            )
        )
    return found
