"""Who takes the next turn, and when it is enough: a real ledger and listener, an executor whose clock is told."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fake_cells import STEPS_PER_EPOCH, FakeExecutor, name_of, planned, write_steps
from fake_study import BLOCK_STEPS, STUDY, Study, grid, noisy
from worldsize.config import StudySettings
from worldsize.ranks.turns import Reply, Turn
from worldsize.results.files import cell_folder, read_record
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord
from worldsize.results.training_records import Evaluation
from worldsize.study.blocks import BLOCK_WARMUP
from worldsize.study.executor import WorkersBehind
from worldsize.study.pace import MIN_BLOCKS, PAIRS
from worldsize.study.plan import PlannedCell, baseline_of, in_turn
from worldsize.study.precision import IN_A_ROW

SOONEST = MIN_BLOCKS + IN_A_ROW - 1
"""Blocks after which precision ends a cell whose steps are all alike."""


def test_cells_take_turns_block_by_block(tmp_path: Path) -> None:
    cells = grid("single", "ddp", "all-reduce")
    study = Study(tmp_path, cells, FakeExecutor(tmp_path, 0, noisy(2.0))).run()
    names = [cell.id for cell in cells]
    assert study.turns("warmup") == [(name, 0) for name in names]
    rounds = [[cell.id for cell in in_turn(cells, STUDY.seed, 0, block)] for block in range(10)]
    assert study.turns("steps") == [(name, block) for block, order in enumerate(rounds) for name in order]
    assert len({tuple(order) for order in rounds}) > 1, "in an order that is drawn anew"
    counts = {name_of(turn): turn.count for _, turn in study.executor.turns}
    assert counts.pop("warmup") == STUDY.warmup_steps
    assert counts == dict.fromkeys(("steps", "alone", "unobserved"), BLOCK_STEPS)
    assert study.heard.started == names


def test_rolled_back_steps_follow_the_block_it_is_paired_with(tmp_path: Path) -> None:
    """Without exchange each cell of several processes, in the blocks that its pace pairs; without instruments one cell
    per turn, in turn.
    """
    cells = grid("single", "ddp")
    study = Study(tmp_path, cells, FakeExecutor(tmp_path, 0, noisy(2.0))).run()
    for block in range(10):
        taken = [(name, op) for name, op, number in study.executor.log if number == block and op != "warmup"]
        ddp = [("ddp-w2-b4", "steps"), *([("ddp-w2-b4", "alone")] if block < PAIRS else [])]
        own = {"single-w1-b4": [("single-w1-b4", "steps")], "ddp-w2-b4": ddp}
        observed = list(own)[block % 2]
        own[observed].append((observed, "unobserved"))
        order = [cell.id for cell in in_turn(cells, STUDY.seed, 0, block)]
        assert taken == [turn for name in order for turn in own[name]]
    records = {record.id: record for record in study.heard.records}
    assert [block.block for block in records["ddp-w2-b4"].unobserved] == [1, 3, 5, 7, 9]
    assert [block.block for block in records["single-w1-b4"].unobserved] == [0, 2, 4, 6, 8]
    cell = Cell(cell_folder(tmp_path, "ddp-w2-b4"), records["ddp-w2-b4"])
    assert cell.unsynchronised.height == 2 * PAIRS * BLOCK_STEPS
    assert not cell.unsynchronised["timed"].any()
    assert study.heard.steps("ddp-w2-b4") == STUDY.warmup_steps + 10 * BLOCK_WARMUP + 30, (
        "a rolled-back step is no progress"
    )


def test_all_that_is_timed_begins_with_a_step_that_is_not(tmp_path: Path) -> None:
    """So do both halves of a pair: DDP's broadcast of buffers lasts into the first step without synchronisation."""
    study = Study(tmp_path, grid("single", "ddp"), FakeExecutor(tmp_path, 0, noisy(2.0))).run()
    warmups: dict[str, set[int]] = {}
    for _, turn in study.executor.turns:
        warmups.setdefault(name_of(turn), set()).add(turn.warmup)
    assert warmups == {"warmup": {0}, "steps": {BLOCK_WARMUP}, "alone": {BLOCK_WARMUP}, "unobserved": {BLOCK_WARMUP}}


