"""How long blocks are: not all alike, or what recurs would lie at one place of each; in whole bursts of loaders."""

from pathlib import Path

import numpy as np
import pytest

from fake_cells import FakeExecutor, name_of, planned
from fake_study import Study, grid, noisy
from worldsize.config import StudySettings
from worldsize.ranks.turns import Reply
from worldsize.results.files import cell_folder
from worldsize.results.folder import Cell
from worldsize.study.pace import Pace

STEP_S, STALL_S = 0.13, 1.3
SETTINGS = StudySettings(steps=100_000, warmup_steps=0)


def paced(settings: StudySettings = SETTINGS, loaders: int = 0, *, strategy: str = "ddp") -> list[tuple[int, int]]:
    """Untimed and timed steps of each of 300 blocks of a cell whose steps take 130 ms."""
    cell = planned(strategy, 2, settings)
    pace = Pace(settings, [cell], now_s=lambda: 0.0, plain=True)
    pace.saw_step(cell, STEP_S)
    pace.sizes.saw_loaders(cell, [Reply(loader_processes=loaders)])
    pace.prepared()
    found = []
    for _ in range(300):
        found.append((pace.sizes.lead(cell), pace.sizes.of(cell)))
        pace.round_ended(1, [cell.id])
    return found


@pytest.mark.parametrize("every", [5, 7, 8, 10, 20])
@pytest.mark.parametrize("loaders", [0, 2, 4])
def test_a_stall_every_so_many_steps_has_its_share_of_the_timed_ones(every: int, loaders: int) -> None:
    """Wherever the first block begins; of blocks of one length it lies on an untimed step for ever, or never."""
    blocks = paced(loaders=loaders)
    for before in range(every):
        timed: list[float] = []
        done = before
        for lead, count in blocks:
            steps = range(done, done + lead + count)
            timed += [STEP_S + (STALL_S if step % every == 0 else 0.0) for step in steps[lead:]]
            done = steps.stop
        assert np.mean(timed) == pytest.approx(STEP_S + STALL_S / every, rel=0.1), before


@pytest.mark.parametrize(("loaders", "lengths"), [(0, {4, 5}), (1, {4, 5}), (2, {4, 6}), (3, {6, 9}), (8, {8, 16})])
def test_longer_blocks_are_so_by_a_step_or_a_burst(loaders: int, lengths: set[int]) -> None:
    blocks = paced(loaders=loaders)
    assert {timed for _, timed in blocks} == lengths
    assert {lead for lead, _ in blocks} == {max(1, loaders)}
    assert blocks == paced(loaders=loaders), "the same for the same seed"
    assert blocks != paced(SETTINGS.model_copy(update={"seed": 1}), loaders)


def test_whole_periods_stay_whole_and_begin_elsewhere() -> None:
    blocks = paced(SETTINGS.model_copy(update={"sync_every": 7}), strategy="local-sgd")
    assert {timed for _, timed in blocks} == {7}
    assert {lead for lead, _ in blocks} == {1, 2}


def test_blocks_of_a_given_length_are_all_that_long() -> None:
    assert set(paced(SETTINGS.model_copy(update={"block_steps": 5}))) == {(1, 5)}


@pytest.mark.parametrize("steps", [7, 20, 100, 151])
def test_each_cell_has_the_steps_that_were_asked_for_in_blocks_of_the_same_lengths(tmp_path: Path, steps: int) -> None:
    settings = StudySettings(steps=steps, warmup_steps=1, target_interval=0)
    random = noisy(0.3)
    executor = FakeExecutor(tmp_path, 0, lambda cell, now: 0.2 * random(cell, now))
    study = Study(tmp_path, grid("single", "ddp", "all-reduce", settings=settings), executor, settings).run()
    lengths = [[len(times) for times in blocks.values()] for blocks in study.schedule.samples.values()]
    assert set(study.heard.endings.values()) == {"cap"}
    assert [sum(each) for each in lengths] == [steps] * 3
    assert lengths[0] == lengths[1] == lengths[2]
    assert min(lengths[0]) >= 2


def test_a_study_that_goes_on_has_no_more_steps_than_were_asked_for(tmp_path: Path) -> None:
    settings = StudySettings(steps=100, warmup_steps=1, target_interval=0)
    timed = []
    for stops_after in range(12, 17):
        run = tmp_path / str(stops_after)
        cells = grid("single", settings=settings)
        first = Study(run, cells, FakeExecutor(run, 0, noisy(0.3), stops_after=stops_after), settings)
        with pytest.raises(KeyboardInterrupt):
            first.run()
        before = {each.id: Cell(cell_folder(run, each.id), each) for each in first.ledger.interrupted()}
        second = Study(run, cells, FakeExecutor(run, 1, noisy(0.3)), settings, before=before).run()
        timed.append(sum(map(len, second.schedule.samples[cells[0].id].values())))
    assert timed == [100] * 5


@pytest.mark.parametrize("loaders", [(2, 0), (0, 2)])
def test_ranks_with_unlike_loaders_make_the_same_steps(tmp_path: Path, loaders: tuple[int, int]) -> None:
    """The one with more processes decides for all: else they would wait for each other in different steps."""
    settings = StudySettings(steps=30, block_steps=5, warmup_steps=2)
    executor = FakeExecutor(tmp_path, 0, noisy(0.3), loaders=loaders)
    Study(tmp_path, grid("ddp", settings=settings), executor, settings).run()
    turns = [turn for _, turn in executor.turns if name_of(turn) != "warmup"]
    assert {(turn.warmup, turn.count) for turn in turns} == {(2, 6)}
