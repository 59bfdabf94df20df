"""What a training does every so many steps is named, with the distance and what it costs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advised import SINGLE, Change, codes, exchanging, found, gain, steps, study
from made_runs import SHARES
from worldsize.analysis.verdict import verdict

FAST = exchanging("ddp", exposed=0.02)


def stall(part: str, every: int, seconds: float) -> Change:
    """Each so many steps one takes longer."""

    def change(_: int, record: dict[str, Any]) -> None:
        if record["step"] % every == 0:
            record[part] += seconds
            record["step_s"] += seconds

    return change


@pytest.mark.parametrize(("part", "words"), [("other_s", "work outside the named parts"), ("backward_s", "backward")])
def test_a_stall_at_regular_distances(tmp_path: Path, part: str, words: str) -> None:
    analysis = study(tmp_path, [SINGLE, FAST], changes=[steps(FAST, stall(part, 4, 1.0))])
    advice = found(analysis, "periodic-stall")
    assert advice is not None
    assert "Every 4 steps, one of ddp with 2 workers at b = 32 takes 1,500 ms in place of 500" in advice.finding
    assert words in advice.finding
    assert gain(advice).startswith("at most 1.")
    assert codes(analysis)[0] == "periodic-stall", "the noise is made of it"
    assert "every 4 steps" in verdict(analysis)


@pytest.mark.parametrize("change", [stall("other_s", 4, 0.05), stall("data_wait_s", 4, 1.0), stall("other_s", 1, 1.0)])
def test_no_stall(tmp_path: Path, change: Change) -> None:
    """A short one, a loader that gives its batches in bursts, and one in every step."""
    assert "periodic-stall" not in codes(study(tmp_path, [SINGLE, FAST], changes=[steps(FAST, change)]))


def test_no_stall_where_loaders_set_the_pace(tmp_path: Path) -> None:
    """They go on in a long step, and make up for it; other steps wait for them. Without it these would wait longer."""

    def change(_: int, record: dict[str, Any]) -> None:
        for every, part, seconds in ((8, "forward_s", 1.0), (3, "data_wait_s", 0.5)):
            if record["step"] % every == 0:
                record[part] += seconds
                record["step_s"] += seconds

    analysis = study(tmp_path, [SINGLE, FAST], changes=[steps(FAST, change)])
    assert "periodic-stall" not in codes(analysis)
    assert "input-bound" in codes(analysis)


def test_a_stall_beside_a_wait_for_data_in_each_step(tmp_path: Path) -> None:
    """A loader in the training process makes nothing while it trains."""

    def change(rank: int, record: dict[str, Any]) -> None:
        stall("forward_s", 4, 1.0)(rank, record)
        record["data_wait_s"] += 0.2
        record["step_s"] += 0.2

    assert "periodic-stall" in codes(study(tmp_path, [SINGLE, FAST], changes=[steps(FAST, change)]))


def test_a_stall_of_a_cell_that_ended_while_the_machine_was_slow(tmp_path: Path) -> None:
    """Beside one that was timed for longer its step counts as shorter than it was: the median step must not be that."""
    alone = replace(SINGLE, blocks=18)

    def slow_at_first(_: int, record: dict[str, Any]) -> None:
        if record["block"] < FAST.blocks:
            for part in (*SHARES, "step_s"):
                record[part] *= 2

    changes = [steps(alone, slow_at_first), steps(FAST, stall("other_s", 4, 1.0))]
    analysis = study(tmp_path, [alone, FAST], changes=changes)
    advice = found(analysis, "periodic-stall")
    assert advice is not None
    assert "takes 1,500 ms in place of 500" in advice.finding


def test_a_stall_among_steps_that_jitter_lengthens(tmp_path: Path) -> None:
    """Some take 1.6 times as long, at irregular distances; every fourth takes three times as long."""
    regular = stall("other_s", 4, 1.0)

    def change(rank: int, record: dict[str, Any]) -> None:
        if record["step"] in (5, 7, 10, 13):
            record["backward_s"] += 0.3
            record["step_s"] += 0.3
        regular(rank, record)

    advice = found(study(tmp_path, [SINGLE, FAST], changes=[steps(FAST, change)]), "periodic-stall")
    assert advice is not None
    assert "Every 4 steps, one of ddp with 2 workers at b = 32 takes 1,500 ms" in advice.finding
