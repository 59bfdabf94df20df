"""Clocks of ranks that are known to differ."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from jobs import start
from worldsize.measure import alignment
from worldsize.measure.alignment import Measured, Offset, boot_id, settled

SECOND = 10**9
BIG = 2**127 + 5
"""A boot id fills 128 bits."""


def found(folder: Path, processes: int, **payload: Any) -> list[list[Any]]:
    """Offset and error of each rank, and whether there is one clock."""
    with contextlib.closing(start("launch_entries:aligned", processes, folder, **payload)) as job:
        return [reply["said"] for reply in job.receive()]


def test_processes_of_one_boot_share_one_clock(tmp_path: Path) -> None:
    assert found(tmp_path, 3, ahead_ns=0) == [[0, 0, True]] * 3


def test_processes_of_another_boot_share_theirs(tmp_path: Path) -> None:
    """All read the same clock here, and do not know: the two of the other boot know it as well as each other."""
    (zero, one, two) = found(tmp_path, 3, ahead_ns=0, boots=[BIG - 1, BIG, BIG])
    assert zero == [0, 0, False]
    assert one == two
    assert 0 < one[1] < SECOND / 2
    assert abs(one[0]) <= one[1]


def test_the_best_offset_of_a_boot_is_that_of_all_its_ranks() -> None:
    here, there, close = (Measured(1, Offset()), Measured(2, Offset(500, 90)), Measured(2, Offset(560, 20)))
    assert settled([here, there, close]) == [Offset(), Offset(560, 20), Offset(560, 20)]
    same = [here, Measured(1, Offset(-30, 31)), Measured(1, Offset(40, 40))]
    assert settled(same) == [Offset(one_clock=True)] * 3
    assert all(offset.exact for offset in settled(same))


def test_a_clock_that_is_surely_another_is_not_shared() -> None:
    """As in a time namespace: the boot is the same, the clock is not."""
    own = Measured(1, Offset(7_000, 50))
    assert settled([Measured(1, Offset()), own]) == [Offset(), own.offset]


def test_an_offset_that_ages_is_less_certain() -> None:
    assert Offset(5, 100).aged(10 * SECOND) == Offset(5, 1_000_100), "100 ppm of 10 s are a millisecond"
    assert Offset(one_clock=True).aged(10 * SECOND).exact


def test_where_no_boot_is_told_each_rank_has_its_own_offset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unknown = [Measured(0, Offset()), Measured(0, Offset(-3, 5))]
    assert settled(unknown) == [Offset(), Offset(-3, 5)]
    assert boot_id() > 0
    monkeypatch.setattr(alignment, "BOOT_ID", tmp_path / "none")
    assert boot_id() == 0


def test_offsets_are_found_within_their_error(tmp_path: Path) -> None:
    """The ranks share a clock, to which rank k adds k seconds: what is to be found is known to the nanosecond."""
    (zero, one, two) = found(tmp_path, 3, ahead_ns=SECOND)
    assert zero == [0, 0, False]
    for rank, (offset_ns, error_ns, one_clock) in enumerate((one, two), start=1):
        assert not one_clock
        assert 0 < error_ns < SECOND / 2
        assert abs(offset_ns + rank * SECOND) <= error_ns + 1  # each is rounded down
