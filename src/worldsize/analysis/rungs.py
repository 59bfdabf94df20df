"""Which strategy pays off: each beside the fastest exact one of the same N and b, in bytes, speed and training.

A rung that is lossy, or whose ranks exchange seldom, is fast for what it leaves out; so its speed stands beside what
that does to the training (method.md §10).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.efficiency import (
    NOT_IN_TURN,
    Efficiency,
    lost_seeds,
    throughput_ratio,
    to_target,
    trainings,
)
from worldsize.analysis.equal_samples import (
    AccuracyDifference,
    LossDifference,
    Pair,
    accuracy_difference,
    loss_difference,
)
from worldsize.analysis.headline import rate
from worldsize.analysis.statistics import Ratio, includes, reciprocal, scaled
from worldsize.analysis.study import StudyAnalysis, once
from worldsize.results.beside import ACCURACY, THROUGHPUT
from worldsize.results.records import Estimate

Judged = Literal["higher", "lower", "indistinguishable", "one seed", "not known"]
NO_EXACT = "no exact strategy with the same N and b has numbers"
NOT_ALL_SEEDS = "not trained to an end with each seed"
NOT_PAIRED = "not timed in turn with it: no ratio"


@dataclass(frozen=True)
class TrainingCost:
    """What a rung does to the training, against the exact synchronisation with the same samples."""

    seeds: int
    loss: LossDifference | None
    """None where no loss was recorded."""
    accuracy: AccuracyDifference | None
    """None where no whole epochs were trained and evaluated."""
    own_weights: bool
    """Whether a step's loss is that of each rank's own weights: it says nothing of the weights that they agree on."""

    @property
    def loss_is(self) -> Judged:
        """The training loss; never judged by what each rank's own weights say."""
        if self.loss is not None and self.loss.not_finite:
            return "higher"
        return "not known" if self.own_weights or self.loss is None else judged(self.loss.estimate)

    @property
    def accuracy_is(self) -> Judged:
        """The test accuracy."""
        return judged(self.accuracy.estimate) if self.accuracy else "not known"

    @property
    def significant(self) -> bool:
        """Whether the training is worse with 95 % confidence, in loss or in accuracy."""
        return self.loss_is == "higher" or self.accuracy_is == "lower"

    @property
    def has_interval(self) -> bool:
        """Whether anything of it is known with an interval."""
        known = ("higher", "lower", "indistinguishable")
        return self.loss_is in known or self.accuracy_is in known


@dataclass(frozen=True)
class Rung:
    """A cell of several workers, in a group with at least one rung that is not exact."""

    cell: CellAnalysis
    exact: CellAnalysis | None
    """The fastest exact one of the same N, b and label: the cell itself, where it is that."""
    bytes_sent: int | None
    """Through the busiest rank, per step, by formula (method.md §4)."""
    of_fp32: float | None
    """These ÷ those of an all-reduce of all gradients in fp32, 2(N−1)/N·S."""
    speed: Ratio | None
    """Samples/s ÷ those of the exact one."""
    link_share: Estimate | None
    """Of the step, what its bytes need at the rate of the link (method.md §12); None where that is not known."""
    of_fp32_limit: Estimate | None
    """Step ÷ what the bytes in fp32 need at that rate: below 1 no exact strategy could be as fast."""
    cost: TrainingCost | None
    """None for an exact one, and where `remark` says why."""
    to_target: Efficiency | None
    """Against the exact one, where a target was set."""
    remark: str

    @property
    def lossy(self) -> bool:
        """Whether it trains otherwise than the mean of all gradients in each step would."""
        return not self.cell.traits.exact

    @property
    def faster(self) -> bool:
        """Whether it is significantly faster than the exact one."""
        return self.speed is not None and self.speed.estimate.low is not None and self.speed.estimate.low > 1


def judged(difference: Estimate | None) -> Judged:
    """A difference of trainings: never called higher or lower where its interval holds 0, or where there is none."""
    if difference is None:
        return "not known"
    if difference.low is None:
        return "one seed"
    if includes(difference, 0.0):
        return "indistinguishable"
    return "higher" if difference.value > 0 else "lower"


@once
def rungs(study: StudyAnalysis) -> tuple[Rung, ...]:
    """All cells of several workers in groups (N, b) that have a lossy one, the groups in the order of the plan.

    None of a sweep, whose trials are not timed in turn.
    """
    if study.sweeps:
        return ()
    groups: dict[tuple[int, int, str], list[CellAnalysis]] = {}
    for cell in study.cells:
        if cell.world_size > 1 and cell.summary is not None:
            groups.setdefault((cell.world_size, cell.batch_size, cell.label), []).append(cell)
    kept = [cells for cells in groups.values() if not all(cell.traits.exact for cell in cells)]
    exact = {cell.id: _fastest_exact(study, cells) for cells in kept for cell in cells}
    found = [cell for cells in kept for cell in cells]
    compared = [(cell, other) for cell in found if (other := exact[cell.id]) is not None and other is not cell]
    targets = {each.cell.id: each for each in to_target(study, compared)}
    return tuple(_rung(study, cell, exact[cell.id], targets.get(cell.id)) for cell in found)


