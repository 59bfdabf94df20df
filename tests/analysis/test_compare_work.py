"""What a step of either side must have in common before its time is judged, and that no run is held against itself."""

from dataclasses import replace
from pathlib import Path

import pytest

from made_pairs import DDP, SINGLE, change_study, compared, make_sides, quantity_of
from made_sides import Maker, Truth
from worldsize.analysis.compare.comparison import compare_runs
from worldsize.analysis.compare.sides import read_side, snapshot
from worldsize.config import CompareSettings
from worldsize.errors import DAMAGED, UsageError
from worldsize.results.baseline_records import StoredCell, StoredRun, write_baseline
from worldsize.results.folder import load_run
from worldsize.results.imported import note_imported
from worldsize.results.provenance import SHOWN, UserCode, UserFile
from worldsize.results.records import StudyRecord

CELLS = ("single-w1-b64", "ddp-w2-b64")
CALM = Truth(between=0.005, within=0.002)
MICRO_BATCHES = 4


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path / "made", 3, CELLS)


def with_cells(run: StoredRun, **update: object) -> StoredRun:
    return run.model_copy(update={"cells": [cell.model_copy(update=update) for cell in run.cells]})


def accumulating(run: StoredRun) -> StoredRun:
    """Its steps have so many micro-batches."""

    def more(cell: StoredCell) -> StoredCell:
        assert cell.summary is not None
        rate = cell.summary.samples_per_s
        more_of_them = rate.model_copy(update={"value": MICRO_BATCHES * rate.value})
        summary = cell.summary.model_copy(update={"samples_per_s": more_of_them})
        return cell.model_copy(update={"accumulate": MICRO_BATCHES, "summary": summary})

    return run.model_copy(update={"cells": [more(cell) for cell in run.cells]})


def test_a_step_of_fewer_micro_batches_is_no_faster(maker: Maker) -> None:
    """Four micro-batches in 4 s before, one in 1.05 s now: 5 % slower, and a step that takes a quarter of the time."""
    slow = dict.fromkeys(CELLS, float(MICRO_BATCHES))
    a = [accumulating(run) for run in maker.side(replace(CALM, factors=slow), 3)]
    b = maker.side(replace(CALM, factors=dict.fromkeys(CELLS, 1.05)), 3)
    record = maker.judged(a, b, fail_above=0.05, strict=True)
    assert {cell.verdict for cell in record.cells} == {"not judged"}
    assert {tuple(cell.other_work) for cell in record.cells} == {("batch",)}
    assert "(other batch)" in record.verdict
    assert record.exit_status == 3, "nothing could be judged"
    rate = quantity_of(record.cells[1], "samples_per_s")
    assert rate.ratio is not None
    assert rate.old is not None
    assert rate.new is not None
    assert rate.ratio.value == pytest.approx(rate.new / rate.old)
    assert rate.ratio.value == pytest.approx(1 / 1.05, rel=0.03)


def test_a_loop_whose_batches_vary_is_the_same_work_whatever_most_steps_hold(maker: Maker) -> None:
    """Its batch is that of most steps, which is another one in each run."""
    a, b = maker.side(CALM, 3), [with_cells(run, batch_size=63) for run in maker.side(CALM, 3)]
    assert {cell.verdict for cell in maker.judged(a, b).cells} == {"indistinguishable"}


def test_a_run_is_not_held_against_itself_through_a_baseline_or_a_copy(tmp_path: Path) -> None:
    a, b = make_sides(tmp_path, {}, runs=2)
    first, *further = [snapshot(load_run(run)) for run in a]
    write_baseline(tmp_path / "kept.json", first.model_copy(update={"further": further}))
    with pytest.raises(UsageError, match=r"a1 is given on both sides of a gate"):
        compared(tmp_path / "kept.json", [b[0], a[1]], fail_above=0.05, strict=True)
    kept = read_side(tmp_path / "kept.json")
    compare_runs(kept, kept, CompareSettings(), ("a", "b"))  # without a gate it is only odd


