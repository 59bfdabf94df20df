"""Two formulas that a forecast must beat: Amdahl's law, and computing and network in one power (method.md §14)."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar

POWERS = (1.0, 30.0)
"""Of the second formula: 1 adds computing and network, infinity takes the larger."""


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
