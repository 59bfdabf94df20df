"""What a report says of steps of several micro-batches, and of ranks that average weights now and then."""

from pathlib import Path

import pytest

from made_runs import MadeCell, make_run
from worldsize.analysis import recurring
from worldsize.analysis.compare.sides import snapshot
from worldsize.analysis.headline import cell_name
from worldsize.analysis.predict.answer import answer
from worldsize.analysis.recurring import LongSteps, is_its_own, recurring_warning
from worldsize.analysis.replay import wanted
from worldsize.analysis.study import analyse
from worldsize.config import PredictSettings
from worldsize.errors import UsageError
from worldsize.report.result_tables import compact_table, results_table
from worldsize.results.files import write_whole
from worldsize.results.folder import Run, load_run

TIMES = 4
CELLS = (MadeCell("single", 1), MadeCell("ddp", 2), MadeCell("local-sgd", 2))


def accumulated(folder: Path) -> Run:
    """A made run whose steps are said to have had several micro-batches."""
    run = load_run(make_run(folder, CELLS, never_started=[MadeCell("ddp", 4)]))
    assert run.study.settings is not None
    settings = run.study.settings.model_copy(update={"accumulate": TIMES})
    study = run.study.model_copy(update={"settings": settings})
    write_whole(run.folder / "study.json", study.model_dump_json())
    for cell in run.cells.values():
        assert cell.record.settings is not None
        here = cell.record.settings.model_copy(update={"accumulate": TIMES})
        write_whole(cell.folder / "cell.json", cell.record.model_copy(update={"settings": here}).model_dump_json())
    return load_run(run.folder)


def test_the_global_batch_and_all_rates_have_the_micro_batches(tmp_path: Path) -> None:
    plain = {cell.id: cell for cell in analyse(load_run(make_run(tmp_path / "plain", CELLS))).cells}
    analysis = analyse(accumulated(tmp_path / "accumulated"))
    for cell in analysis.cells:
        assert cell.global_batch == cell.world_size * 32 * TIMES
        if cell.summary is not None:
            before = plain[cell.id].summary
            assert before is not None
            assert cell.summary.samples_per_s.value == pytest.approx(TIMES * before.samples_per_s.value)
    ratios = {row.cell.id: row.baseline.id if row.baseline else None for row in analysis.scaling}
    assert ratios["ddp-w2-b32"] == "single-w1-b32"
    assert f"{TIMES} micro-batches" in cell_name(analysis.cells[1])
    for table in (results_table(analysis), compact_table(analysis)):
        assert f"B = N·b·{TIMES}" in table.note
    stored = {cell.id: cell.global_batch for cell in snapshot(accumulated(tmp_path / "stored")).cells}
    assert stored["ddp-w4-b32"] == 4 * 32 * TIMES
    assert stored["ddp-w2-b32"] == 2 * 32 * TIMES


def test_a_forecast_and_a_rehearsal_of_micro_batches_are_refused(tmp_path: Path) -> None:
    run = accumulated(tmp_path)
    with pytest.raises(UsageError, match=f"{TIMES} micro-batches"):
        answer(analyse(run), PredictSettings())
    with pytest.raises(UsageError, match=f"{TIMES} micro-batches"):
        wanted(run, None, None, 2)


def test_ranks_that_exchange_no_gradients_are_not_rehearsed(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, CELLS))
    with pytest.raises(UsageError, match="local-sgd was given; its ranks exchange weights"):
        wanted(run, ["local-sgd"], None, 2)
    with pytest.raises(UsageError, match="fsdp was given; its ranks exchange shards"):
        wanted(run, ["fsdp"], None, 2)
    assert wanted(run, None, None, 2).strategies == ("ddp",)


def test_tables_say_that_steps_are_no_unit_where_ranks_are_apart(tmp_path: Path) -> None:
    with_it = analyse(load_run(make_run(tmp_path / "with", CELLS)))
    without = analyse(load_run(make_run(tmp_path / "without", CELLS[:2])))
    for table in (results_table, compact_table):
        assert "average their weights every 8 steps" in table(with_it).note
        assert "average their weights" not in table(without).note


@pytest.mark.parametrize(
    ("strategy", "every", "part", "told"),
    [
        ("local-sgd", 8, "exposed_sync_s", False),
        ("local-sgd", 16, "exposed_sync_s", False),
        ("local-sgd", 8, "data_wait_s", True),
        ("local-sgd", 5, "exposed_sync_s", True),
        ("ddp", 8, "exposed_sync_s", True),
    ],
)
def test_a_period_of_the_strategy_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, every: int, part: str, told: bool
) -> None:
    seen = LongSteps(typical_s=0.5, mean_s=0.6, long_s=1.3, share=1 / every, every=every, part=part)
    monkeypatch.setattr(recurring, "long_steps", lambda cell, summary: seen)
    run = load_run(make_run(tmp_path, [MadeCell(strategy, 2)]))
    (cell,) = analyse(run).cells
    assert cell.summary is not None
    assert bool(list(recurring_warning(run.cells[cell.id], cell.summary))) is told
    assert is_its_own(run.cells[cell.id], seen) is not told, "nor is it advised against (long_steps.py)"
