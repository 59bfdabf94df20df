"""How far off a forecast is: each measured cell predicted from the others, beside the two formulas (method.md §14)."""

from collections.abc import Iterator

import numpy as np

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.predict.baselines import amdahl_step_s, power_of, power_step_s, serial_fraction
from worldsize.analysis.predict.forecast import Target, predicted
from worldsize.analysis.predict.model import Model
from worldsize.analysis.study import StudyAnalysis
from worldsize.results.forecast_records import HeldOut

STEPS = 100
"""Steps that are simulated of each: enough for a mean, and all cells must be there within a second or two."""


def held_out(analysis: StudyAnalysis) -> list[HeldOut]:
    """Each cell of several workers that the others tell enough of to predict it."""
    whole = Model(analysis)
    found = (_held_out(whole, cell) for cell in whole.several)
    return [each for each in found if each is not None]


def _held_out(whole: Model, cell: CellAnalysis) -> HeldOut | None:
    model = Model(whole.analysis, {cell.id})
    settings = cell.record.settings if cell.record else None
    if cell.summary is None or not model.known(cell.strategy).together:
        return None
    target = Target(cell.strategy, cell.world_size, cell.batch_size, settings.bucket_mb if settings else None)
    found = predicted(model, target, STEPS)
    if found is None:
        return None
    measured_s = cell.summary.step_s.value
    steps = np.concatenate(list(cell.blocks.values()))
    low, high = found.band_s
    formulas = Formulas(model)
    amdahl_s, power_s = formulas.amdahl_s(target), formulas.power_s(target)
    return HeldOut(
        cell=cell.id,
        measured_s=measured_s,
        predicted_s=found.step_s,
        error=found.step_s / measured_s - 1,
        in_band=float(((steps >= low) & (steps <= high)).mean()),
        amdahl_error=None if amdahl_s is None else amdahl_s / measured_s - 1,
        power_error=None if power_s is None else power_s / measured_s - 1,
    )


class Formulas:
    """The two formulas, fitted to the cells of a model: of the strategy where it has some, else of all."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def amdahl_s(self, target: Target) -> float | None:
        """A step by Amdahl's law; None without a baseline or a speed-up."""
        if not self.model.known(target.strategy).alone:
            return None
        speedups = [
            (
                cell.world_size,
                cell.world_size * self._alone_s(cell) / cell.summary.step_s.value,
            )
            for cell in self._fitting(target.strategy)
            if cell.summary is not None
        ]
        serial = serial_fraction(speedups)
        return None if serial is None else amdahl_step_s(self._alone_s(target), target.world_size, serial)

    def power_s(self, target: Target) -> float | None:
        """A step by the sum of powers; None where no cell tells the power."""
        times = list(self._times(target.strategy))
        power, network_s = power_of(times), self._network_s(target)
        if power is None or network_s is None:
            return None
        return power_step_s(self.model.compute(target.batch_size, target.strategy).total_s, network_s, power)

    def _alone_s(self, of: CellAnalysis | Target) -> float:
        return self.model.alone_at(of.batch_size, of.strategy).total_s

    def _fitting(self, strategy: str) -> list[CellAnalysis]:
        own = [cell for cell in self.model.several if cell.strategy == strategy]
        return own or self.model.several

    def _times(self, strategy: str) -> Iterator[tuple[float, float, float]]:
        for cell in self._fitting(strategy):
            settings = cell.record.settings if cell.record else None
            bucket_mb = settings.bucket_mb if settings else None
            network_s = self._network_s(Target(cell.strategy, cell.world_size, cell.batch_size, bucket_mb))
            if network_s is not None and cell.summary is not None:
                yield self.model.compute(cell.batch_size, cell.strategy).total_s, network_s, cell.summary.step_s.value

    def _network_s(self, target: Target) -> float | None:
        """What all messages of a step take, one after the other."""
        if self.model.wire is None:
            return None
        wire = self.model.wire.over(target.hosts)
        buckets = self.model.buckets(target.bucket_mb, target.world_size, wire)
        sent = self.model.sent(
            target.strategy, buckets, self.model.compute(target.batch_size, target.strategy).backward_s
        )
        if sent is None or not wire.knows(sent):
            return None
        return sum(message.alone_s for message in wire.messages(sent, target.world_size))
