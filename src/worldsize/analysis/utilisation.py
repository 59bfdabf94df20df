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
    steps_per_epoch: float
    """D/B, not rounded: the epoch of the other tables, over the same samples at any world size (method.md §6)."""
    transfer_s: float | None
    """Measured time of an epoch in which messages are transferred; waiting for a late rank is not in it."""
    inferred_s: float | None
    """Communication per epoch by the classic subtraction (method.md §7); None where it comes out as 0 or less."""

    @property
    def epoch_bytes(self) -> float:
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
        if not cell.summary.parts_s:
            continue
        steps = train_samples / cell.global_batch
        split = by_cell.get(cell.id)
        inferred_s = None if split is None else split.inferred_comm_s
        # Of the printed step, as all communication in the split: a part must not be longer than the whole.
        sent = cell.communication_of_step
        found.append(
            Utilisation(
                cell=cell,
                formula=record.wire.formula,
                step_bytes=record.wire.busiest_rank_bytes,
                steps_per_epoch=steps,
                transfer_s=None if sent is None else steps * sent.transfer_s,
                inferred_s=inferred_s if inferred_s and inferred_s > 0 else None,
            )
        )
    return found
