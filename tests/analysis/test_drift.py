"""Drift of the machine: noticed, and named by what goes with it."""

from typing import Any

import numpy as np
import pytest

from made_runs import MadeCell
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.drift import BOUND, drift_warning, drifts, spread
from worldsize.results.records import CellRecord
from worldsize.results.step_records import BlockConditions

QUIET = {"others_cores": 0.02, "stolen_cores": 0.0, "frequency_hz": 3e9}


def cell(
    times: list[float], conditions: dict[int, dict[str, Any]] | None = None, strategy: str = "ddp"
) -> CellAnalysis:
    """A cell whose block k takes `times[k]` per step; blocks that are not named were quiet."""
    made = MadeCell(strategy, 2)
    record = CellRecord.of(made.settings)
    if conditions is not None:
        record.conditions = [
            BlockConditions(session=0, block=k, **{**QUIET, **conditions.get(k, {})}) for k in range(len(times))
        ]
    blocks = {(0, k): np.full(3, time) for k, time in enumerate(times)}
    return CellAnalysis(made.id, strategy, 2, 32, "complete", record=record, blocks=blocks)


def blocks_of(times: list[float]) -> list[Any]:
    return list(cell(times).blocks.values())


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
    assert spread(blocks_of(STEADY)) == pytest.approx(0.03, abs=0.02)
    assert drift_warning([cell(STEADY)]) is None


def test_four_blocks_say_nothing() -> None:
    assert spread(blocks_of(DRIFTING[:4])) is None
    assert drift_warning([cell(DRIFTING[:4]), cell(STEADY)]) is None


@pytest.mark.parametrize("count", [11, 30])
def test_steps_that_vary_by_themselves_are_no_drift(count: int) -> None:
    """Independent steps that vary by 15 %, two in a block: blocks are 30 % apart, and nothing drifts."""
    generator = np.random.default_rng(0)
    told = [drifts([0.5 * np.exp(0.15 * generator.standard_normal(2)) for _ in range(count)]) for _ in range(100)]
    assert sum(told) <= 4  # of 100 at 1 %, more than 4 with a probability of 0.003
    wide = [0.5 * np.exp(0.15 * generator.standard_normal(2)) for _ in range(count)]
    assert (spread(wide) or 0) > BOUND, "or there is nothing to decide"


def test_load_that_has_nothing_to_do_with_the_steps_is_not_named() -> None:
    generator = np.random.default_rng(1)
    times = list(0.5 * np.where(generator.random(40) < 0.5, 1.4, 1.0))
    named = 0
    for _ in range(50):
        during = {k: {"others_cores": 31 + 0.8 * generator.standard_normal()} for k in range(40)}
        named += "other processes:" in message_of([cell(times, during)])
    assert named <= 4


def test_one_slow_block_of_many_is_no_drift() -> None:
    assert drift_warning([cell([0.5] * 19 + [2.0])]) is None


def test_the_bound_is_on_the_cell_that_drifts_most() -> None:
    width = spread(blocks_of(DRIFTING))
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
    assert "at the end of the slow blocks the cores ran at 2.00 GHz, of the quick ones at 3.00 GHz" in message(
        {"frequency_hz": 2e9}
    )


def test_where_nothing_goes_with_it_that_is_said() -> None:
    assert "No cause is visible from inside this machine" in message({})


def test_without_conditions_no_cause_is_made_up() -> None:
    assert "cause is not known" in message(None)