def test_precision_ends_a_cell_only_after_enough_blocks(tmp_path: Path) -> None:
    study = Study(tmp_path, grid("single"), FakeExecutor(tmp_path, 0)).run()  # every step takes exactly the same
    assert study.heard.endings == {"single-w1-b4": "precision"}
    assert len(study.turns("steps")) == SOONEST
    assert study.heard.skips == [(10 - SOONEST) * (BLOCK_WARMUP + BLOCK_STEPS)]


def test_the_steps_of_one_long_block_are_not_taken_for_blocks(tmp_path: Path) -> None:
    settings = StudySettings(steps=10 * MIN_BLOCKS, block_steps=MIN_BLOCKS)
    study = Study(tmp_path, grid("single", settings=settings), FakeExecutor(tmp_path, 0), settings).run()
    assert study.heard.endings == {"single-w1-b4": "precision"}
    assert len(study.turns("steps")) == SOONEST


def test_the_interval_of_each_cell_is_told_as_it_narrows(tmp_path: Path) -> None:
    study = Study(tmp_path, grid("single", "ddp"), FakeExecutor(tmp_path, 0, noisy(0.3))).run()
    for name in ("single-w1-b4", "ddp-w2-b4"):
        told = [(width, blocks) for cell, width, blocks in study.heard.widths if cell == name]
        assert [blocks for _, blocks in told] == list(range(1, 10)), "after each block but that which the cap ended"
        widths = [width for width, _ in told if width is not None]
        assert widths[-1] < widths[0]
    assert study.heard.widths[1] == ("ddp-w2-b4", None, 1), "one ratio has no interval"


def test_a_cell_without_its_baseline_has_no_interval_to_tell(tmp_path: Path) -> None:
    executor = FakeExecutor(tmp_path, 0, noisy(0.3), fails={("single-w1-b4", "steps"): 1})
    study = Study(tmp_path, grid("single", "ddp"), executor).run()
    assert study.heard.widths == []
    assert study.heard.endings["ddp-w2-b4"] == "cap"


def test_the_cap_ends_a_cell_that_does_not_get_precise(tmp_path: Path) -> None:
    study = Study(tmp_path, grid("single", "ddp"), FakeExecutor(tmp_path, 0, noisy(2.0))).run()
    assert study.heard.endings == {"single-w1-b4": "cap", "ddp-w2-b4": "cap"}
    assert len(study.turns("steps")) == 2 * 10


def test_a_cap_below_the_least_number_of_blocks_ends_a_steady_cell(tmp_path: Path) -> None:
    settings = StudySettings(steps=MIN_BLOCKS - 1, block_steps=1)
    study = Study(tmp_path, grid("single", settings=settings), FakeExecutor(tmp_path, 0), settings).run()
    assert study.heard.endings == {"single-w1-b4": "cap"}


def test_a_cap_that_is_no_multiple_of_a_block_is_rounded_up(tmp_path: Path) -> None:
    settings = StudySettings(steps=4, block_steps=3, warmup_steps=0)
    study = Study(tmp_path, grid("single", settings=settings), FakeExecutor(tmp_path, 0), settings).run()
    assert study.turns("steps") == [("single-w1-b4", 0), ("single-w1-b4", 1)]
    assert study.turns("warmup") == []


def test_a_baseline_goes_on_while_another_cell_is_compared_with_it(tmp_path: Path) -> None:
    random = noisy(2.0)

    def step_time(cell: PlannedCell, now: float) -> float:
        return random(cell, now) if cell.settings.strategy == "ddp" else 0.5

    study = Study(tmp_path, grid("single", "ddp", "all-reduce"), FakeExecutor(tmp_path, 0, step_time)).run()
    blocks = [name for name, _ in study.turns("steps")]
    assert blocks.count("ddp-w2-b4") == blocks.count("single-w1-b4") == 10
    assert blocks.count("all-reduce-w2-b4") == SOONEST
    assert study.heard.endings == {"all-reduce-w2-b4": "precision", "single-w1-b4": "cap", "ddp-w2-b4": "cap"}


def test_a_baseline_of_another_local_batch_is_not_kept_going(tmp_path: Path) -> None:
    small = planned("single", 1, STUDY, batch_size=4)
    large, ddp = (planned(name, n, STUDY, batch_size=8) for name, n in (("single", 1), ("ddp", 2)))
    random = noisy(2.0)

    def step_time(cell: PlannedCell, now: float) -> float:
        return random(cell, now) if cell is ddp else 0.5

    study = Study(tmp_path, [small, large, ddp], FakeExecutor(tmp_path, 0, step_time)).run()
    assert study.heard.endings == {small.id: "precision", large.id: "cap", ddp.id: "cap"}


