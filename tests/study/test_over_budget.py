"""A budget that is over before each cell has had its block: nothing else is measured then, and the reader is told."""

from pathlib import Path
from typing import Any

import pytest

from fake_cells import FakeExecutor, findings, planned
from fake_study import Study, grid, noisy
from worldsize.config import StudySettings, validated
from worldsize.errors import UsageError
from worldsize.results.records import Findings, StudyRecord, WarningRecord
from worldsize.study.budget import (
    OVER_BUDGET,
    STEP_S,
    check_budget,
    over_budget,
    with_default_protocol,
    with_fitting_batch,
)
from worldsize.study.plan import PlannedCell
from worldsize.study.resuming import begin_further

STEP_TAKES_S, LAUNCH_S = 0.5, 1.0
NAMES = ("single", "ddp", "all-reduce")


def run(folder: Path, budget_s: float) -> Study:
    settings = StudySettings(budget=f"{budget_s}s", warmup_steps=2)
    executor = FakeExecutor(folder, 0, lambda cell, now: STEP_TAKES_S, launch_s=LAUNCH_S)
    return Study(folder, grid(*NAMES, settings=settings), executor, settings, budget_s=budget_s).run()


def over(study: Study) -> list[str]:
    return [each.message for each in over_budget(study.schedule.settings, study.schedule.pace)]


def test_each_cell_has_its_block_and_nothing_beside_it(tmp_path: Path) -> None:
    study = run(tmp_path, 4.0)
    assert sorted(study.turns("steps")) == [("all-reduce-w2-b4", 0), ("ddp-w2-b4", 0), ("single-w1-b4", 0)]
    turns = [turn for _, turn in study.executor.turns]
    assert all(turn.synchronise and turn.observe for turn in turns if turn.op == "steps")
    assert set(study.heard.endings.values()) == {"budget"}


def test_the_reader_is_told_by_how_much_and_why(tmp_path: Path) -> None:
    study = run(tmp_path, 4.0)
    late_s = study.executor.clock_s - 4.0
    assert late_s > 3.0
    (text,) = over(study)
    assert text.startswith(f"The study took about {late_s:.0f} s longer than the budget of 4 s: to start 3 cells and")
    assert "Fewer cells take less time; --budget " in text


def test_cells_that_begin_after_it_warm_up_with_the_fewest_steps(tmp_path: Path) -> None:
    """Three are asked for; two processes need two, for DDP arranges its buckets in the second."""
    settings = StudySettings(budget="4s", warmup_steps=3)
    executor = FakeExecutor(tmp_path, 0, lambda cell, now: STEP_TAKES_S, launch_s=LAUNCH_S)
    study = Study(tmp_path, grid(*NAMES, settings=settings), executor, settings, budget_s=4.0).run()
    warming = [turn.count for _, turn in study.executor.turns if turn.op == "steps" and not turn.timed]
    assert warming == [3, 3, 2]


def test_one_cell_by_itself_is_not_told_of_fewer_cells(tmp_path: Path) -> None:
    settings = StudySettings(budget="1s", warmup_steps=2)
    executor = FakeExecutor(tmp_path, 0, lambda cell, now: 2.0, launch_s=LAUNCH_S)
    study = Study(tmp_path, grid("single", settings=settings), executor, settings, budget_s=1.0).run()
    (text,) = over(study)
    assert "to start its cell and time one block took that long. --budget " in text


def test_a_last_round_that_took_longer_is_called_so(tmp_path: Path) -> None:
    settings = StudySettings(budget="20s", warmup_steps=2, target_interval=0.001)
    noise = noisy(0.2)
    executor = FakeExecutor(tmp_path, 0, lambda cell, now: noise(cell, now) if now < 8 else 9.0, launch_s=LAUNCH_S)
    study = Study(tmp_path, grid("single", settings=settings), executor, settings, budget_s=20.0).run()
    (text,) = over(study)
    assert "budget of 20 s: its last round took longer than those before." in text


def test_what_closing_a_cell_takes_is_not_held_against_it(tmp_path: Path) -> None:
    class Slow(FakeExecutor):
        def finish(self, cell: PlannedCell) -> None:
            self.clock_s += 30.0
            super().finish(cell)

    settings = StudySettings(budget="60s", warmup_steps=2)
    executor = Slow(tmp_path, 0, lambda cell, now: STEP_TAKES_S, launch_s=LAUNCH_S)
    study = Study(tmp_path, grid("single", settings=settings), executor, settings, budget_s=60.0).run()
    assert executor.clock_s > 70
    assert not over(study)


