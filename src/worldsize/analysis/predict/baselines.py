"""Two formulas that a forecast must beat: Amdahl's law, and computing and network in one power (method.md §14)."""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.optimize import minimize_scalar

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.predict.forecast import Target, sent_over
from worldsize.analysis.predict.model import Model

POWERS = (1.0, 30.0)
"""Of the second formula: 1 adds computing and network, infinity takes the larger."""


class Formulas:
    """The two formulas, fitted to the cells of a model: of the strategy where it has some, else of all."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def amdahl_s(self, target: Target) -> float | None:
        """A step by Amdahl's law; None without a baseline or a speed-up."""
        if not self.model.known(target.strategy).alone:
            return None
        speedups = [
            (cell.world_size, cell.world_size * self._alone_s(cell) / cell.summary.step_s.value)
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
            network_s = self._network_s(Target.of(cell))
            if network_s is not None and cell.summary is not None:
                yield self.model.compute(cell.batch_size, cell.strategy).total_s, network_s, cell.summary.step_s.value

    def _network_s(self, target: Target) -> float | None:
        """What all messages of a step take, one after the other."""
        sending = sent_over(self.model, target)
        if sending is None:
            return None
        wire, sent = sending
        return sum(message.alone_s for message in wire.messages(sent, target.world_size))


def serial_fraction(speedups: Sequence[tuple[int, float]]) -> float | None:
    """The mean of Karp and Flatt's over (N, speed-up); None without one of several workers."""
    found = [(1 / speedup - 1 / n) / (1 - 1 / n) for n, speedup in speedups if n > 1]
    return float(np.mean(found)) if found else None


def amdahl_step_s(alone_s: float, world_size: int, serial: float) -> float:
    """A step of N workers with so many samples each, by Amdahl's law: N·t₁ ÷ speed-up."""
    return world_size * alone_s * (serial + (1 - serial) / world_size)


def power_of(times: Sequence[tuple[float, float, float]]) -> float | None:
    """The γ that fits (computing, network, step) best, by the logarithm of the step; None without any."""
    if not times:
        return None
    compute, network, step = np.array(times).T

    def misfit(power: float) -> float:
        return float(np.sum(np.log(_joined(compute, network, power) / step) ** 2))

    return float(minimize_scalar(misfit, bounds=POWERS, method="bounded").x)


def power_step_s(compute_s: float, network_s: float, power: float) -> float:
    """T = (Tc^γ + Tn^γ)^(1/γ)."""
    return float(_joined(np.array([compute_s]), np.array([network_s]), power)[0])


def _joined(compute: np.ndarray, network: np.ndarray, power: float) -> np.ndarray:
    most = np.maximum(compute, network)
    result: np.ndarray = most * ((compute / most) ** power + (network / most) ** power) ** (1 / power)
    return result
