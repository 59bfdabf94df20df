"""Clocks of ranks that are known to differ."""

import contextlib
from pathlib import Path

from jobs import start

SECOND = 10**9


def test_offsets_are_found_within_their_error(tmp_path: Path) -> None:
    """The ranks share a clock, to which rank k adds k seconds: what is to be found is known to the nanosecond."""
    with contextlib.closing(start("launch_entries:aligned", 3, tmp_path, ahead_ns=SECOND)) as job:
        (zero, one, two) = (reply["said"] for reply in job.receive())
    assert zero == [0, 0]
    for rank, (offset_ns, error_ns) in enumerate((one, two), start=1):
        assert 0 < error_ns < SECOND / 2
        assert abs(offset_ns + rank * SECOND) <= error_ns + 1  # each is rounded down