def test_a_larger_budget_takes_the_warning_away() -> None:
    kept, gone = (WarningRecord(code=code, message="") for code in ("busy-machine", OVER_BUDGET))
    study = StudyRecord.model_construct(settings=StudySettings(budget="4s"), warnings=[kept, gone])
    begin_further(study, StudySettings(budget="60s"), 4.0)
    assert study.warnings == [kept]


def test_a_budget_that_is_kept_is_not_told(tmp_path: Path) -> None:
    study = run(tmp_path, 60.0)
    assert any(not turn.synchronise for _, turn in study.executor.turns)
    assert not over(study)


@pytest.mark.parametrize(
    ("strategy", "link", "gradient_bytes", "refused"),
    [
        ("ddp", "100mbit", 50_000_000, True),  # a step is at least 50 MB ÷ 12 MB/s
        ("ddp", "10gbit", 50_000_000, False),
        ("ddp", "100mbit", 50_000, False),  # all but a few weights are frozen
        ("powersgd", "100mbit", 50_000_000, False),  # sends less than all, and nobody says how much
        ("local-sgd", "100mbit", 50_000_000, False),
        ("ddp", "100mbit", None, False),
    ],
)
def test_what_links_can_carry_counts_before_anything_is_run(
    strategy: str, link: str, gradient_bytes: int | None, refused: bool
) -> None:
    settings = StudySettings(budget="10s", hosts=2, link=link)
    known = with_gradients(findings(), gradient_bytes)
    plan = [planned("single", 1, settings), planned(strategy, 2, settings)]
    if not refused:
        check_budget(settings, plan, known, passed_s=1.0)
        return
    with pytest.raises(
        UsageError, match=r"a budget of 10s is too short: launching 2 cell\(s\) and one step of each take"
    ):
        check_budget(settings, plan, known, passed_s=1.0)


def test_who_gives_no_budget_gets_an_answer_also_where_the_usual_one_is_too_short() -> None:
    """On a busy machine the default study was refused for a budget that its user had never given."""
    settings = with_default_protocol(StudySettings(hosts=2, link="1mbit"))
    known = with_gradients(findings(), 50_000_000)
    plan = [planned("single", 1, settings), planned("ddp", 2, settings)]
    check_budget(settings, plan, known, passed_s=1.0)
    with pytest.raises(UsageError, match="a budget of 80s is too short"):
        check_budget(settings.model_copy(update={"budget": "80s"}), plan, known, passed_s=1.0)


def with_gradients(known: Findings, gradient_bytes: int | None) -> Findings:
    assert known.model is not None
    model = known.model.model_copy(update={"gradient_bytes": gradient_bytes, "parameter_bytes": 50_000_000})
    return known.model_copy(update={"model": model})


def machine(flops: int | None, rate: float | None) -> Findings:
    """A machine that multiplies matrices at this rate, and a model with so many flops a sample."""
    found = findings()
    assert found.model is not None
    model = found.model.model_copy(update={"flops_per_sample": flops})
    return found.model_copy(update={"model": model, "matmul_flops_per_s": rate})


@pytest.mark.parametrize(
    ("sharing", "rate", "batch"), [(1, 1e12, 32), (2, 1e12, 32), (2, 2e11, 8), (2, 7e10, 4), (4, 2e11, 4), (2, 1e9, 1)]
)
def test_a_local_batch_that_was_not_given_fits_the_machine(sharing: int, rate: float, batch: int) -> None:
    flops = 3_300_000_000
    settings, told = with_fitting_batch(StudySettings(budget="90s"), machine(flops, rate), sharing)
    assert settings.batch_sizes == (batch,)
    assert [each.code for each in told] == ["smaller-batch"] * (batch < 32)
    assert batch == 1 or batch * sharing * flops / rate <= STEP_S
    assert batch == 32 or 2 * batch * sharing * flops / rate > STEP_S


@pytest.mark.parametrize(
    "given",
    [
        {"budget": "90s", "batch_sizes": (64,)},
        {"budget": "90s", "global_batch": 64},
        {"steps": 10},
        {"epochs": 1},
    ],
)
def test_what_was_given_stays(given: dict[str, Any]) -> None:
    settings = validated(StudySettings, given)
    assert with_fitting_batch(settings, machine(3_300_000_000, 1e9), 2) == (settings, [])
    unknown = validated(StudySettings, {"budget": "90s"})
    assert with_fitting_batch(unknown, machine(None, 1e9), 2) == (unknown, [])
