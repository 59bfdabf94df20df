"""A worker of every strategy is killed in the middle, and its training ends where one ends that was never disturbed.

What a strategy carries from step to step (residuals, matrices, when ranks meet) must come back with the checkpoint.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from commands import finish, processes_of
from failing import DATA, EPOCH, Place, is_kept, wait_for
from worldsize.strategies import STRATEGIES

EPOCHS = 2
STEPS = EPOCHS * EPOCH
KILL_AFTER = 5
FIRST_STEPS, PERIOD = 2, 3
"""Short, so that the checkpoint that is gone back to lies between two exchanges of weights."""
NAMES = [name for name, strategy in STRATEGIES.items() if strategy.traits.collectives]
"""Those without a collective have one process: nobody waits for it, and test_matrix.py kills one of these."""
CELLS = [f"{name}-w2-b8" for name in NAMES]
GRID = ("--strategies", ",".join(NAMES), "--world-sizes", 2, "--batch-sizes", 8, "--baseline", "wrapped")
TRAINING = ("--epochs", EPOCHS, "--checkpoint", "--checkpoint-steps", 3, "--max-restarts", 1)


def flags() -> Iterator[object]:
    """Settings by which strategies come to their usual step at once."""
    for traits in (STRATEGIES[name].traits for name in NAMES):
        for name, value in ((traits.first_steps, FIRST_STEPS), (traits.period, PERIOD)):
            if name:
                yield from (f"--{name.replace('_', '-')}", value)


def started(place: Place, **variables: str) -> Any:
    return place.start("study", *GRID, *DATA, *TRAINING, *flags(), "--out", "run", **variables)


@pytest.fixture(scope="module")
def never_disturbed(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("calm"))
    done = finish(started(place, SLOW_S="0"), place.folder)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Each cell has lost its rank 1 once."""
    place = Place(tmp_path_factory.mktemp("killed"))
    process = started(place)
    left, written = set(CELLS), place.written()

    def all_have_been_killed() -> bool:
        nonlocal written
        for cell in sorted(left):
            if len(place.lines(cell)) > KILL_AFTER and (found := rank_1(place.folder, cell)):
                seen = place.written()
                assert is_kept(written, seen)
                found.kill()
                written = seen
                left.remove(cell)
        return not left or process.poll() is not None

    wait_for(all_have_been_killed, "each cell came to its middle")
    done = finish(process, place.folder)
    assert not left, f"ended before they were killed: {left}"
    assert done.returncode == 0, done.stderr
    assert is_kept(written, place.written())
    assert place.left() == []
    return place


def rank_1(folder: Path, cell: str) -> psutil.Process | None:
    """The worker of a cell."""
    found = (each for each in processes_of(folder) if " ".join(each.cmdline()) == f"worldsize worker rank 1 {cell}")
    return next(found, None)


def test_strategies_that_carry_something_are_among_them() -> None:
    assert [name for name in NAMES if STRATEGIES[name].traits.exact]
    assert [name for name in NAMES if not STRATEGIES[name].traits.exact]


@pytest.mark.parametrize("name", NAMES)
def test_every_loss_is_that_of_a_training_that_was_never_disturbed(
    killed: Place, never_disturbed: Place, name: str
) -> None:
    cell = f"{name}-w2-b8"
    assert killed.record(cell)["state"] == "complete"
    codes = {warning["code"] for warning in killed.record(cell)["warnings"]}
    assert codes & {"restarted", "ran-again"}
    for rank in (0, 1):
        assert sorted(killed.losses(cell, rank)) == list(range(STEPS))
        assert killed.losses(cell, rank) == never_disturbed.losses(cell, rank)
