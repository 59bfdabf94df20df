"""A budget of time on a clock that only fake cells advance: how it is kept, and on what it is spent."""

from collections import Counter
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest

from fake_cells import FakeExecutor, StepTime, name_of, planned
from fake_study import Study, grid
from made_studies import doubling
from worldsize.config import StudySettings
from worldsize.study.blocks import MIN_STEPS
from worldsize.study.pace import FIRST_PAIRS_EVERY, LAUNCHES, PAIRS, Pace
from worldsize.study.plan import PlannedCell
from worldsize.study.precision import TOLD_BLOCKS, TOO_FEW, Precision

BUDGETED = StudySettings(budget="60s", warmup_steps=2)
TRUE_S = {"single": 0.1, "ddp": 0.11, "all-reduce": 0.111, "gather-scatter": 0.2}


def taking(noise: float, seed: int = 0, true_s: dict[str, float] = TRUE_S) -> StepTime:
    """Steps of known length with some noise."""
    generator = np.random.default_rng(seed)
    return lambda cell, now: true_s[cell.settings.strategy] * float(np.exp(noise * generator.standard_normal()))


def run(folder: Path, noise: float, *names: str, budget_s: float = 60.0, launch_s: float = 0.4, **more: float) -> Study:
    executor = FakeExecutor(folder, 0, taking(noise), launch_s=launch_s)
    cells = grid(*(names or TRUE_S), settings=BUDGETED)
    return Study(folder, cells, executor, BUDGETED, budget_s=budget_s).run()


def test_a_budget_that_a_noisy_machine_uses_up_is_kept(tmp_path: Path) -> None:
    study = run(tmp_path, 0.5)
    assert 0.8 * 60 < study.executor.clock_s <= 1.01 * 60, "a step may take long"
    assert set(study.heard.endings.values()) <= {"budget", "settled"}


@pytest.mark.parametrize(("budget_s", "blocks", "steps"), [(10.0, 1, 2), (30.0, 5, 4), (200.0, 10, 4)])
def test_blocks_are_sized_by_the_time_there_is(tmp_path: Path, budget_s: float, blocks: int, steps: int) -> None:
    study = run(tmp_path, 0.3, budget_s=budget_s)
    assert Counter(name for name, _ in study.turns("steps"))["ddp-w2-b4"] >= blocks
    counts = {turn.count for _, turn in study.executor.turns if name_of(turn) == "steps"}
    assert min(counts) >= MIN_STEPS
    assert min(counts) == steps if budget_s < 100 else min(counts) >= steps


@pytest.mark.parametrize(("budget_s", "step_s"), [(60.0, 0.11), (60.0, 0.3), (100.0, 0.35), (110.0, 0.3), (120.0, 0.3)])
def test_the_last_rounds_use_the_budget_up(tmp_path: Path, budget_s: float, step_s: float) -> None:
    """Whole rounds of planned blocks would leave up to a round, a tenth of such budgets."""
    names = ("single", "ddp", "all-reduce", "gather-scatter")
    executor = FakeExecutor(tmp_path, 0, taking(0.1, true_s=dict.fromkeys(names, step_s)), launch_s=0.4)
    settings = BUDGETED.model_copy(update={"target_interval": 0.0})
    cells = grid(*names, settings=settings)
    study = Study(tmp_path, cells, executor, settings, budget_s=budget_s).run()
    # A whole step of each cell is 2 % of the shortest; and a round may have pairs though the last ones had none.
    assert 0.93 * budget_s < study.executor.clock_s <= 1.03 * budget_s


