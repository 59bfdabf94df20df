"""The collective benchmark with real processes."""

import os
import sys
import time
from pathlib import Path

import pytest
import torch

from worldsize.analysis.bandwidth import curve
from worldsize.analysis.collective_cost import IN_TURN, sizes_up_to
from worldsize.collectives import OPERATIONS
from worldsize.collectives.bench import Bench
from worldsize.config import CommSettings
from worldsize.errors import UsageError
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores, provenance
from worldsize.ranks.setup import Rank, process_group
from worldsize.ranks.turns import Reply, Turn
from worldsize.results.comm_records import CommSample
from worldsize.results.records import RankPlace
from worldsize.study.comm import Found, Silence, comm_record, run_comm
from worldsize.study.sampling import Case, Sampling

ALL = CommSettings().collectives


def test_sizes_grow_from_1_kib_to_the_top() -> None:
    assert sizes_up_to(20_000) == [1024, 4096, 16_384, 20_000]
    assert sizes_up_to(1024) == [1024]


def test_every_collective_is_timed_at_every_size_and_comes_out_right(tmp_path: Path) -> None:
    settings = CommSettings(world_size=3, top_bytes=100_000, samples=2, threads_per_worker=1)
    record = run_comm(settings, tmp_path, ["test"])
    assert {*ALL, IN_TURN} == set(OPERATIONS)
    assert len(record.ranks) == 3
    for name in ALL:
        points = curve(record, name)
        assert len(points) == len(sizes_up_to(100_000))
        assert all(point.wrong_elements == 0 for point in points)
        assert all(point.time_s.value > 0 and point.time_s.samples == 2 for point in points)
    (in_turn,) = curve(record, IN_TURN)
    assert (in_turn.size_bytes, in_turn.wrong_elements, in_turn.time_s.samples) == (1024, 0, 2)
    # S is cut to whole elements per rank where every rank holds a part of it.
    assert max(p.size_bytes for p in curve(record, "all-gather")) == 100_000 // 4 // 3 * 3 * 4


class Heard(Silence):
    """Keeps what it heard."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []

    def sampled(self, sampling: Sampling) -> None:
        samples = sum(len(known.kept) for known in sampling.known.values())
        self.told.append((sampling.rounds, samples))


@pytest.mark.quiet  # every size must have its turn within the budget
def test_a_budget_ends_the_benchmark_and_each_result_is_heard_as_it_comes(tmp_path: Path) -> None:
    settings = CommSettings(
        collectives=("all-reduce", "broadcast"), world_size=2, top_bytes=2**16, budget="4s", threads_per_worker=1
    )
    heard = Heard()
    begun_s = time.monotonic()
    record = run_comm(settings, tmp_path, ["test"], listener=heard)
    assert time.monotonic() - begun_s < 60, "it ended by its budget, not by its number of samples"
    assert "sizes-left-out" not in {warning.code for warning in record.warnings}
    for name in settings.collectives:
        points = curve(record, name)
        assert [point.size_bytes for point in points] == sizes_up_to(2**16)
        assert all(point.time_s.samples >= 1 and point.wrong_elements == 0 for point in points)
    assert heard.told == sorted(heard.told)
    assert heard.told[-1][1] == len(record.ranks[0])


def test_the_first_turn_of_a_size_is_checked_and_later_ones_may_be_many_calls() -> None:
    with process_group(
        Rank(rank=0, processes=1, local_rank=0),
        place(world_size=1, processes=1, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo"),
        torch.device("cpu"),
    ):
        bench = Bench(torch.device("cpu"))
        turn = Turn(op="collective", collective="all-reduce", size_bytes=4096, count=1)
        replies = [bench.do(turn.model_copy(update={"count": count})) for count in (1, 3)]
        assert bench.do(Turn(op="finish")).comm == []
    samples = [sample for reply in replies for sample in reply.comm]
    assert [sample.calls for sample in samples] == [1, 3]
    assert {sample.wrong_elements for sample in samples} == {0}
    assert all(sample.end_ns > sample.begin_ns for sample in samples)


def test_a_wrong_result_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support"), prepend=os.pathsep)
    # By module: `worldsize.study` is also the name of the library's function.
    monkeypatch.setattr(sys.modules["worldsize.study.comm"], "ENTRY", "broken_collective:enter")
    settings = CommSettings(collectives=("broadcast",), world_size=2, top_bytes=1024, samples=1)
    (point,) = curve(run_comm(settings, tmp_path, ["test"]), "broadcast")
    assert point.wrong_elements == 1


def test_one_worker_has_nobody_to_talk_to(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 2"):
        run_comm(CommSettings(world_size=1), tmp_path, ["test"])


@pytest.mark.parametrize("name", OPERATIONS)
def test_tensors_have_the_bytes_that_are_counted(name: str) -> None:
    """fp32, as method.md §5 says: a tensor of another type would make the link look faster or slower than it is."""
    with process_group(
        Rank(rank=0, processes=1, local_rank=0),
        place(world_size=1, processes=1, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo"),
        torch.device("cpu"),
    ):
        operation = OPERATIONS[name](4096, torch.device("cpu"))
        operation.fill()
    held = [value for value in vars(operation).values() if isinstance(value, torch.Tensor)]
    assert {tensor.dtype for tensor in held} == {torch.float32}
    assert max(tensor.nbytes for tensor in held) == operation.size_bytes == 4096


def test_sizes_without_time_are_told_and_so_are_few_samples() -> None:
    settings = CommSettings(collectives=("broadcast", "gather"), top_bytes=4096)
    sample = CommSample(
        collective="broadcast", size_bytes=1024, begin_ns=0, end_ns=5, clock_error_ns=0, calls=1, wrong_elements=0
    )
    absent = [Case("broadcast", 4096), Case("gather", 4096), Case("gather", 1024)]
    ready = Reply(place=RankPlace(host="here", cores=(0,)))
    cores = allowed_cores()
    placement = place(world_size=2, processes=2, threads_per_worker=1, cores=cores, gpus=0, backend="gloo")
    found = Found([ready, ready], [[sample, sample]], absent)
    left, few = comm_record(settings, found, placement, provenance(["test"])).warnings
    assert (left.code, few.code) == ("sizes-left-out", "few-samples")
    assert "broadcast from 4 KiB on, gather from 1 KiB on" in left.message
    assert "1 of 1 sizes" in few.message
    assert "a larger --budget" in left.message
    short = settings.model_copy(update={"samples": 3, "budget": "5s"})
    [only] = comm_record(short, found, placement, provenance(["test"])).warnings
    assert only.code == "sizes-left-out"
