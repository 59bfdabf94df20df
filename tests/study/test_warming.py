"""Batches that threads have made ahead are used up before a cell is timed (method.md §8)."""

import pytest

from fake_study import STUDY, grid
from worldsize.config import StudySettings
from worldsize.ranks.turns import Reply
from worldsize.study.blocks import BURSTS
from worldsize.study.pace import Pace
from worldsize.study.warming import MOST, warm_up

STEP_S = 0.1


class Fed:
    """A cell whose queue, full at first, gets `share` of a batch while a step uses one up."""

    def __init__(self, share: float, room: int, settings: StudySettings, budget_s: float | None) -> None:
        [self.cell] = grid("single", settings=settings)
        self.share, self.room, self.clock_s, self.lies = share, room, 0.0, float(room)
        self.pace = Pace(settings, [self.cell], now_s=lambda: self.clock_s, until_s=budget_s)

    def take(self, count: int) -> list[float]:
        for _ in range(count):
            step_s = STEP_S if self.lies >= 1 else STEP_S / self.share
            self.lies = min(self.room, max(0.0, self.lies - 1) + self.share * step_s / STEP_S)
            self.clock_s += step_s
        self.pace.sizes.saw_loaders(self.cell, [Reply(ready_batches=int(self.lies))])
        return [STEP_S] * count


def turn(loaders: int, share: float, steps: int, lies: int) -> tuple[int, float]:
    """What lies ready after a turn of so many steps, and how long these waited (s).

    Each of the loaders has a batch in hand when it begins, and they make one burst after the other, `share` of a batch
    a step; `lies` were ready besides.
    """
    lies, now_s, next_s, wait_s = lies + loaders, 0.0, loaders * STEP_S / share, 0.0
    for _ in range(steps):
        if not lies:
            now_s, wait_s = next_s, wait_s + next_s - now_s
        now_s += STEP_S
        while next_s <= now_s:
            lies, next_s = lies + loaders, next_s + loaders * STEP_S / share
        lies -= 1
    return lies, wait_s


def warmed(share: float, room: int, settings: StudySettings = STUDY, budget_s: float | None = None) -> tuple[int, int]:
    """The steps that it is warmed up with, and the batches that lie ready then."""
    fed = Fed(share, room, settings, budget_s)
    return len(warm_up(fed.cell, fed.pace, fed.take)), int(fed.lies)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.7])
@pytest.mark.parametrize("room", [1, 4, 16])
def test_what_lies_ready_is_used_up_where_the_loop_waits_for_data(share: float, room: int) -> None:
    steps, ready = warmed(share, room)
    assert ready <= 1
    assert STUDY.warmup_steps <= steps <= MOST[True]


def test_it_takes_longer_where_the_loader_is_nearly_as_fast() -> None:
    steps, ready = warmed(0.9, 16)
    assert ready <= 1
    assert MOST[False] < steps <= MOST[True]


@pytest.mark.parametrize("room", [4, 16])
def test_a_loop_that_computes_makes_as_many_steps_once(room: int) -> None:
    assert warmed(2.0, room) == (STUDY.warmup_steps + max(BURSTS, room), room)


def test_more_than_some_is_not_used_up() -> None:
    assert warmed(0.5, 1000)[0] == STUDY.warmup_steps


def test_a_budget_is_not_spent_on_it() -> None:
    budgeted = StudySettings(budget="10s", warmup_steps=2)
    assert warmed(0.5, 16, budgeted, budget_s=10.0)[0] == 2, "16 steps are 1.6 s"
    assert warmed(0.5, 4, budgeted, budget_s=10.0)[0] > 4


@pytest.mark.parametrize(("loaders", "warmup"), [(4, 5), (4, 4), (2, 3), (3, 7)])
def test_loaders_that_give_several_at_a_time_leave_none_over(loaders: int, warmup: int) -> None:
    """They make a burst when the last is used up; a block of whole bursts would begin with the rest of one."""
    settings = StudySettings(steps=30, warmup_steps=warmup)
    [cell] = grid("single", settings=settings)
    pace = Pace(settings, [cell], now_s=lambda: 0.0)
    made: list[int] = []

    def take(count: int) -> list[float]:
        made.append(count)
        left = -sum(made) % loaders
        pace.sizes.saw_loaders(cell, [Reply(loader_processes=loaders, ready_batches=left)])
        return [STEP_S] * count

    assert len(warm_up(cell, pace, take)) % loaders == 0