def test_other_code_within_a_side_is_said(tmp_path: Path) -> None:
    """Its edit is in the spread between runs, where a slowdown hides."""
    a, b = make_sides(tmp_path, {}, runs=2)
    for place, run in enumerate((*a, *b)):
        digest = f"{min(place, 1)}" * 64

        def with_code(study: StudyRecord, digest: str = digest) -> None:
            study.provenance.user_code = UserCode(files=[UserFile(name="net.py", path="/net.py", sha256=digest)])

        change_study(run, with_code)
    assert "The runs of A differ among themselves: net.py." in compared(a, b).caveats


def test_what_a_script_imports_by_a_computed_name_is_compared(tmp_path: Path) -> None:
    """A look before the start does not find it, and each launch notes it (method.md §11)."""
    a, b = make_sides(tmp_path, {}, runs=1)
    for [run], digest in ((a, "1" * 64), (b, "2" * 64)):
        note_imported(run, SINGLE, [UserFile(name="net.py", path="/net.py", sha256="0" * 64)])
        note_imported(run, DDP, [UserFile(name="models/b.py", path="/models/b.py", sha256=digest)])
    found = [(change.what, change.old, change.new) for change in compared(a, b).changes if change.area == "code"]
    assert found == [("models/b.py", "1" * SHOWN, "2" * SHOWN)]


def test_blocks_of_many_steps_count_as_many_steps(maker: Maker) -> None:
    """A budget makes the last blocks longer: ten of 4 steps at 100 ms and one of 16 at 150 ms are 114 ms a step."""
    a, b = maker.side(CALM, 2), []
    for run in maker.side(CALM, 2):
        cells = []
        for cell in run.cells:
            shape = cell.blocks[0]
            made = [shape.model_copy(update={"block": k, "steps": 4, "step_s": 0.1}) for k in range(10)]
            last = shape.model_copy(update={"block": 10, "steps": 16, "step_s": 0.15})
            cells.append(cell.model_copy(update={"blocks": [*made, last]}))
        b.append(run.model_copy(update={"cells": cells}))
    for run in a:
        for cell in run.cells:
            cell.blocks = [block.model_copy(update={"step_s": 0.1}) for block in cell.blocks]
    for compared_cell in maker.judged(a, b, judge_by="plain").cells:
        assert compared_cell.plain is not None
        assert compared_cell.plain.value == pytest.approx((10 * 4 * 0.1 + 16 * 0.15) / 56 / 0.1)


def test_a_part_of_an_experiment_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Without it the comparison ended as if nothing were missing."""
    a, b = make_sides(tmp_path, {}, runs=2)
    part = b[1] / "parts" / "seed1"
    part.mkdir(parents=True)
    (part / "study.json").write_text("{")
    record = compared(a, b)
    assert (record.unread, record.exit_status) == (["B: parts/seed1"], DAMAGED)


def test_data_wait_that_was_none_is_told(maker: Maker) -> None:
    """A device that never waited waits 20 ms now: there is no ratio, and a change."""

    def waiting(run: StoredRun, wait_s: float) -> StoredRun:
        def cell(each: StoredCell) -> StoredCell:
            assert each.summary is not None
            parts = {**each.summary.parts_s, "data_wait_s": wait_s}
            return each.model_copy(
                update={
                    "blocks": [block.model_copy(update={"data_wait_s": wait_s}) for block in each.blocks],
                    "summary": each.summary.model_copy(update={"parts_s": parts}),
                }
            )

        return run.model_copy(update={"cells": [cell(each) for each in run.cells]})

    a, b = maker.side(CALM, 3), maker.side(CALM, 3)
    none = [waiting(run, 0.0) for run in a]
    for side, direction in ((b, "same"), (a, "larger")):
        after = [waiting(run, 0.0 if direction == "same" else 0.02) for run in side]
        waits = [quantity_of(cell, "data_wait_s") for cell in maker.judged(none, after).cells]
        assert {(each.direction, each.ratio) for each in waits} == {(direction, None)}
    shorter = [waiting(run, 0.02) for run in b]
    assert {quantity_of(cell, "data_wait_s").direction for cell in maker.judged(shorter, none).cells} == {"smaller"}
