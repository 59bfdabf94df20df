"""A worker of every strategy is killed in the middle, and its training ends where one ends that was never disturbed.

What a strategy carries from step to step (residuals, matrices, when ranks meet) must come back with the checkpoint.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from commands import finish, processes_of
from failing import DATA, EPOCH, Place, is_kept, wait_for
from lossy_proofs import HERE
from worldsize.config import CellSettings
from worldsize.strategies import STRATEGIES, find_strategy

EPOCHS = 2
STEPS = EPOCHS * EPOCH
KILL_AFTER = 5
FIRST_STEPS, PERIOD = 2, 3
"""Short, so that the checkpoint that is gone back to lies between two exchanges of weights."""
NAMES = [name for name, strategy in STRATEGIES.items() if strategy.traits.collectives]
"""Those without a collective have one process: nobody waits for it, and test_matrix.py kills one of these."""


def carries(name: str) -> bool:
    """Whether it keeps something from step to step."""
    traits = find_strategy(name).traits
    return traits.feedback or bool(traits.first_steps or traits.period)


GROUPS = {
    "carries": [f"{HERE}:HoldsBack", *(name for name in NAMES if carries(name))],
    "others": [name for name in NAMES if not carries(name)],
}
TRAINING = ("--epochs", EPOCHS, "--checkpoint", "--checkpoint-steps", 3, "--max-restarts", 1)


def cell_of(name: str) -> str:
    return CellSettings(strategy=name, world_size=2, batch_size=8).id


def flags(group: str) -> Iterator[object]:
    """The study of a group, with settings by which its strategies come to their usual step at once."""
    yield from ("--strategies", ",".join(GROUPS[group]), "--world-sizes", 2, "--batch-sizes", 8)
    yield from ("--baseline", "wrapped", *DATA, *TRAINING)
    for traits in (find_strategy(name).traits for name in GROUPS[group]):
        for name, value in ((traits.first_steps, FIRST_STEPS), (traits.period, PERIOD)):
            if name:
                yield from (f"--{name.replace('_', '-')}", value)


@pytest.fixture(scope="module", params=GROUPS)
def group(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def never_disturbed(group: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("calm"))
    place.undisturbed(*flags(group))
    return place


@pytest.fixture(scope="module")
def killed(group: str, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Each cell has lost its rank 1 once."""
    place = Place(tmp_path_factory.mktemp("killed"))
    process = place.start("study", *flags(group), "--out", "run")
    left, written = set(map(cell_of, GROUPS[group])), place.written()

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

    try:
        wait_for(all_have_been_killed, "each cell came to its middle")
    except BaseException:
        process.kill()
        process.communicate()
        raise
    done = finish(process, place.folder)
    assert not left, f"ended before they were killed: {left}"
    assert done.returncode == 0, done.stderr
    assert is_kept(written, place.written())
    assert place.left() == []
    return place


def rank_1(folder: Path, cell: str) -> psutil.Process | None:
    """The worker of a cell; None between two of them."""
    for process in processes_of(folder):
        with contextlib.suppress(psutil.Error):  # it may end meanwhile
            title = " ".join(process.cmdline())
            if title.startswith("worldsize worker rank 1 ") and f"/{cell}/" in title:
                return process
    return None


def test_every_strategy_of_several_processes_is_in_a_group() -> None:
    assert {*STRATEGIES} <= {*GROUPS["carries"], *GROUPS["others"], "single", "data-parallel"}


def test_every_loss_is_that_of_a_training_that_was_never_disturbed(
    group: str, killed: Place, never_disturbed: Place
) -> None:
    for cell in map(cell_of, GROUPS[group]):
        assert killed.record(cell)["state"] == "complete"
        codes = {warning["code"] for warning in killed.record(cell)["warnings"]}
        assert codes & {"restarted", "ran-again"}
        for rank in (0, 1):
            assert sorted(killed.losses(cell, rank)) == list(range(STEPS))
            assert killed.losses(cell, rank) == never_disturbed.losses(cell, rank)