def test_a_cell_that_is_launched_again_is_warm_when_it_is_as_quick_as_before(tmp_path: Path) -> None:
    """Its first step takes twice as long after each launch; the second, of two ranks the last at least, is as ever."""
    begun: dict[str, int] = {}

    def slow_at_first(cell: PlannedCell, now: float) -> float:
        first = begun.get(cell.id) != executor.launched.count(cell.id)
        begun[cell.id] = executor.launched.count(cell.id)
        return TRUE_S[cell.settings.strategy] * (2 if first else 1)

    even = run(tmp_path / "even", 0.001)
    executor = FakeExecutor(tmp_path / "slow", 0, slow_at_first, launch_s=0.4)
    slow = Study(tmp_path / "slow", grid(*TRUE_S, settings=BUDGETED), executor, BUDGETED, budget_s=60.0).run()
    turns = [Counter(name for name, _ in study.turns("warmup"))["ddp-w2-b4"] for study in (even, slow)]
    assert turns == [LAUNCHES, LAUNCHES + 1], "of the first launch it is not known what is quick"
    alone = [Counter(name for name, _ in study.turns("warmup"))["single-w1-b4"] for study in (even, slow)]
    assert alone == [LAUNCHES, 2 * LAUNCHES]
    counts = {name: turn.count for name, turn in even.executor.turns if name_of(turn) == "warmup"}
    assert (counts["single-w1-b4"], counts["ddp-w2-b4"]) == (1, 2)


def test_the_larger_part_of_the_time_is_timed(tmp_path: Path) -> None:
    study = run(tmp_path, 0.5, budget_s=200.0)
    timed = sum(float(np.sum(times)) for blocks in study.schedule.samples.values() for times in blocks.values())
    assert timed > 0.5 * study.executor.clock_s


def test_a_cell_that_is_surely_not_the_fastest_ends_early(tmp_path: Path) -> None:
    study = run(tmp_path, 0.05)
    assert study.heard.endings["gather-scatter-w2-b4"] == "settled"
    blocks = Counter(name for name, _ in study.turns("steps"))
    assert blocks["gather-scatter-w2-b4"] < blocks["ddp-w2-b4"]


def test_a_study_that_knows_its_answer_takes_no_more_time(tmp_path: Path) -> None:
    study = run(tmp_path, 0.01, budget_s=600.0)
    assert study.executor.clock_s < 100
    assert set(study.heard.endings.values()) <= {"precision", "settled"}


def test_each_cell_is_launched_three_times_or_more(tmp_path: Path) -> None:
    study = run(tmp_path, 0.05)
    launches = Counter(study.executor.launched)
    assert min(launches.values()) >= LAUNCHES
    assert {record.id: record.launches for record in study.heard.records} == dict(launches)


def test_a_cell_is_launched_again_whenever_its_blocks_have_doubled(tmp_path: Path) -> None:
    """Else the last of three launches would have most of a long study, and count for nearly all of it."""
    study = run(tmp_path, 0.5, budget_s=400.0)
    name = "ddp-w2-b4"
    order = [(op, block) for each, op, block in study.executor.log if each == name and op in ("warmup", "steps")]
    launched_at = sorted(
        {after[1] for before, after in pairwise(order) if (before[0], after[0]) == ("warmup", "steps")}
    )
    blocks = max(block for _, block in order)
    assert blocks > 32, "long enough to tell"
    assert launched_at == [at for at in (0, 2, 4, 8, 16, 32, 64, 128) if at <= blocks]
    assert launched_at == [0, *accumulate(doubling(blocks + 1))], "simulated studies are launched in the same way"


def test_launches_that_would_use_up_the_budget_are_left_out(tmp_path: Path) -> None:
    study = run(tmp_path, 0.05, launch_s=5.0)
    assert set(Counter(study.executor.launched).values()) == {1}


@pytest.mark.parametrize("failure", [("start", 1), ("steps", 3)])
@pytest.mark.parametrize("budget_s", [600.0, None])
def test_where_the_baseline_failed_the_wrapped_one_stands_in_as_in_the_report(
    tmp_path: Path, failure: tuple[str, int], budget_s: float | None
) -> None:
    op, number = failure
    settings = BUDGETED if budget_s else StudySettings(steps=3000, block_steps=10, warmup_steps=2)
    names = ("single", 1), ("ddp", 1), ("ddp", 2)
    cells = [planned(strategy, size, settings) for strategy, size in names]
    executor = FakeExecutor(tmp_path, 0, taking(0.01), launch_s=0.4, fails={("single-w1-b4", op): number})
    study = Study(tmp_path, cells, executor, settings, budget_s=budget_s).run()
    endings = study.heard.endings
    assert endings.pop("single-w1-b4") == "failed"
    wrapped = "settled" if budget_s else "precision"  # of one worker, so no contender
    assert endings == {"ddp-w1-b4": wrapped, "ddp-w2-b4": "precision"}, "known, so no more time is taken"
    assert study.executor.clock_s < 100