def test_the_baseline_is_single_and_else_the_same_strategy_around_one_worker() -> None:
    single, wrapped, ddp = (planned(name, n, STUDY) for name, n in (("single", 1), ("ddp", 1), ("ddp", 2)))
    assert baseline_of(ddp, [single, wrapped, ddp]) is single
    assert baseline_of(wrapped, [single, wrapped, ddp]) is single
    assert baseline_of(ddp, [wrapped, ddp]) is wrapped
    assert baseline_of(wrapped, [wrapped, ddp]) is None
    assert baseline_of(single, [single, wrapped, ddp]) is None
    assert baseline_of(ddp, [planned("all-reduce", 1, STUDY), ddp]) is None


def test_a_baseline_that_failed_is_one_only_if_there_is_no_other() -> None:
    single, wrapped, ddp = (planned(name, n, STUDY) for name, n in (("single", 1), ("ddp", 1), ("ddp", 2)))
    assert baseline_of(ddp, [single, wrapped, ddp], failed={single.id}) is wrapped
    assert baseline_of(ddp, [single, ddp], failed={single.id}) is single
    assert baseline_of(wrapped, [single, wrapped, ddp], failed={single.id}) is None


@pytest.mark.parametrize(
    ("op", "count", "timed_blocks"),
    [("start", 1, 0), ("warmup", 1, 0), ("steps", 1, 0), ("steps", 4, 3)],
)
def test_a_failing_cell_is_a_row_with_its_reason_and_the_others_go_on(
    tmp_path: Path, op: str, count: int, timed_blocks: int
) -> None:
    cells = grid("single", "ddp", "all-reduce")
    failing = FakeExecutor(tmp_path / "failing", 0, noisy(2.0), fails={("ddp-w2-b4", op): count})
    study = Study(tmp_path / "failing", cells, failing).run()
    whole = Study(tmp_path / "whole", cells, FakeExecutor(tmp_path / "whole", 0, noisy(2.0))).run()

    record = read_record(CellRecord, cell_folder(tmp_path / "failing", "ddp-w2-b4") / "cell.json")
    assert record.state == "failed"
    assert record.error is not None
    assert record.error.message == f"ValueError: told to fail at {op}"
    assert record.summary is None if timed_blocks == 0 else record.summary is not None
    if record.summary:
        assert record.summary.timed_steps == timed_blocks * BLOCK_STEPS

    def turns_of_the_others(executor: FakeExecutor) -> list[tuple[str, str, int]]:
        return [turn for turn in executor.log if turn[0] != "ddp-w2-b4"]

    assert turns_of_the_others(failing) == turns_of_the_others(whole.executor)
    assert study.heard.endings == {"ddp-w2-b4": "failed", "single-w1-b4": "cap", "all-reduce-w2-b4": "cap"}


def test_only_the_cap_ends_a_cell_whose_baseline_failed_at_its_start(tmp_path: Path) -> None:
    executor = FakeExecutor(tmp_path, 0, fails={("single-w1-b4", "start"): 1})
    study = Study(tmp_path, grid("single", "ddp"), executor).run()
    assert study.heard.endings == {"single-w1-b4": "failed", "ddp-w2-b4": "cap"}


def test_epochs_first_warms_up_and_each_is_evaluated(tmp_path: Path) -> None:
    settings = StudySettings(epochs=3)
    cells = grid("single", "ddp", settings=settings)
    study = Study(tmp_path, cells, FakeExecutor(tmp_path, 0), settings).run()
    assert study.executor.log == [
        (cell.id, op, block if op == "epoch" else 0)
        for block in range(3)
        for cell in cells
        for op in ("epoch", "evaluate")
    ]
    timed = [turn.timed for name, turn in study.executor.turns if turn.op == "epoch" and name == cells[0].id]
    assert timed == [False, True, True]
    assert study.heard.endings == {"single-w1-b4": "epochs", "ddp-w2-b4": "epochs"}
    for record in study.heard.records:
        assert [evaluation.step for evaluation in record.evaluations] == [4, 8, 12]
        assert record.summary is not None
        assert record.summary.timed_steps == 2 * STEPS_PER_EPOCH
        assert record.summary.blocks == 2


