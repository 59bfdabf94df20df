"""What a cell was seen to send in a step, where no rule tells it: a script's own messages (method.md §14)."""

from collections import Counter

import numpy as np
import polars as pl

from worldsize.analysis.messages import KINDS
from worldsize.analysis.parts import STEP, layouts
from worldsize.results.folder import Cell
from worldsize.sending import AFTER_BACKWARD, BEFORE_FORWARD, Sent

BACKWARD = "backward"
OVER = 0.99
"""Share of backward from which on a blocking message is issued when that is over: marks are some µs apart."""


def sent_in(cell: Cell) -> list[Sent] | None:
    """The messages of its usual step on its first rank; None where that has what cannot be simulated.

    That is a step without backward, an unknown collective, one that blocks backward, and any but a broadcast before it.

    A message of backward is placed by when it was issued: medians over the steps that send the same.
    """
    first = pl.col("rank") == 0
    spans = cell.collect(cell.scan_spans().filter(first))
    steps = cell.collect(cell.scan_steps().filter("timed", first)).join(spans, on=STEP, how="inner")
    if steps.is_empty():
        return None
    rows, stretches = max(layouts(steps), key=lambda found: len(found[0]))
    if BACKWARD not in stretches.names:
        return None
    same = steps.gather(rows)
    kinds = list(map(tuple, same["kind"].to_list()))
    sizes = list(map(tuple, same["payload_bytes"].to_list()))
    usual = Counter(zip(kinds, sizes, strict=True)).most_common(1)[0][0]
    if any(kind not in KINDS for kind in usual[0]):
        return None
    alike = [row for row, found in enumerate(zip(kinds, sizes, strict=True)) if found == usual]
    place = len(stretches.names) - 1 - stretches.names[::-1].index(BACKWARD)
    starts, ends = (times[alike, place, None] / 1e9 for times in (stretches.starts, stretches.ends))
    issued = np.array(same["issued_s"].gather(alike).to_list())
    shares = np.median((issued - starts) / np.maximum(ends - starts, 1e-9), axis=0)
    blocking = same["blocking"][alike[0]]
    if blocking is None:  # schema 1
        return None
    found = [
        Sent(KINDS[kind], size, _ready(share, held), held)
        for kind, size, share, held in zip(*usual, shares.tolist(), blocking, strict=True)
    ]
    return None if any(map(_beyond, found)) else found


def _beyond(sent: Sent) -> bool:
    """Whether it is none of those that the simulation knows."""
    before = sent.ready == BEFORE_FORWARD and sent.collective != "broadcast"
    return before or (sent.blocking and sent.ready not in (BEFORE_FORWARD, AFTER_BACKWARD))


def _ready(share: float, blocking: bool) -> float:
    """Before forward, with a part of backward, or after it."""
    if share < 0:
        return BEFORE_FORWARD
    return AFTER_BACKWARD if blocking and share >= OVER else min(share, 1.0)
