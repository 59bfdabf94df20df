"""Blocks of unlike lengths: a comparison of one run a side has the ratio of the printed times."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advised import Change, steps
from made_pairs import compared, quantity_of
from made_runs import MadeCell, make_run
from worldsize.analysis.study import analyse
from worldsize.results.folder import load_run
from worldsize.results.records import STEP_PARTS

WARM_UP = 2


def in_two_blocks(slow_s: float, fast_s: float) -> Change:
    """Ten steps of a block are a first one; they take other times than the hundred after them."""

    def change(_: int, record: dict[str, Any]) -> None:
        first = record["step"] < 10 + WARM_UP
        step_s = slow_s if first else fast_s
        parts = {part: record[part] * step_s / record["step_s"] for part in STEP_PARTS}
        record.update(block=0 if first else 1, step_s=step_s, **parts)

    return change


def test_a_block_counts_by_its_steps(tmp_path: Path) -> None:
    """Of one run a side the ratio is that of the printed times, and a speed-up is the one of the report."""
    single = MadeCell("single", 1, blocks=1, block_steps=110, warmup_steps=WARM_UP)
    ddp = replace(single, strategy="ddp", world_size=2, rank_spread=0)
    a, b = (make_run(tmp_path / side, [single, ddp]) for side in "ab")
    for run, of_single, of_ddp in ((a, (0.2, 0.02), (0.3, 0.02)), (b, (0.02, 0.02), (0.02, 0.06))):
        steps(single, in_two_blocks(*of_single))(run)
        steps(ddp, in_two_blocks(*of_ddp))(run)
    found = {cell.id: cell for cell in compared(a, b).cells}
    step = quantity_of(found[single.id], "step_s")
    assert step.old is not None
    assert (step.old, step.new) == pytest.approx((4 / 110, 0.02))
    ratio = found[single.id].plain
    assert ratio is not None
    assert ratio.value == pytest.approx(0.02 / step.old)
    assert ratio.low is not None, "two blocks a side"
    wait = quantity_of(found[single.id], "data_wait_s")
    assert wait.ratio is not None
    assert wait.ratio.value == pytest.approx(0.55)
    for run, side in ((a, "old"), (b, "new")):
        analysis = analyse(load_run(run))
        row = next(row for cell in analysis.cells if cell.id == ddp.id and (row := analysis.scaling_of(cell)))
        assert row.speedup is not None
        printed = getattr(quantity_of(found[ddp.id], "scaled_speedup"), side)
        assert printed == pytest.approx(row.speedup.estimate.value)
    for name in ("scaled_speedup", "efficiency"):
        gain = quantity_of(found[ddp.id], name)
        assert gain.ratio is not None
        assert gain.old is not None
        assert gain.ratio.value * gain.old == pytest.approx(gain.new)
        assert gain.ratio.low is not None
        assert gain.ratio.high is not None
        assert gain.ratio.low < gain.ratio.value < gain.ratio.high