def test_a_cell_that_failed_is_out_of_the_race(tmp_path: Path) -> None:
    """It had been the fastest; in the report it has no numbers, and keeps no other from being known."""
    executor = FakeExecutor(tmp_path, 0, taking(0.01), launch_s=0.4, fails={("ddp-w2-b4", "steps"): 3})
    cells = grid("single", "ddp", "gather-scatter", settings=BUDGETED)
    study = Study(tmp_path, cells, executor, BUDGETED, budget_s=600.0).run()
    assert study.heard.endings["gather-scatter-w2-b4"] == "precision"
    assert study.schedule.pace.race.left == ["gather-scatter-w2-b4"]


def test_pairs_are_a_minority_of_the_blocks(tmp_path: Path) -> None:
    study = run(tmp_path, 0.5, budget_s=200.0)
    blocks = len([name for name, _ in study.turns("steps") if name == "ddp-w2-b4"])
    pairs = len([name for name, _ in study.turns("alone") if name == "ddp-w2-b4"])
    assert PAIRS <= pairs <= blocks / 2


def test_pairs_end_when_their_interval_is_narrow(tmp_path: Path) -> None:
    pace = Pace(BUDGETED, cells := grid(*TRUE_S, settings=BUDGETED), now_s=lambda: 0.0, until_s=60.0)
    wanted = []
    for block in range(40):
        if pace.wants_pair(cells[1], block):
            wanted.append(block)
            pace.paired(cells[1], block, 0.1 + 1e-5 * block, 0.08)
    assert wanted == [FIRST_PAIRS_EVERY * number for number in range(PAIRS)]


def test_a_fixed_number_of_steps_makes_few_long_blocks(tmp_path: Path) -> None:
    """Steps of 2 ms: 1,500 of them in blocks of two would be 750 turns."""
    settings = StudySettings(steps=1500, warmup_steps=2, target_interval=0)
    true_s = {"single": 0.001, "ddp": 0.002}
    executor = FakeExecutor(tmp_path, 0, taking(0.1, true_s=true_s))
    study = Study(tmp_path, grid("single", "ddp", settings=settings), executor, settings).run()
    assert Counter(name for name, _ in study.turns("steps")) == {"single-w1-b4": 10, "ddp-w2-b4": 10}
    assert study.heard.endings == {"single-w1-b4": "cap", "ddp-w2-b4": "cap"}


def test_a_cap_on_steps_within_a_budget_keeps_the_pairs(tmp_path: Path) -> None:
    """The baseline is ten times as quick: it must not use up its steps in one long block."""
    settings = StudySettings(budget="60s", steps=100, warmup_steps=2, target_interval=0)
    executor = FakeExecutor(tmp_path, 0, taking(0.1, true_s={"single": 0.002, "ddp": 0.02}))
    study = Study(tmp_path, grid("single", "ddp", settings=settings), executor, settings, budget_s=60.0).run()
    single, ddp = (study.schedule.samples[name] for name in ("single-w1-b4", "ddp-w2-b4"))
    assert len(single.keys() & ddp.keys()) >= 10
    assert sum(map(len, ddp.values())) == 100


