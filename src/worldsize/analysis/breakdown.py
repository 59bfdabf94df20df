"""Where the time of a step goes: shares of its parts, and the classic subtraction."""

from collections.abc import Mapping
from dataclasses import dataclass

from worldsize.results.records import CellSummary

COMPUTE_PARTS = ("forward_s", "backward_s", "optimizer_s")
"""The parts in which a worker computes; the measured side of method.md §7."""


@dataclass(frozen=True)
class Breakdown:
    """Shares of a cell's mean step, 0 to 1."""

    shares: Mapping[str, float]
    """Share of each part that is known; they add up to 1 (method.md §2)."""
    exposed_share: float
    """Share of the step in which a rank only waits for the synchronisation (method.md §3)."""
    overlapped_share: float | None
    """Share of the communication that is hidden behind compute; None where nothing was communicated."""


@dataclass(frozen=True)
class EpochSplit:
    """An epoch over the D training samples, split by subtraction and by measuring (method.md §7); seconds."""

    cell_id: str
    baseline_id: str
    epoch_s: float
    """T_N = D / B · t_N."""
    inferred_compute_s: float
    """T_1 / N."""
    inferred_comm_s: float
    """T_N − T_1 / N: all that is slower is blamed on the network. Below 0 if N workers beat N times one."""
    measured_compute_s: float
    """Forward, backward and optimizer."""
    measured_exposed_s: float
    """Exposed communication: the part that costs time."""
    measured_comm_s: float | None
    """All communication, overlapped included."""

    @property
    def difference_s(self) -> float:
        """Inferred communication − exposed communication: what the subtraction blames on the network wrongly."""
        return self.inferred_comm_s - self.measured_exposed_s


def breakdown(summary: CellSummary) -> Breakdown | None:
    """Shares of the mean step of a rank (method.md §2, §3); None where its phases were not marked."""
    if not summary.parts_s:
        return None
    step_s = sum(summary.parts_s.values())
    shares = {part: seconds / step_s for part, seconds in summary.parts_s.items()}
    overlapped = summary.overlapped_s / summary.comm_s if summary.comm_s and summary.overlapped_s is not None else None
    return Breakdown(shares, shares["exposed_sync_s"], overlapped)


def epoch_split(
    cell: tuple[str, CellSummary], baseline_id: str, efficiency: float, steps_per_epoch: float
) -> EpochSplit:
    """Compute and communication per epoch, inferred and measured (method.md §7).

    `cell` is its id and summary; `efficiency` is t_1(b) / t_N(b), taken block by block, so that the drift of
    the machine is in neither side; `steps_per_epoch` is D / B, not rounded: the same samples at any world
    size (§6). The measured side is the measured shares of T_N, so that both splits divide the same time.
    """
    cell_id, summary = cell
    epoch_s = steps_per_epoch * summary.step_s.value
    taken_apart = breakdown(summary)
    assert taken_apart is not None, "an epoch is split where its steps were taken apart"
    shares = taken_apart.shares
    mean_step_s = sum(summary.parts_s.values())
    return EpochSplit(
        cell_id=cell_id,
        baseline_id=baseline_id,
        epoch_s=epoch_s,
        inferred_compute_s=epoch_s * efficiency,
        inferred_comm_s=epoch_s * (1 - efficiency),
        measured_compute_s=epoch_s * sum(shares[part] for part in COMPUTE_PARTS),
        measured_exposed_s=epoch_s * shares["exposed_sync_s"],
        measured_comm_s=None if summary.comm_s is None else epoch_s * summary.comm_s / mean_step_s,
    )