def test_one_epoch_alone_is_timed(tmp_path: Path) -> None:
    settings = StudySettings(epochs=1)
    study = Study(tmp_path, grid("single", settings=settings), FakeExecutor(tmp_path, 0), settings).run()
    assert study.heard.records[0].summary is not None
    assert study.heard.records[0].summary.timed_steps == STEPS_PER_EPOCH


def test_the_record_of_a_complete_cell(tmp_path: Path) -> None:
    study = Study(tmp_path, grid("single", "ddp"), FakeExecutor(tmp_path, 0)).run()
    record = read_record(CellRecord, cell_folder(tmp_path, "ddp-w2-b4") / "cell.json")
    assert record == study.heard.records[1]
    assert (record.state, record.steps_per_epoch, record.matmul_flops_per_s) == ("complete", STEPS_PER_EPOCH, 1e9)
    assert record.peak_memory_bytes == max(1000 + number for number in range(1, len(study.executor.log) + 1))
    assert record.summary is not None
    assert record.summary.step_s.value == 0.5, "the slowest rank ends a step"
    assert record.summary.samples_per_s.value == 8 / 0.5


def test_blocks_of_an_earlier_session_count(tmp_path: Path) -> None:
    cells = grid("single", "ddp")
    first = Study(tmp_path, cells, FakeExecutor(tmp_path, 0, noisy(2.0), stops_after=2 + 4 * 4))
    with pytest.raises(KeyboardInterrupt):
        first.run()
    stopped = {record.id: record for record in first.ledger.interrupted()}
    assert {record.state for record in stopped.values()} == {"interrupted"}

    before = {name: Cell(cell_folder(tmp_path, name), record) for name, record in stopped.items()}
    second = Study(tmp_path, cells, FakeExecutor(tmp_path, 1, noisy(2.0, seed=1)), before=before).run()
    assert sorted(second.turns("steps")) == sorted((cell.id, block) for block in range(10 - 4) for cell in cells)
    assert second.heard.endings == {"single-w1-b4": "cap", "ddp-w2-b4": "cap"}
    record = second.heard.records[0]
    assert record.summary is not None
    assert (record.summary.blocks, record.summary.timed_steps) == (10, 30)
    assert {block.session for block in record.unobserved} == {0, 1}, "these are kept as well"
    steps = Cell(cell_folder(tmp_path, record.id), record).steps.filter("timed")
    assert steps.group_by("session").len().sort("session").rows() == [(0, 12), (1, 18)]


def test_a_cell_whose_blocks_were_all_taken_before_still_comes_to_its_end(tmp_path: Path) -> None:
    [cell] = grid("single")
    for block in range(10):
        write_steps(tmp_path, cell, [0.5] * 3, session=0, block=block, first=3 * block)
    record = CellRecord.of(cell.settings, state="interrupted", placement=cell.placement)
    before = {cell.id: Cell(cell_folder(tmp_path, cell.id), record)}
    study = Study(tmp_path, [cell], FakeExecutor(tmp_path, 1), before=before).run()
    assert study.heard.endings == {cell.id: "cap"}


def epochs_of(study: Study) -> list[tuple[str, int, int, bool]]:
    """Op, block, steps (those that are not timed first) and whether they are timed, of each turn."""
    return [
        (turn.op, turn.block, turn.warmup + turn.count, turn.timed) if turn.op == "epoch" else (turn.op, -1, 0, False)
        for _, turn in study.executor.turns
    ]


def test_checkpoints_come_after_evaluations_and_between_steps(tmp_path: Path) -> None:
    settings = StudySettings(epochs=2, checkpoint=True, checkpoint_steps=3)
    study = Study(tmp_path, grid("single", settings=settings), FakeExecutor(tmp_path, 0), settings).run()
    after = [("evaluate", -1, 0, False), ("checkpoint", -1, 0, False)]
    within = ("checkpoint", -1, 0, False)
    assert epochs_of(study) == [
        *(("epoch", 0, 3, False), within, ("epoch", 0, 1, False), *after),
        *(("epoch", 1, 3, True), within, ("epoch", 1, 1, False), *after),
    ]
    assert [turn.first_step for _, turn in study.executor.turns] == [0, 3, 3, 4, 4, 4, 7, 7, 8, 8]


def test_steps_after_a_checkpoint_are_not_timed_until_what_it_left_ready_is_used_up(tmp_path: Path) -> None:
    settings = StudySettings(epochs=1, checkpoint=True, checkpoint_steps=2)
    study = Study(tmp_path, grid("single", settings=settings), FakeExecutor(tmp_path, 0), settings).run()
    steps = Cell(cell_folder(tmp_path, "single-w1-b4"), study.heard.records[0]).steps
    assert steps["timed"].to_list() == [True, True, False, True]