@pytest.mark.parametrize(("budget_s", "step_s", "launch_s"), [(180.0, 1.2, 2.0), (120.0, 0.8, 0.4), (45.0, 0.2, 0.5)])
def test_launches_in_a_round_do_not_make_the_next_one_late(
    tmp_path: Path, budget_s: float, step_s: float, launch_s: float
) -> None:
    names = ("single", "ddp", "all-reduce", "gather-scatter")
    executor = FakeExecutor(tmp_path, 0, taking(0.3, true_s=dict.fromkeys(names, step_s)), launch_s=launch_s)
    cells = grid(*names, settings=BUDGETED)
    study = Study(tmp_path, cells, executor, BUDGETED, budget_s=budget_s).run()
    assert study.executor.clock_s <= 1.1 * budget_s


def on_gpus(budget_s: float | None, step_s: float, number: int) -> list[int]:
    """Steps in a block of each of so many cells on GPUs, whose steps take so long, with a clock that stands still."""
    settings = BUDGETED if budget_s else StudySettings(steps=100_000)
    cells = [
        replace(cell, placement=cell.placement.model_copy(update={"device": "cuda"}))
        for cell in grid(*list(TRUE_S)[:number], settings=settings)
    ]
    pace = Pace(settings, cells, now_s=lambda: 0.0, until_s=budget_s)
    for cell in cells:
        pace.saw_step(cell, step_s)
    pace.prepared()
    return [pace.sizes.of(cell) for cell in cells]


@pytest.mark.parametrize("budget_s", [60.0, 600.0, None])
def test_a_block_on_a_gpu_lasts_a_second(budget_s: float | None) -> None:
    """The clocks of a GPU rise after a pause: what is shorter is timed while they do."""
    for step_s in (0.0002, 0.01, 0.3):
        assert all(0.85 <= count * step_s <= 1.3 for count in on_gpus(budget_s, step_s, 2))


def test_where_a_budget_has_no_room_for_seconds_blocks_are_shorter() -> None:
    [*counts] = on_gpus(12.0, 0.01, 4)
    assert all(0.2 <= count * 0.01 <= 0.5 for count in counts)


def test_a_study_that_ends_with_few_blocks_is_more_precise_than_was_asked() -> None:
    """Few blocks that look alike may do so because neighbours resemble each other."""
    precision = Precision(0.03)
    first = TOLD_BLOCKS - 3
    assert not precision.reached("few", 0.029 / TOO_FEW, first)
    assert precision.reached("few", 0.029 / TOO_FEW, first + 1)
    assert not precision.reached("few", 0.029, first + 2)
    assert not precision.reached("few", 0.029, TOLD_BLOCKS)
    assert precision.reached("few", 0.029, TOLD_BLOCKS + 1)


def test_a_study_does_not_end_at_the_first_narrow_look() -> None:
    """Of many looks one is narrow by luck; asking twice at the same blocks is one look."""
    precision = Precision(0.03)
    looks = [("a", 0.031, 12), ("a", 0.029, 13), ("a", 0.029, 13), ("b", 0.029, 14), ("a", 0.031, 14), ("a", 0.029, 15)]
    assert not any(precision.reached(*look) for look in looks)
    assert precision.reached("a", 0.028, 16)


def test_launches_that_differ_keep_a_budget_going() -> None:
    """The half width that a budget looks at holds what a launch draws once and keeps."""
    cells = grid("single", "ddp", "all-reduce", "gather-scatter")
    generator = np.random.default_rng(2)
    launch = [0, 0, 1, 1, *[2] * 8]
    drawn = {cell.id: np.exp(0.05 * generator.standard_normal(3)) for cell in cells}
    noise = {cell.id: np.exp(0.005 * generator.standard_normal(12)) for cell in cells}
    widths = []
    for differs in (False, True):
        pace = Pace(BUDGETED, cells, now_s=lambda: 0.0, until_s=600.0)
        for cell in cells:
            pace.saw_step(cell, 0.1)
        pace.prepared()
        assert pace.launches == LAUNCHES
        samples = {
            name: {
                (0, b): np.array([0.1 * noise[name][b] * (drawn[name][launch[b]] if differs else 1)]) for b in range(12)
            }
            for name in noise
        }
        widths.append(pace.width(cells[1], samples))
    assert widths[0] < 0.02
    assert widths[1] > 0.05
