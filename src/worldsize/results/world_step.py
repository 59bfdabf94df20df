"""The time of a step of all ranks together, for tables, schedules and trackers alike (method.md §8)."""

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]


def world_step_s(
    begin_ns: Nanoseconds, end_ns: Nanoseconds, by_itself: NDArray[np.bool_], longest_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how long each step took (s): from the end of the step before on its last rank to its own end there.

    `begin_ns`, `end_ns`: when the last rank begins and ends each step, in order, on aligned clocks. `by_itself`:
    whether a step has none before it (the first of a turn, or of a launch), or comes after the computation that tells
    of disturbances: it begins when its last rank has begun. `longest_s`: of the rank that took longest; it counts where
    a clock was set back. All have one length; the first step is by itself.
    """
    before_ns = np.concatenate([begin_ns[:1], end_ns[:-1]])
    step_s: NDArray[np.float64] = (end_ns - np.where(by_itself, begin_ns, before_ns)) / 1e9
    return np.where(step_s > 0, step_s, longest_s)
