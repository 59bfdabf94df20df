"""What a rehearsal takes from a measured run: planted computing, without the messages in it."""

from pathlib import Path

import pytest

from made_runs import MadeCell, make_run
from replayable import (
    BACKWARD_S,
    DATA_S,
    FORWARD_S,
    LATE_S,
    OPTIMIZER_S,
    OTHER_S,
    PACKED_S,
    SHARES,
    SIZES,
    STEPS,
    replayable,
)
from worldsize.analysis.replay import Wanted, replay_of, replayed, wanted
from worldsize.errors import UsageError
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run
from worldsize.results.replay import PHASES, read_replay, write_replay
from worldsize.results.step_records import SpanRecord

COLUMNS = ("kind", "payload_bytes", "blocking", "ready_s", "issued_s", "done_s")
"""Of a record of messages: one entry each."""


def test_computing_is_what_was_planted_without_the_messages(tmp_path: Path) -> None:
    cell = load_run(replayable(tmp_path)).cells["ddp-w2-b32"]
    found = replayed(cell)
    assert (found.source, found.source_world_size, found.blocks) == ("ddp-w2-b32", 2, (STEPS // 2, STEPS // 2))
    for rank, phases in enumerate(found.times_us):
        late_s = LATE_S if rank else 0.0
        planted = (DATA_S, FORWARD_S + late_s, BACKWARD_S, OPTIMIZER_S, OTHER_S)
        for name, phase, seconds in zip(PHASES, phases, planted, strict=True):
            assert phase == pytest.approx([seconds * 1e6] * STEPS, abs=2), name


def test_packing_before_the_mark_of_the_last_gradient_is_not_replayed_for_a_rehearsal_does_it(tmp_path: Path) -> None:
    cell = load_run(replayable(tmp_path, [MadeCell("bucketed", 2)])).cells["bucketed-w2-b32"]
    for phases in replayed(cell).times_us:
        backward = phases[PHASES.index("backward")]
        assert backward == pytest.approx([(BACKWARD_S - PACKED_S) * 1e6] * STEPS, abs=2)


def test_where_a_bucket_is_left_over_backward_ends_with_the_last_gradient(tmp_path: Path) -> None:
    run = replayable(tmp_path, [MadeCell("bucketed", 2)])
    for rank in range(2):
        place = cell_folder(run, "bucketed-w2-b32") / f"rank{rank}.spans.jsonl"
        spans = [SpanRecord.model_validate_json(line) for line in place.read_text().splitlines()]
        twice = (
            SpanRecord(**{**span.model_dump(), **{name: 2 * getattr(span, name) for name in COLUMNS}}) for span in spans
        )
        left_over = (span.model_copy(update={"ready_s": [span.ready_s[0], None]}) for span in twice if span.ready_s)
        place.write_text("".join(f"{span.model_dump_json()}\n" for span in left_over))
    for phases in replayed(load_run(run).cells["bucketed-w2-b32"]).times_us:
        backward = phases[PHASES.index("backward")]
        assert backward == pytest.approx([BACKWARD_S * 1e6] * STEPS, abs=2)


def test_each_strategy_is_replayed_from_its_own_largest_cell(tmp_path: Path) -> None:
    run = load_run(replayable(tmp_path))
    what = wanted(run, None, None, 8)
    assert what == Wanted(("all-reduce", "ddp"), 32, 8, alone=True)
    replay = replay_of(run, what._replace(strategies=("ddp", "bucketed")))
    assert (replay.sizes_bytes, replay.ready_share) == (SIZES, SHARES)
    assert replay.element_bytes == 4
    assert replay.buffer_bytes == 38_720
    sources = {name: cell.source for name, cell in replay.cells.items()}
    assert sources["ddp-w8-b32"] == "ddp-w2-b32"
    assert sources["bucketed-w8-b32"] in ("ddp-w2-b32", "all-reduce-w2-b32")
    assert sources["single-w1-b32"] == "single-w1-b32"
    write_replay(tmp_path, replay)
    assert read_replay(tmp_path) == replay


def test_one_worker_is_enough(tmp_path: Path) -> None:
    run = load_run(replayable(tmp_path, [MadeCell("single", 1)]))
    with pytest.raises(UsageError, match=r"exchange gradients, and .* has none of these\nGive --strategies"):
        wanted(run, None, None, 4)
    replay = replay_of(run, wanted(run, ("ddp",), None, 4))
    assert replay.cells["ddp-w4-b32"].source == "single-w1-b32"


def test_a_run_without_gradients_says_what_to_run(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, [MadeCell("single", 1), MadeCell("ddp", 2)]))
    with pytest.raises(UsageError, match=r"does not say when backward has each gradient.*\nMeasure it again"):
        replay_of(run, wanted(run, None, None, 4))


def test_a_run_without_marks_says_what_to_run(tmp_path: Path) -> None:
    """Parts that were taken apart while they were recorded, as older versions did, are no marks."""
    cells = [MadeCell("single", 1), MadeCell("ddp", 2)]
    made = replayable(tmp_path / "marked", cells).parent / "unmarked"
    make_run(made, cells)
    for name, cell in load_run(tmp_path / "marked").cells.items():
        (made / "cells" / name / "cell.json").write_text(cell.record.model_dump_json())
    run = load_run(made)
    with pytest.raises(UsageError, match="no marks of forward and backward\nMeasure it again"):
        replay_of(run, wanted(run, None, None, 4))


def test_batches_and_strategies_that_are_not_there(tmp_path: Path) -> None:
    run = load_run(replayable(tmp_path, [MadeCell("ddp", 2, 16), MadeCell("ddp", 2, 32)]))
    with pytest.raises(UsageError, match="has local batches of 16, 32\nGive one of them"):
        wanted(run, None, None, 4)
    with pytest.raises(UsageError, match=r"batch size 8 was given; .* has measured 16, 32"):
        wanted(run, None, 8, 4)
    with pytest.raises(UsageError, match="strategy data-parallel was given; it runs in one process"):
        wanted(run, ("data-parallel",), 16, 4)
    assert wanted(run, ("single", "ddp"), 16, 4) == wanted(run, None, 16, 4)
    assert wanted(run, None, 16, 4) == Wanted(("ddp",), 16, 4, alone=False)


def test_a_run_without_cells_of_a_training(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, [MadeCell("ddp", 2, state="failed")]))
    with pytest.raises(UsageError, match="no cell with timed steps"):
        wanted(run, None, None, 4)
