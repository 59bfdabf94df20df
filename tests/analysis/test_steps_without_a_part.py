"""Loops of the user's own in which not every step, or not every rank, does all: parts that were planted add up."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from advised import Change, evidence, found, gain, steps, study
from made_runs import MadeCell, make_run
from worldsize.analysis.compare.sides import snapshot
from worldsize.analysis.parts import with_parts
from worldsize.analysis.predict.observed import beside_messages
from worldsize.analysis.ranks import rank_parts
from worldsize.analysis.recurring import recurring_warning
from worldsize.analysis.steps import block_means
from worldsize.analysis.summary import summarise
from worldsize.config import StudySettings, validated
from worldsize.results.folder import Cell, load_run, write_study
from worldsize.results.samples import TAKEN_APART

WORK = (("forward", 0.004), ("backward", 0.005), ("optimizer", 0.001))
FETCH = ("data_wait", 0.04)
LONG_S, SHORT_S, EVERY = 0.05, 0.01, 4
FIRST = 2
"""The first timed step; one batch feeds it and the three that follow."""
ONE = MadeCell("single", 1, step_s=LONG_S, block_steps=2 * EVERY, warmup_steps=FIRST)
TWO = MadeCell("ddp", 2, step_s=LONG_S, warmup_steps=FIRST, rank_spread=0)


def consists_of(record: dict[str, Any], stretches: Sequence[tuple[str, float]]) -> None:
    """Let a step be a row of these stretches (name, seconds)."""
    for name in TAKEN_APART:
        record.pop(name, None)
    ends_s = list(accumulate(length_s for _, length_s in stretches))
    record.update(phases=[name for name, _ in stretches], phase_ends_s=ends_s, step_s=ends_s[-1])


def one_batch_for_several_steps(_: int, record: dict[str, Any]) -> None:
    consists_of(record, (FETCH, *WORK) if record["step"] % EVERY == FIRST else WORK)


def one_rank_fetches_for_all(rank: int, record: dict[str, Any]) -> None:
    consists_of(record, (FETCH if rank == 0 else ("other", FETCH[1]), *WORK))


def one_batch_was_fetched_before(_: int, record: dict[str, Any]) -> None:
    consists_of(record, (FETCH, *WORK) if record["step"] == 0 else WORK)


def messages_of_the_first_step_were_not_seen(_: int, record: dict[str, Any]) -> None:
    unseen = [("unknown", 0.0)] if record["step"] == FIRST else []
    consists_of(record, (FETCH, *WORK, *unseen))


def of_a_script(folder: Path) -> None:
    settings = validated(StudySettings, {"script": ("train.py",), "world_sizes": (1, 2), "budget": "60s"})
    update = {"settings": settings, "data": None, "model": None}
    write_study(folder, load_run(folder).study.model_copy(update=update))


def made(folder: Path, cell: MadeCell, change: Change) -> Cell:
    steps(cell, change)(make_run(folder, [cell]))
    return load_run(folder).cells[cell.id]


class TestOneBatchForSeveralSteps:
    def test_parts_add_up_to_the_mean_step(self, tmp_path: Path) -> None:
        cell = made(tmp_path, ONE, one_batch_for_several_steps)
        summary = summarise(cell)
        assert summary is not None
        assert summary.step_s.value == pytest.approx(0.02)
        assert sum(summary.parts_s.values()) == pytest.approx(0.02)
        assert summary.parts_s["data_wait_s"] == pytest.approx(0.01)
        assert block_means(cell)["data_wait_s"].to_list() == pytest.approx([0.01] * ONE.blocks)
        blocks = snapshot(load_run(tmp_path)).cells[0].blocks
        assert [block.data_wait_s for block in blocks] == pytest.approx([0.01] * ONE.blocks)

    def test_the_advice_knows_what_can_be_saved(self, tmp_path: Path) -> None:
        analysis = study(tmp_path, [ONE], changes=[steps(ONE, one_batch_for_several_steps), of_a_script])
        advice = found(analysis, "input-bound")
        assert advice is not None
        assert "waits for data for 50.0 [50.0, 50.0] % of its step" in advice.finding
        assert evidence(advice)["Data wait per step"] == "10.0 [10.0, 10.0] ms"
        assert gain(advice) == "at most 2.00 [2.00, 2.00] times the samples/s"

    def test_the_long_steps_wait_for_data(self, tmp_path: Path) -> None:
        cell = made(tmp_path, ONE, one_batch_for_several_steps)
        summary = summarise(cell)
        assert summary is not None
        [warning] = recurring_warning(cell, summary)
        assert "every 4 steps one took 50.0 ms, most of the difference in waiting for data." in warning.message


class TestOneRankFetchesForAll:
    def test_the_others_wait_for_no_data(self, tmp_path: Path) -> None:
        cell = made(tmp_path, TWO, one_rank_fetches_for_all)
        summary = summarise(cell)
        assert summary is not None
        assert sum(summary.parts_s.values()) == pytest.approx(LONG_S)
        assert summary.parts_s["data_wait_s"] == pytest.approx(0.02)
        ranks = rank_parts(cell)
        assert ranks is not None
        assert [rank.parts_s["data_wait_s"] for rank in ranks.ranks] == pytest.approx([0.04, 0])
        assert [rank.step_s for rank in ranks.ranks] == pytest.approx([LONG_S, LONG_S])

    def test_a_forecast_takes_the_mean_of_all(self, tmp_path: Path) -> None:
        computing = beside_messages(made(tmp_path, TWO, one_rank_fetches_for_all))
        assert computing is not None
        assert computing.total_s == pytest.approx(LONG_S)


class TestUnknown:
    def test_what_no_timed_step_has_is_absent_and_not_0(self, tmp_path: Path) -> None:
        summary = summarise(made(tmp_path, ONE, one_batch_was_fetched_before))
        assert summary is not None
        assert "data_wait_s" not in summary.parts_s
        assert sum(summary.parts_s.values()) == pytest.approx(SHORT_S)

    def test_the_parts_of_a_step_with_messages_that_were_not_seen_stay_unknown(self, tmp_path: Path) -> None:
        cell = made(tmp_path, ONE, messages_of_the_first_step_were_not_seen)
        parts = cell.collect(with_parts(cell).filter(pl.col("step") == FIRST).select(TAKEN_APART))
        assert parts.row(0) == (None,) * len(TAKEN_APART)
        summary = summarise(cell)
        assert summary is not None
        assert summary.parts_s["data_wait_s"] == pytest.approx(0.04)
        assert sum(summary.parts_s.values()) == pytest.approx(LONG_S)
