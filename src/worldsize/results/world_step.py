"""The time of a step of all ranks together, for tables, schedules and trackers alike (method.md §8)."""

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]


def world_step_s(since_ns: Nanoseconds, end_ns: Nanoseconds, longest_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how long each step took (s), until its end on its last rank.

    `since_ns`: when the step before it ended on its own last rank. A step begins when its last rank has begun where
    there is none before it (the first of a turn, or of a launch), or where the computation that tells of disturbances
    came between. `end_ns`: when the last rank ends it, on the same aligned clocks. `longest_s`: of the rank that took
    longest; it counts where a clock was set back.
    """
    step_s: NDArray[np.float64] = (end_ns - since_ns) / 1e9
    return np.where(step_s > 0, step_s, longest_s)
