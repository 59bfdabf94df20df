"""What a run knows that a forecast needs: computing by batch, the link, what messages cost computing, how ranks differ.

Each number comes from its cells, and from a part of them where a forecast is to be held against the others (§14).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.predict.calibration import (
    Factor,
    Measured,
    Overhead,
    Residuals,
    Slowdown,
    combined,
    messages_doubt,
    overhead_of,
    residuals_of,
    slowdown_over,
    usual_slowdown,
    woken,
)
from worldsize.analysis.predict.network import AS_TIMED, TURNS, Factors, LinkModel, link_model_of, with_turns
from worldsize.analysis.predict.observed import Compute, beside_messages, by_itself, mean_of, on_the_line, ranks_of
from worldsize.analysis.predict.seen import sent_in
from worldsize.analysis.study import StudyAnalysis
from worldsize.results.folder import Cell
from worldsize.results.records import Placement
from worldsize.sending import Buckets, Gradients, Sent
from worldsize.traits import TRAITS, TraitsRecord, traits_of

EXPOSED_ENOUGH = 0.1
"""Exposed communication as a share of the step from which on a step tells something of the messages: how well they keep
to the benchmark, and that what is left of the step belongs to them."""
FACTORS = (0.7, 1.6)
"""Range of the time of messages in training ÷ benchmark; beyond it, something else is the cause."""
HALVINGS = 12
"""To 0.02 % of what messages take."""
CALIBRATED = 40
"""Measured steps, from all over the cell, by which messages are compared with the benchmark; more take time."""


class Known(NamedTuple):
    """Computing by local batch."""

    alone: dict[int, Compute]
    """Of one worker; of the plain model where that was measured."""
    together: dict[int, Compute]
    """Of a worker among several while nothing travels: measured, or one worker's × the slowdown among several."""