def test_a_single_step_after_a_checkpoint_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fake_cells.STEPS_PER_EPOCH", 13)
    settings = StudySettings(epochs=1, checkpoint=True, checkpoint_steps=4)
    study = Study(tmp_path, grid("single", settings=settings), FakeExecutor(tmp_path, 0), settings).run()
    timed = Cell(cell_folder(tmp_path, "single-w1-b4"), study.heard.records[0]).steps["timed"].to_list()
    assert timed == [True] * 4 + ([False] + [True] * 3) * 2 + [False]


@pytest.mark.parametrize(("done", "timed"), [(0, [True] * 4), (1, [False, True, True]), (3, [False])])
def test_workers_that_go_on_within_an_epoch_begin_with_a_step_that_is_not_timed(
    tmp_path: Path, done: int, timed: list[bool]
) -> None:
    """What a start takes is in no step: it is cold, and the one before it was made by others."""
    settings = StudySettings(epochs=1, checkpoint=True)
    [cell] = grid("single", settings=settings)
    executor = FakeExecutor(tmp_path, 0, checkpoints={cell.id: done})
    study = Study(tmp_path, [cell], executor, settings).run()
    assert Cell(cell_folder(tmp_path, cell.id), study.heard.records[0]).steps["timed"].to_list() == timed


def test_workers_that_begin_with_a_whole_epoch_begin_cold_as_well(tmp_path: Path) -> None:
    settings = StudySettings(epochs=3, checkpoint=True)
    [cell] = grid("single", settings=settings)
    study = Study(tmp_path, [cell], FakeExecutor(tmp_path, 0, checkpoints={cell.id: 4}), settings).run()
    steps = Cell(cell_folder(tmp_path, cell.id), study.heard.records[0]).steps
    assert steps["timed"].to_list() == [False, *[True] * 7]


