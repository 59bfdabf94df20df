"""How long the collective benchmark takes at least, before it is run (method.md §5)."""

import math
from itertools import product

from worldsize.analysis.collective_cost import bus_factor, steps
from worldsize.config import CommSettings

START_S = 2.0
"""No job starts in less: each worker loads torch."""
TURN_S = 0.001
"""No sample takes less, with the way to the ranks and back."""
ENDING_S = 0.5
"""What of a budget goes into ending the workers and making the tables."""


def sizes_up_to(top_bytes: int) -> list[int]:
    """Sizes from 1 KiB by fours, and the top itself."""
    sizes = [1024 * 4**k for k in range(20) if 1024 * 4**k < top_bytes]
    return [*sizes, top_bytes]


def least_s(settings: CommSettings) -> float:
    """Start, turns, and the bytes of one call of each size over emulated links (method.md §5)."""
    hosts, n = settings.emulated, settings.world_size
    rate = None if hosts is None else hosts.payload_bytes_per_s
    delay_s = 0.0 if hosts is None or hosts.latency_s is None else hosts.latency_s
    least = START_S + ENDING_S
    for name, size in product(dict.fromkeys(settings.collectives), sizes_up_to(settings.top_bytes)):
        wire_s = 0.0 if rate is None else bus_factor(name, n) * size / rate
        least += TURN_S + wire_s + steps(name, n) * delay_s
    return least


def roomy_budget(settings: CommSettings) -> str:
    """A budget that leaves time for more than one call of each size, as the flag takes it."""
    return f"{math.ceil(2 * least_s(settings))}s"