def test_what_is_left_over_of_a_burst_is_used_up_before_a_block() -> None:
    [cell] = grid("single")
    pace = Pace(STUDY, [cell], now_s=lambda: 0.0)
    pace.sizes.saw_loaders(cell, [Reply(loader_processes=4, ready_batches=3), Reply(loader_processes=4)])
    assert pace.sizes.lead(cell) == 4 + 3
    pace.sizes.saw_loaders(cell, [Reply(ready_batches=8), Reply()])
    assert pace.sizes.lead(cell) == 4, "two whole ones"


@pytest.mark.parametrize(("loaders", "share"), [(4, 0.69), (2, 0.69), (4, 0.5), (3, 0.6)])
def test_a_burst_that_lies_ready_at_each_turn_is_used_up(loaders: int, share: float) -> None:
    """What they have in hand is ready when their cell goes on: turns of two bursts would leave one over for ever."""
    [cell] = grid("single", settings=StudySettings(steps=30, warmup_steps=loaders))
    pace = Pace(STUDY, [cell], now_s=lambda: 0.0)
    lies = loaders  # of the start

    def take(count: int) -> list[float]:
        nonlocal lies
        lies, _ = turn(loaders, share, count, lies)
        pace.sizes.saw_loaders(cell, [Reply(loader_processes=loaders, ready_batches=lies)])
        return [STEP_S] * count

    warm_up(cell, pace, take)
    assert lies == 0


@pytest.mark.parametrize(("loaders", "share"), [(4, 0.69), (2, 0.69), (3, 0.55), (1, 0.5)])
@pytest.mark.parametrize("bursts", [1, 2])
def test_bursts_that_were_made_while_a_step_took_longer_are_used_up(loaders: int, share: float, bursts: int) -> None:
    """Blocks of one burst would have one ready for ever. What uses them up is timed, as the long step was."""
    fed = Bursts(loaders, share)
    warm_up(fed.cell, fed.pace, fed.take)
    assert fed.block() > 0
    fed.lies += bursts * loaders
    fed.told()
    waits = [fed.block() for _ in range(4)]
    assert min(waits[bursts:]) > 0
    assert fed.lies == 0


def test_steps_that_read_batches_of_their_own_tell_nothing_of_what_lies_ready() -> None:
    fed = Bursts(4, 0.69)
    fed.lies = 3
    fed.told()
    fed.pace.sizes.saw_loaders(fed.cell, [Reply(loader_processes=4)])
    assert fed.pace.sizes.lead(fed.cell) == 4 + 3


@pytest.mark.parametrize("share", [1.3, 2.0])
def test_loaders_that_keep_up_do_not_make_blocks_longer_for_ever(share: float) -> None:
    fed = Bursts(2, share)
    warm_up(fed.cell, fed.pace, fed.take)
    for _ in range(3):
        fed.block()
    assert fed.pace.sizes.of(fed.cell) == 2


def test_blocks_of_a_given_length_have_it() -> None:
    fed = Bursts(2, 0.69, block_steps=2)
    fed.lies = 4
    fed.told()
    assert fed.pace.sizes.of(fed.cell) == 2


class Bursts:
    """A cell whose loaders make `share` of a batch in a step, all of them at once."""

    def __init__(self, loaders: int, share: float, block_steps: int | None = None) -> None:
        settings = StudySettings(steps=1_000, warmup_steps=loaders, block_steps=block_steps)
        [self.cell] = grid("single", settings=settings)
        self.pace = Pace(settings, [self.cell], now_s=lambda: 0.0)
        self.loaders, self.share, self.lies, self.wait_s = loaders, share, 0, 0.0

    def take(self, count: int) -> list[float]:
        self.lies, self.wait_s = turn(self.loaders, self.share, count, self.lies)
        self.told()
        return [STEP_S] * count

    def told(self) -> None:
        """What its rank says after a turn."""
        reply = Reply(loader_processes=self.loaders, ready_batches=self.lies)
        self.pace.sizes.saw_loaders(self.cell, [reply])

    def block(self) -> float:
        """How long a block waits for data (s)."""
        self.take(self.pace.sizes.lead(self.cell) + self.pace.sizes.of(self.cell))
        return self.wait_s