@pytest.mark.parametrize(
    ("done", "turns"),
    [
        (0, [("epoch", 0, 4, False), ("epoch", 1, 4, True), ("epoch", 2, 4, True)]),
        (4, [("epoch", 1, 4, True), ("epoch", 2, 4, True)]),
        (7, [("epoch", 1, 1, False), ("epoch", 2, 4, True)]),
        (12, []),
    ],
)
def test_a_cell_with_a_checkpoint_does_what_is_left(
    tmp_path: Path, done: int, turns: list[tuple[str, int, int, bool]]
) -> None:
    settings = StudySettings(epochs=3, checkpoint=True)
    [cell] = grid("single", settings=settings)
    evaluations = [
        Evaluation(epoch=step // 4 - 1, step=step, test_loss=0.5, test_accuracy=0.75, test_samples=8)
        for step in (4, 8, 12)
        if step <= done + 3  # the last one may have come after the checkpoint
    ]
    record = CellRecord.of(cell.settings, state="interrupted", placement=cell.placement, evaluations=evaluations)
    executor = FakeExecutor(tmp_path, 1, checkpoints={cell.id: done})
    before = {cell.id: Cell(cell_folder(tmp_path, cell.id), record)}
    study = Study(tmp_path, [cell], executor, settings, before=before).run()
    assert [turn for turn in epochs_of(study) if turn[0] == "epoch"] == turns
    assert study.heard.endings == {cell.id: "epochs"}
    assert [each.step for each in study.heard.records[0].evaluations] == [4, 8, 12]


def test_workers_that_lost_their_training_begin_it_again(tmp_path: Path) -> None:
    """They were ended to make room, and their checkpoint could not be written."""
    settings = StudySettings(epochs=2)
    cells = grid("single", "ddp", settings=settings)
    first, second = cells
    executor = FakeExecutor(tmp_path, 0)

    def step_time(cell: PlannedCell, now: float) -> float:
        if cell is second and second.id not in lost:
            lost.append(second.id)
            executor.finish(first)
        return 0.5

    lost: list[str] = []
    executor.step_time = step_time
    study = Study(tmp_path, cells, executor, settings).run()
    assert [block for name, block in study.turns("epoch") if name == first.id] == [0, 0, 1]
    record = next(each for each in study.heard.records if each.id == first.id)
    assert [each.step for each in record.evaluations] == [4, 8]
    assert Cell(cell_folder(tmp_path, first.id), record).steps.filter(rank=0)["step"].to_list() == list(range(8))


def test_steps_between_a_checkpoint_and_a_kill_are_done_again(tmp_path: Path) -> None:
    """The workers were killed after the second epoch and before its checkpoint: they are back where the first ended."""

    class Killed(FakeExecutor):
        def take(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[Reply]:
            if turn.op == "checkpoint" and turn.first_step == 8 and not self.ended:
                self.finish(cell)
                self.facts(cell)  # started again, with the checkpoint of the first epoch
                raise WorkersBehind(self.checkpoints[cell.id])
            return super().take(cell, turn, idle)

    settings = StudySettings(epochs=3, checkpoint=True)
    [cell] = grid("single", settings=settings)
    study = Study(tmp_path, [cell], Killed(tmp_path, 0), settings).run()
    assert [block for _, block in study.turns("epoch")] == [0, 1, 1, 2]
    record = study.heard.records[0]
    assert study.heard.endings == {cell.id: "epochs"}
    assert [each.step for each in record.evaluations] == [4, 8, 12]
    assert Cell(cell_folder(tmp_path, cell.id), record).steps["step"].to_list() == list(range(12))


def test_epochs_without_a_checkpoint_do_not_count(tmp_path: Path) -> None:
    """The weights are gone with the workers, so a training of some epochs starts over."""
    settings = StudySettings(epochs=2)
    [cell] = grid("single", settings=settings)
    write_steps(tmp_path, cell, [0.5] * STEPS_PER_EPOCH, session=0, block=0, first=0)
    record = CellRecord.of(cell.settings, state="interrupted", placement=cell.placement)
    before = {cell.id: Cell(cell_folder(tmp_path, cell.id), record)}
    study = Study(tmp_path, [cell], FakeExecutor(tmp_path, 1), settings, before=before).run()
    assert [block for _, block in study.turns("epoch")] == [0, 1]


@hypothesis_settings(deadline=None, max_examples=20)
@given(
    names=st.lists(st.sampled_from(["single", "ddp", "all-reduce", "gather-scatter"]), min_size=1, unique=True),
    spread=st.sampled_from([0.0, 0.02, 0.5]),
    steps=st.integers(1, 24),
    block_steps=st.integers(1, 5),
    warmup_steps=st.integers(0, 3),
    failing=st.none() | st.tuples(st.sampled_from(["start", "warmup", "steps"]), st.integers(1, 6)),
    seed=st.integers(0, 100),
)
def test_every_planned_step_is_told_as_run_or_as_skipped(
    tmp_path_factory: pytest.TempPathFactory,
    names: list[str],
    spread: float,
    steps: int,
    block_steps: int,
    warmup_steps: int,
    failing: tuple[str, int] | None,
    seed: int,
) -> None:
    run = tmp_path_factory.mktemp("run")
    settings = StudySettings(steps=steps, block_steps=block_steps, warmup_steps=warmup_steps)
    cells = grid(*names, settings=settings)
    fails = {} if failing is None else {(cells[-1].id, failing[0]): failing[1]}
    study = Study(run, cells, FakeExecutor(run, 0, noisy(spread, seed), fails=fails), settings).run()
    most = warmup_steps + math.ceil(steps / block_steps) * (BLOCK_WARMUP + block_steps)
    assert sum(study.heard.skips) + sum(n for _, n in study.heard.advances) == most * len(cells)
    assert sorted(record.id for record in study.heard.records) == sorted(cell.id for cell in cells)
    for cell in cells:
        record = read_record(CellRecord, cell_folder(run, cell.id) / "cell.json")
        written = Cell(cell_folder(run, cell.id), record).steps
        assert study.heard.steps(cell.id) == written.filter(written["rank"] == 0).height
    assert all(skipped >= 0 for skipped in study.heard.skips)


def test_the_same_blocks_are_compared_when_a_cell_ends_early(tmp_path: Path) -> None:
    study = Study(tmp_path, grid("single", "ddp"), FakeExecutor(tmp_path, 0, noisy(0.3))).run()
    keys = [set(study.schedule.samples[name]) for name in ("single-w1-b4", "ddp-w2-b4")]
    assert all(a <= b or b <= a for a, b in itertools.pairwise(keys))
    assert keys[1] <= keys[0], "a baseline ends no earlier than what is compared with it"