@dataclass(frozen=True, eq=False)
class Model:
    """What the cells of a run say, without those that are left out."""

    analysis: StudyAnalysis
    left_out: Collection[str] = field(default=())
    """Ids of cells that it must not know."""
    _known: dict[str, Known] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def cells(self) -> list[CellAnalysis]:
        """The cells with numbers and known parts."""
        return [
            cell
            for cell in self.analysis.cells
            if cell.summary is not None and cell.summary.parts_s and cell.id not in self.left_out and not cell.alone
        ]

    @cached_property
    def several(self) -> list[CellAnalysis]:
        """Those of several workers, each a process, with cores of their own."""
        return [
            cell
            for cell in self.cells
            if cell.world_size > 1 and _processes(cell) == cell.world_size and not cell.oversubscribed
        ]

    @cached_property
    def placements(self) -> list[Placement]:
        """Where those of several workers ran, as far as it was recorded."""
        return [cell.record.placement for cell in self.several if cell.record and cell.record.placement]

    def traits(self, strategy: str) -> TraitsRecord:
        """Of a strategy; of a user's own class as its cells recorded them."""
        cells = (cell.traits for cell in self.analysis.cells if cell.strategy == strategy)
        return next(cells, None) or traits_of(strategy)

    def samples(self, cell: CellAnalysis) -> Cell:
        """The raw samples of a cell."""
        return self.analysis.run.cells[cell.id]

    @cached_property
    def gradients(self) -> Gradients | None:
        """Of the model that the run trained; None where it was not recorded."""
        model = self.analysis.record.model
        records = [cell.record.gradients for cell in self.cells if cell.record and cell.record.gradients]
        if not records or model is None:
            return None
        best = max(records, key=lambda found: found.steps)
        return Gradients(best.sizes_bytes, best.ready_share, model.buffer_bytes)

    @cached_property
    def wire(self) -> LinkModel | None:
        """The link between its workers."""
        return link_model_of(self.analysis)

    def compute(self, batch_size: int, strategy: str) -> Compute:
        """What a worker among several computes while nothing travels, at any local batch."""
        return on_the_line(self.known(strategy).together, batch_size)

    def alone_at(self, batch_size: int, strategy: str) -> Compute:
        """What one worker computes at any local batch; as among several where none was measured alone."""
        known = self.known(strategy)
        return on_the_line(known.alone or known.together, batch_size)

    def known(self, strategy: str) -> Known:
        """Computing by local batch; a script is a program of its own, all strategies of a study train one model."""
        group = "" if self.analysis.record.trains else strategy
        if group not in self._known:
            self._known[group] = self._computing([cell for cell in self.cells if group in ("", cell.strategy)])
        return self._known[group]

    def _computing(self, cells: Sequence[CellAnalysis]) -> Known:
        alone: dict[int, Compute] = {}
        for cell in sorted(cells, key=lambda cell: bool(cell.traits.collectives)):
            if cell.world_size == 1 and cell.batch_size not in alone:
                known = beside_messages(self.samples(cell))
                alone |= {cell.batch_size: known} if known else {}
        # Memory and caches are shared among as many as there are: the largest world is the nearest to larger ones.
        found: dict[int, tuple[int, list[Compute]]] = {}
        for cell in (cell for cell in cells if cell in self.several):
            size, each = found.get(cell.batch_size, (0, []))
            known = self._by_itself(cell)
            if known is not None and cell.world_size >= size:
                found[cell.batch_size] = cell.world_size, [*(each if cell.world_size == size else ()), known]
        together = {batch: mean_of(each) for batch, (_, each) in found.items()}
        both = together.keys() & alone.keys()
        load = mean_of([together[batch].over(alone[batch]) for batch in both] or [Compute(1.0, 1.0, 1.0)])
        return Known(alone, {batch: each.times(load) for batch, each in alone.items()} | together)

    def _by_itself(self, cell: CellAnalysis) -> Compute | None:
        known = by_itself(self.samples(cell))
        if known is None and not self.analysis.record.trains:  # a script is never without its messages
            return beside_messages(self.samples(cell))
        return known

    def sent(self, strategy: str, buckets: Buckets, backward_s: float) -> list[Sent] | None:
        """What a step of a strategy sends; None where neither its rule nor a measured cell tells."""
        rule = TRAITS[strategy].sends if strategy in TRAITS else None
        if self.traits(strategy).period:  # no one step of it is like the others
            return None
        if rule is not None and self.gradients is not None:
            return rule(self.gradients, buckets, backward_s)
        seen = [cell for cell in self.several if cell.strategy == strategy]
        return sent_in(self.samples(max(seen, key=lambda cell: cell.world_size))) if seen else None

    def buckets_of(self, cell: CellAnalysis) -> Buckets:
        """Those that a measured cell was run with."""
        settings = cell.record.settings if cell.record else None
        return self.buckets(settings.bucket_mb if settings else None, cell.world_size)

    def buckets(self, bucket_mb: object, world_size: int, wire: LinkModel | None = None) -> Buckets:
        """What `--bucket-mb` asks for."""
        if isinstance(bucket_mb, int | float):
            return max(1, round(bucket_mb * 1e6))
        link = wire or self.wire
        if bucket_mb != "auto" or link is None or "all-reduce" not in link.models:
            return None
        return lambda size: link.planned_s(world_size, size)

    @cached_property
    def overhead(self) -> Overhead:
        """What backward takes longer beside messages, from all cells of strategies whose messages overlap it.

        Nothing of a script, whose computing was never seen without messages.
        """
        if self.wire is None or not self.analysis.record.trains:
            return Overhead(0.0, 0.0)
        found = []
        for cell in (cell for cell in self.several if cell.traits.overlaps):
            summary, sync = cell.summary, beside_messages(self.samples(cell))
            alone_s = self.compute(cell.batch_size, cell.strategy).backward_s
            if summary is not None and sync is not None and alone_s > 0:
                found.append(Slowdown(sync.backward_s - alone_s, summary.overlapped_s or 0.0, alone_s))
        return overhead_of(found, usual_slowdown(self.wire.bytes_per_s) if self._gloo else None)

    @property
    def _gloo(self) -> bool:
        return all(placement.backend == "gloo" for placement in self.placements)

    def slowdown(self, wire: LinkModel) -> float:
        """Share of its speed that computing loses while messages are under way over this link."""
        known = self.wire or wire
        return slowdown_over(self.overhead.slowdown, known.bytes_per_s, wire.bytes_per_s)

    def work(self, strategy: str, waiting_s: float) -> Compute:
        """What a strategy adds to computing: in backward where it overlaps, else after, where ranks wait so long."""
        if self.traits(strategy).overlaps:
            return Compute(0.0, self.overhead.work_s, 0.0)
        found = [
            woken(sync.total_s - self.compute(cell.batch_size, strategy).total_s, waiting_s, self._waiting_s(cell))
            for cell in self.several
            if cell.strategy == strategy
            if (sync := beside_messages(self.samples(cell))) is not None
        ]
        return Compute(0.0, 0.0, float(np.mean(found)) if found else 0.0)

    def _waiting_s(self, cell: CellAnalysis) -> float:
        """How long ranks of a cell wait for messages after backward; 0 of scripts, and of backends not measured."""
        sent = self.sent(cell.strategy, self.buckets_of(cell), self.compute(cell.batch_size, cell.strategy).backward_s)
        if not self._gloo or not self.analysis.record.trains or self.wire is None:
            return 0.0
        return self.wire.waiting_s(sent, cell.world_size) if sent and self.wire.knows(sent) else 0.0

    def factors_of(self, strategy: str) -> Factors:
        """How many times as long the messages of a strategy take in training as the benchmark says.

        From its own cells as far as they tell it, else from those of all strategies, else 1; latency only from
        strategies that use a root alike, for the benchmark times rooted collectives in another way. Each cell counts
        by how well its step is known and by how much of that is communication.
        """
        own = [each for each in self._factors if each.strategy == strategy]
        # What is usual has its own cells in it, too: without them two models' largest error was 7.6 % in place of 4.9.
        in_turn = any(each.in_turn for each in own) if own else TURNS.issubset(self.traits(strategy).collectives)
        alike = [each for each in self._factors if each.in_turn == in_turn]
        usual = Factors(combined(alike, AS_TIMED).latency, combined(self._factors, AS_TIMED).rate)
        return combined(own, usual)

    @cached_property
    def _factors(self) -> list[Factor]:
        return [found for cell in self.several if (found := self._factor(cell)) is not None]

    def _factor(self, cell: CellAnalysis) -> Factor | None:
        summary = cell.summary
        exposed = summary.parts_s.get("exposed_sync_s", 0.0) / summary.step_s.value if summary else 0.0
        if summary is None or exposed < EXPOSED_ENOUGH:
            return None
        own = self._measured(cell, self._seen(cell))
        if own is None:
            return None
        low, high = FACTORS
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            shorter = own.step_s(Factors(middle, middle)) < summary.step_s.value
            low, high = (middle, high) if shorter else (low, middle)
        if low == FACTORS[0] or high == FACTORS[1]:  # it is something else that takes the time
            return None
        doubt, in_turn = messages_doubt(summary.step_s, exposed), any(turned for _, turned in with_turns(own.sent))
        return Factor(cell.strategy, float(np.log((low + high) / 2)), doubt, own.latency_share, in_turn)

    def _measured(self, cell: CellAnalysis, factors: NDArray[np.float64]) -> Measured | None:
        """A measured cell as the model has it, with what its ranks were seen to compute; None if that is not known."""
        compute = self.compute(cell.batch_size, cell.strategy)
        sent = self.sent(cell.strategy, self.buckets_of(cell), compute.backward_s)
        if self.wire is None or sent is None or not self.wire.knows(sent):
            return None
        work = self.work(cell.strategy, self.wire.waiting_s(sent, cell.world_size))
        return Measured(compute, work, factors, tuple(sent), self.wire, cell.world_size, self.overhead.slowdown)

    def _seen(self, cell: CellAnalysis) -> NDArray[np.float64]:
        """Computing of each rank in measured steps from all over the cell, as shares of the mean."""
        found = ranks_of(self.samples(cell))
        if found is None:
            return np.ones((1, cell.world_size))
        return found.factors[:: max(1, len(found.factors) // CALIBRATED)]

    def reference(self, strategy: str, batch_size: int) -> CellAnalysis | None:
        """The cell whose steps are drawn: of several workers, of the strategy, the largest, with the nearest batch."""

        def nearness(cell: CellAnalysis) -> tuple[bool, bool, int, float]:
            near = -abs(np.log(cell.batch_size / batch_size))
            return cell in self.several, cell.strategy == strategy, cell.world_size, float(near)

        order = sorted(self.cells, key=nearness, reverse=True)
        return next((cell for cell in order if ranks_of(self.samples(cell)) is not None), None)

    def residuals(self, cell: CellAnalysis) -> Residuals | None:
        """What the steps of a measured cell took beside what the model says of them."""
        ranks, summary = ranks_of(self.samples(cell)), cell.summary
        if ranks is None or summary is None or cell not in self.several:
            return None
        own = self._measured(cell, ranks.factors)
        if own is None:
            return None
        return residuals_of(own.steps(self.factors_of(cell.strategy)), ranks.world_s, summary.step_s)


def _processes(cell: CellAnalysis) -> int | None:
    placement = cell.record.placement if cell.record else None
    return placement.processes if placement else cell.world_size
