"""Cells that compare: those that keep the same batch while workers are added (method.md §6)."""

from dataclasses import dataclass

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.headline import headline
from worldsize.analysis.scaling import Kind
from worldsize.analysis.study import StudyAnalysis, once
from worldsize.traits import ALL_CORES


@dataclass(frozen=True)
class Group:
    """Cells with the same local batch b (weak scaling) or the same global batch B (strong)."""

    kind: Kind
    batch: int
    cells: tuple[CellAnalysis, ...]
    """In the order of the plan, those without numbers included."""

    @property
    def symbol(self) -> str:
        """The letter of the batch that is kept."""
        return "b" if self.kind == "weak" else "B"

    @property
    def id(self) -> str:
        """For names of files: `b32`, `B256`."""
        return f"{self.symbol}{self.batch}"

    @property
    def name(self) -> str:
        """For people: `b = 32`, `B = 256`."""
        return f"{self.symbol} = {self.batch:,}"

    @property
    def measured(self) -> list[CellAnalysis]:
        """The cells that have numbers."""
        return [cell for cell in self.cells if cell.summary is not None]

    @property
    def world_sizes(self) -> list[int]:
        """The world sizes above 1 that have numbers, ascending."""
        return sorted({cell.world_size for cell in self.measured if cell.world_size > 1})


@once
def groups(analysis: StudyAnalysis) -> tuple[Group, ...]:
    """The cells of a study by the batch that it keeps; the group of the verdict first.

    One worker that has the cores of all others keeps another thing than they do, and is in none.
    """
    kind, cells = analysis.kind, [cell for cell in analysis.cells if cell.label != ALL_CORES]
    batches = dict.fromkeys(_batch(kind, cell) for cell in cells)
    found = [Group(kind, batch, tuple(cell for cell in cells if _batch(kind, cell) == batch)) for batch in batches]
    best = headline(analysis)
    return tuple(sorted(found, key=lambda group: best is None or best.fastest not in group.cells))


def _batch(kind: Kind, cell: CellAnalysis) -> int:
    return cell.batch_size if kind == "weak" else cell.global_batch
