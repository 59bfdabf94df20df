"""The whole life of ranks, in real processes: what a study starts."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobs import start
from tiny import alone, tiny_settings
from worldsize.analysis.parts import with_parts
from worldsize.config import CellSettings
from worldsize.launch.local import LocalJob
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores
from worldsize.results.files import cell_folder
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord
from worldsize.training.evaluate import evaluate

TEST_SAMPLES = 360
STEPS = 6


@dataclass
class Two:
    """Two ranks that took some turns, and what they replied."""

    settings: CellSettings
    run: Path
    facts: list[Any]
    checks: list[Any]
    untrained: list[Any]
    steps: list[Any]
    trained: list[Any]
    paired: list[Any]
    profile: list[Any]
    after: list[Any]

    @property
    def cell(self) -> Cell:
        return Cell(cell_folder(self.run, self.settings.id), CellRecord.of(self.settings))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    run = tmp_path_factory.mktemp("run")
    settings = tiny_settings(run, strategy="all-reduce", world_size=2, batch_size=8, learning_rate=0.02)
    with contextlib.closing(started(run, settings)) as job:

        def take(**turn: Any) -> list[Any]:
            job.send(turn)
            return job.receive()

        yield Two(
            settings,
            run,
            facts=[reply["facts"] for reply in job.receive()],
            checks=[reply["check"] for reply in take(op="verify", count=1)],
            untrained=take(op="evaluate"),
            steps=take(op="steps", count=STEPS),
            trained=take(op="evaluate"),
            paired=take(op="steps", block=1, count=2, synchronise=False),
            profile=take(op="profile", count=2, warmup=1),
            after=take(op="evaluate"),
        )
        take(op="finish")


def started(run: Path, settings: CellSettings) -> LocalJob:
    placement = place(world_size=2, processes=2, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo")
    return start(
        "worldsize.training.rank:enter",
        2,
        cell_folder(run, settings.id) / "job",
        run=str(run),
        settings=settings.model_dump(mode="json"),
        placement=placement.model_dump(mode="json"),
        session=0,
    )


def test_every_rank_knows_the_same_facts(two: Two) -> None:
    assert [facts["steps_per_epoch"] for facts in two.facts] == [1437 // 16] * 2
    assert two.facts[0]["wire"] == two.facts[1]["wire"]
    assert two.facts[0]["wire"]["payload_bytes"] == two.facts[0]["wire"]["busiest_rank_bytes"]  # 2(N−1)/N = 1
    assert all(facts["matmul_flops_per_s"] > 0 for facts in two.facts)


def test_two_ranks_prove_that_they_train_as_one_before_they_do(two: Two) -> None:
    for found in two.checks:
        assert (found["gradients"], found["apart"]) == (None, None)
        assert found["largest"] < 1e-6
    assert len({found["samples"][0] for found in two.checks}) == 2, "each reads samples of its own"


def test_two_ranks_count_each_test_sample_once(two: Two) -> None:
    for replies in (two.untrained, two.trained, two.after):
        assert [reply["evaluation"]["test_samples"] for reply in replies] == [TEST_SAMPLES] * 2


def test_two_ranks_say_of_the_same_weights_what_one_says(two: Two) -> None:
    trainer, data = alone(two.settings.model_copy(update={"strategy": "data-parallel"}))
    first = evaluate(trainer, data, epoch=0)
    for _ in range(STEPS):
        trainer.step()
    last = evaluate(trainer, data, epoch=0)
    assert first is not None
    assert last is not None
    assert first.test_samples == last.test_samples == TEST_SAMPLES
    for alone_says, replies in ((first, two.untrained), (last, two.trained)):
        mine, other = (reply["evaluation"] for reply in replies)
        own = {"divergence": None, "order": None}  # each rank has averaged, and read, other samples
        assert {**mine, **own} == {**other, **own}
        assert mine["test_loss"] == pytest.approx(alone_says.test_loss, rel=1e-4)
        # Rounding may turn a sample or two that lie between two classes.
        assert mine["test_accuracy"] == pytest.approx(alone_says.test_accuracy, abs=2 / TEST_SAMPLES)
    assert last.test_accuracy > first.test_accuracy + 0.2


def test_steps_without_exchange_and_a_profile_leave_the_weights_as_they_were(two: Two) -> None:
    for before, after in zip(two.trained, two.after, strict=True):
        # The first evaluation has given every rank the BatchNorm statistics of rank 0.
        now, then = ({**reply["evaluation"], "divergence": None} for reply in (after, before))
        assert now == then


def test_the_samples_of_both_ranks_are_in_the_run_folder(two: Two) -> None:
    numbers = [(rank, step) for rank in range(2) for step in range(STEPS)]
    assert two.cell.steps.select("rank", "step").rows() == numbers
    assert two.cell.spans.select("rank", "step").rows() == numbers
    for rank, (exchanged, silent) in enumerate(zip(two.steps, two.paired, strict=True)):
        mine, paired = with_parts(two.cell).filter(rank=rank).collect(), two.cell.unsynchronised.filter(rank=rank)
        # What is replied is from end to end, with what a rank does between its steps; the first begins by itself.
        assert exchanged["step_s"][0] == mine["step_s"][0]
        assert all(told >= own for told, own in zip(exchanged["step_s"], mine["step_s"], strict=True))
        assert all(told >= own for told, own in zip(silent["step_s"], paired["step_s"], strict=True))
        assert min(mine["exposed_sync_s"]) > 0


def test_a_profile_knows_the_clocks_of_both_ranks(two: Two) -> None:
    records = [reply["profile"] for reply in two.profile]
    assert [reply["profile_problem"] for reply in two.profile] == [None, None]
    assert [(record["rank"], record["steps"]) for record in records] == [(0, 2), (1, 2)]
    # Processes of one boot share its clock.
    assert [(record["clock_offset_ns"], record["clock_error_ns"]) for record in records] == [(0, 0)] * 2
    assert all(record["zero_error_ns"] > 0 for record in records)
    # Both ranks are on one machine, whose monotonic clock and profiler's clock are the same for both.
    apart = abs(records[0]["zero_ns"] - records[1]["zero_ns"])
    assert apart <= sum(record["zero_error_ns"] for record in records)


def test_each_rank_trains_on_samples_of_its_own(two: Two) -> None:
    losses = [two.cell.steps.filter(rank=rank)["loss"].to_list() for rank in range(2)]
    assert all(mine != other for mine, other in zip(*losses, strict=True))
