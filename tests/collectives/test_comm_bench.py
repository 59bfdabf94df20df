"""The collective benchmark with real processes."""

import os
import sys
from pathlib import Path

import pytest
import torch

from worldsize.analysis.bandwidth import curve
from worldsize.collectives import OPERATIONS
from worldsize.config import CommSettings
from worldsize.errors import UsageError
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores
from worldsize.ranks.setup import Rank, process_group
from worldsize.study.comm import run_comm, sizes_up_to

ALL = CommSettings().collectives


def test_sizes_grow_from_1_kib_to_the_top() -> None:
    assert sizes_up_to(20_000) == [1024, 4096, 16_384, 20_000]
    assert sizes_up_to(1024) == [1024]


def test_every_collective_is_timed_at_every_size_and_comes_out_right(tmp_path: Path) -> None:
    settings = CommSettings(world_size=3, top_bytes=100_000, samples=2, threads_per_worker=1)
    record = run_comm(settings, tmp_path, ["test"])
    assert set(ALL) == set(OPERATIONS)
    assert len(record.ranks) == 3
    for name in ALL:
        points = curve(record, name)
        assert len(points) == len(sizes_up_to(100_000))
        assert all(point.wrong_elements == 0 for point in points)
        assert all(point.time_s.value > 0 and point.time_s.samples == 2 for point in points)
    # S is cut to whole elements per rank where every rank holds a part of it.
    assert max(p.size_bytes for p in curve(record, "all-gather")) == 100_000 // 4 // 3 * 3 * 4


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
