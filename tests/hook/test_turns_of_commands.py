"""A command in turns, without a study: its steps are all there, one behind the other, in time of turns."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hooked import TRAINING
from worldsize.commands.running import RunningCommand, period_of
from worldsize.commands.tree import Launch

LONG_S = 120.0


def idle() -> None:
    """Nobody is told that a turn goes on."""


@contextmanager
def running(place: Path, code: str, *, processes: int = 1) -> Iterator[RunningCommand]:
    (place / "train.py").write_text(code)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes))
    words = (sys.executable, *(torchrun if processes > 1 else ()), "train.py")
    launch = Launch(words=words, folder=place / "launch", cwd=place, environment=dict(os.environ))
    found = RunningCommand([launch], place / "cell", session=0, number=0, first_step=0)
    try:
        assert found.wait_for_first_step(LONG_S, idle)
        yield found
    finally:
        found.end()


def lines(place: Path, rank: int = 0) -> list[dict[str, float]]:
    return [json.loads(line) for line in (place / "cell" / f"rank{rank}.jsonl").read_text().splitlines()]


@pytest.mark.quiet  # beside other tests a command may run on for some steps after its turn
def test_each_of_the_shortest_steps_has_a_length(tmp_path: Path) -> None:
    """Also of those that end between our look at the clock and the moment at which the command stands still."""
    seconds: list[float] = []
    with running(tmp_path, f"{TRAINING}torch.set_num_threads(1)\nwhile True: step()") as command:
        for block in range(60):
            assert command.wait_for_steps(4, LONG_S, idle)
            command.stop()
            seconds += command.block(block, wanted=1000, timed=True).step_s
            command.go_on()
    assert all(each > 0 for each in seconds)


def test_all_steps_are_there_and_nothing_between_them_is_left_out(tmp_path: Path) -> None:
    seconds: list[float] = []
    with running(tmp_path, f"{TRAINING}while True: step(0.005)") as command:
        for block in range(10):
            assert command.wait_for_steps(4, LONG_S, idle)
            command.stop()
            before = command.ranks[0].path.read_bytes()
            time.sleep(0.1)
            assert command.ranks[0].path.read_bytes() == before, "it stands still"
            found = command.block(block, wanted=1000, timed=block > 0)
            assert len(found.step_s) >= 4
            assert not found.over
            assert found.samples == 6
            seconds += found.step_s
            command.go_on()
        in_turn_s = command.clock.in_turn_s
    made = lines(tmp_path)
    assert [line["step"] for line in made] == [*range(1, len(made) + 1)]
    assert len(made) == len(seconds)
    assert sum(seconds) == pytest.approx(sum(line["step_s"] for line in made))
    last_s = made[-1]["start_ns"] / 1e9 + made[-1]["step_s"]
    assert last_s - made[0]["start_ns"] / 1e9 == pytest.approx(sum(seconds), abs=1e-6)
    assert sum(seconds) < in_turn_s
    assert {line["block"] for line in made} == {*range(10)}
    assert all(line["timed"] is (line["block"] > 0) for line in made)


RECURRING = """
for number in range(10**9):
    step(0.001)
    if number % 5 == 2: torch.save(model, os.devnull)
    if number % 3 == 0:
        model.eval()
        with torch.no_grad(): model(torch.ones(2, 4))
        model.train()
"""


def test_what_recurs_is_known_with_its_period(tmp_path: Path) -> None:
    with running(tmp_path, TRAINING + RECURRING) as command:
        assert command.wait_for_steps(30, LONG_S, idle)
        command.stop()
        assert sorted(command.block(0, wanted=1000, timed=True).recurring) == [3, 5]


def test_what_came_once_has_no_period() -> None:
    assert [period_of(found) for found in ([], [7], [7, 12], [7, 12, 17, 23])] == [0, 0, 5, 5]


def test_what_is_made_beyond_the_steps_of_a_block_is_of_the_next(tmp_path: Path) -> None:
    with running(tmp_path, f"{TRAINING}while True: step(0.005)") as command:
        for block in range(3):
            assert command.wait_for_steps(9, LONG_S, idle)
            command.stop()
            taken = len(command.block(block, wanted=4, timed=True).step_s)
            assert taken >= 8
            assert taken % 4 == 0, "whole blocks of what was made"
            command.go_on()
        assert command.wait_for_steps(10**6, LONG_S, idle, about_s=0.0), "fewer are enough where they take long"
    made = lines(tmp_path)
    assert [line["step"] for line in made] == [*range(1, len(made) + 1)]
    assert all(sum(line["block"] == block for line in made) % 4 == 0 for block in range(3))