def rung_of(study: StudyAnalysis, cell: CellAnalysis) -> Rung | None:
    """That of a cell; None of one that is in no such group."""
    return next((each for each in rungs(study) if each.cell is cell), None)


def fastest_lossy(study: StudyAnalysis, exact: CellAnalysis) -> Rung | None:
    """The fastest lossy rung beside an exact cell that it was timed in turn with."""
    found = [each for each in rungs(study) if each.lossy and each.exact is exact and each.speed is not None]
    return max(found, key=lambda each: rate(each.cell), default=None)


def _fastest_exact(study: StudyAnalysis, cells: Sequence[CellAnalysis]) -> CellAnalysis | None:
    allowed = study.record.asked.allow_oversubscribed
    found = [cell for cell in cells if cell.traits.exact and (allowed or not cell.oversubscribed)]
    return max(found, key=rate, default=None)


def _rung(study: StudyAnalysis, cell: CellAnalysis, exact: CellAnalysis | None, target: Efficiency | None) -> Rung:
    wire = cell.record.wire if cell.record else None
    sent, whole = wire.busiest_rank_bytes if wire else None, _fp32_bytes(exact)
    link, step_s = link_bytes_per_s(study, cell), cell.summary.step_s if cell.summary else None
    ring = link_bytes_per_s(study, cell, rooted=False)
    speed, slow = (None, NO_EXACT) if exact is None else _speed(study, cell, exact)
    cost, unknown = (None, "") if cell.traits.exact or exact is None else _cost(study, cell, exact)
    return Rung(
        cell=cell,
        exact=exact,
        bytes_sent=sent,
        of_fp32=sent / whole if sent is not None and whole else None,
        speed=None if exact is cell else speed,
        link_share=reciprocal(step_s, sent / link) if step_s and sent is not None and link else None,
        of_fp32_limit=scaled(step_s, ring / whole) if step_s and whole and ring else None,
        cost=cost,
        to_target=target,
        remark="" if exact is cell else "; ".join(filter(None, [slow, unknown])),
    )


def _fp32_bytes(exact: CellAnalysis | None) -> float | None:
    """Of an all-reduce of all gradients as they are: 2(N−1)/N·S."""
    wire = exact.record.wire if exact is not None and exact.record else None
    if exact is None or wire is None:
        return None
    return 2 * (exact.world_size - 1) / exact.world_size * wire.payload_bytes


def link_bytes_per_s(study: StudyAnalysis, cell: CellAnalysis, *, rooted: bool | None = None) -> float | None:
    """What the link between its workers can carry: its payload rate where that is known, else the measured peak.

    Of collectives as the cell uses them, unless it is said whether they are `rooted` (method.md §12).
    """
    rooted = cell.traits.rooted if rooted is None else rooted
    link, placement = study.links.get(cell.world_size), cell.record.placement if cell.record else None
    if placement is not None and placement.processes == 1:
        return None
    if link is None:  # as in trainings of whole epochs, which time no collective
        emulated = study.record.asked.emulated
        rated = emulated.slowest(cell.world_size, rooted=rooted) if emulated else None
        return rated.bytes_per_s if rated else None
    rated = link.rated(rooted=rooted)
    return rated.bytes_per_s if rated else link.peak(rooted=rooted)


def _speed(study: StudyAnalysis, cell: CellAnalysis, exact: CellAnalysis) -> tuple[Ratio | None, str]:
    """Samples/s ÷ those of the exact one, of blocks in turn; then why there is none.

    Of whole epochs, where nothing timed steps beside them, the blocks are epochs, as in all tables of such a study.
    """
    found, why = throughput_ratio(cell, exact, [study, *filter(None, [study.parts.get(THROUGHPUT)])])
    if found is not None or why != NOT_IN_TURN or cell.threads_per_worker != exact.threads_per_worker:
        return found, why
    if cell.oversubscribed and not study.record.asked.allow_oversubscribed:
        return None, "more threads than cores: the ratio is withheld"
    ratio = exact.step_ratio(cell)
    return (ratio, "") if ratio.paired else (None, NOT_PAIRED)


def _cost(study: StudyAnalysis, cell: CellAnalysis, exact: CellAnalysis) -> tuple[TrainingCost | None, str]:
    """What it does to the training, then why that is not known."""
    found = (study,) if ACCURACY in study.parts else trainings(study)
    lost = () if ACCURACY in study.parts else lost_seeds(study)
    pairs = list(_pairs(found, cell.id, exact.id))
    if lost or len(pairs) < len(found):
        # The difference of the seeds that came there would be that of the lucky ones.
        return None, NOT_ALL_SEEDS
    loss, accuracy = loss_difference(pairs), accuracy_difference(pairs)
    if loss is None and accuracy is None:
        return None, "no loss was recorded: what it does to the training is not known"
    return TrainingCost(len(pairs), loss, accuracy, cell.traits.travels == "weights"), ""


def _pairs(found: Sequence[StudyAnalysis], name: str, exact: str) -> Iterator[Pair]:
    for each in found:
        cells = [each.run.cells.get(name), each.run.cells.get(exact)]
        both = [cell for cell in cells if cell is not None and cell.record.state != "failed"]
        if len(both) == len(cells):
            yield both[0], both[1]
