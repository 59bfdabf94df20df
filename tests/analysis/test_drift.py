"""Drift of the machine: noticed, and named by what goes with it."""

from typing import Any

import numpy as np
import pytest

from made_runs import MadeCell
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.drift import BOUND, drift_warning, spread
from worldsize.results.records import BlockConditions, CellRecord

QUIET = {"others_cores": 0.02, "stolen_cores": 0.0, "frequency_hz": 3e9}


def cell(
    times: list[float], conditions: dict[int, dict[str, Any]] | None = None, strategy: str = "ddp"
) -> CellAnalysis:
    """A cell whose block k takes `times[k]` per step; blocks that are not named were quiet."""
    made = MadeCell(strategy, 2)
    record = CellRecord(id=made.id, settings=made.settings)
    if conditions is not None:
        record.conditions = [
            BlockConditions(session=0, block=k, **{**QUIET, **conditions.get(k, {})}) for k in range(len(times))
        ]
    blocks = {(0, k): np.full(3, time) for k, time in enumerate(times)}
    return CellAnalysis(made.id, strategy, 2, 32, "complete", record=record, blocks=blocks)


STEADY = [0.5, 0.51, 0.5, 0.49, 0.5, 0.5, 0.51, 0.49]
SLOW = {1, 4, 6}
DRIFTING = [0.8 if k in SLOW else 0.5 for k in range(8)]


def message(conditions: dict[str, Any] | None) -> str:
    during = None if conditions is None else dict.fromkeys(SLOW, conditions)
    warning = drift_warning([cell(DRIFTING, during)])
    assert warning is not None
    assert warning.code == "drift"
    return warning.message


def test_a_steady_machine_is_not_warned_about() -> None:
    assert spread(cell(STEADY)) == pytest.approx(0.03, abs=0.02)
    assert drift_warning([cell(STEADY)]) is None


def test_four_blocks_say_nothing() -> None:
    assert spread(cell(DRIFTING[:4])) is None
    assert drift_warning([cell(DRIFTING[:4]), cell(STEADY)]) is None


def test_one_slow_block_of_many_is_no_drift() -> None:
    assert drift_warning([cell([0.5] * 19 + [2.0])]) is None


def test_the_bound_is_on_the_cell_that_drifts_most() -> None:
    width = spread(cell(DRIFTING))
    assert width is not None
    assert width > BOUND
    assert "blocks of 1 of 2 cells" in message_of([cell(STEADY, strategy="all-reduce"), cell(DRIFTING)])


def message_of(cells: list[CellAnalysis]) -> str:
    warning = drift_warning(cells)
    assert warning is not None
    return warning.message


def test_other_processes_are_named_with_what_they_used() -> None:
    assert "other processes: they used 0.90 cores in the slow blocks and 0.02 in the quick" in message(
        {"others_cores": 0.9, "stolen_cores": 0.1}
    )


def test_a_hypervisor_is_named() -> None:
    assert "hypervisor gave them 0.40 cores" in message({"stolen_cores": 0.4})


def test_a_slower_clock_is_named() -> None:
    assert "2.00 GHz in the slow blocks and at 3.00 GHz" in message({"frequency_hz": 2e9})


def test_where_nothing_goes_with_it_that_is_said() -> None:
    assert "Nothing that this machine can see" in message({})


def test_without_conditions_no_cause_is_made_up() -> None:
    assert "cause is not known" in message(None)
