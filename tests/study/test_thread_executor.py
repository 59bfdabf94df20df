"""Cells as threads of one rank: what this rank tells the others of a cell that runs on it alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fake_cells import facts, planned
from fake_study import STUDY
from worldsize.ranks.setup import Rank
from worldsize.ranks.turns import Reply, Turn, run_turns
from worldsize.study import thread_executor
from worldsize.study.executor import CellFailed
from worldsize.study.thread_executor import ThreadExecutor

CELL = planned("single", 1, STUDY)


def refuse(turn: Turn) -> Reply:
    raise ValueError("this turn cannot be done")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What rank 0 of two has sent the other."""
    sent: list[Any] = []

    def agree(value: Any, processes: int) -> Any:
        sent.append(value)
        return value

    monkeypatch.setattr(thread_executor, "agree", agree)
    return sent


def serving(monkeypatch: pytest.MonkeyPatch, do: Callable[[Turn], Reply], *, ends: bool = True) -> ThreadExecutor:
    def serve(assignment: Any, turns: Any, rank: Rank, device: torch.device) -> None:
        run_turns(turns, Reply(facts=facts()), do)
        if not ends:
            raise RuntimeError("a loader process would not end")

    monkeypatch.setattr(thread_executor, "serve", serve)
    return ThreadExecutor(Path("run"), Rank(0, 2, 0), torch.device("cpu"))


@pytest.mark.parametrize("ends", [True, False])
def test_each_reply_is_told_and_nothing_after_the_last(
    monkeypatch: pytest.MonkeyPatch, told: list[Any], ends: bool
) -> None:
    """What came after it the other rank would take for the first word of the next cell."""
    executor = serving(monkeypatch, lambda turn: Reply(), ends=ends)
    executor.take(CELL, Turn(op="steps", count=1), lambda: None)
    executor.finish(CELL)
    assert len(told) == 3, "that it is ready, its steps, its end"
    assert not executor.alive(CELL)


def test_a_failure_is_told_in_place_of_a_reply(monkeypatch: pytest.MonkeyPatch, told: list[Any]) -> None:
    executor = serving(monkeypatch, refuse)
    with pytest.raises(CellFailed, match="this turn cannot be done"):
        executor.take(CELL, Turn(op="steps", count=1), lambda: None)
    assert len(told) == 2
    assert told[-1]["kind"] == "ValueError"
