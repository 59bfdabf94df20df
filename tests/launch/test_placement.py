"""Which cores each worker gets."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldsize.launch.placement import default_threads, place
from worldsize.results.records import Placement


def placed(world_size: int, threads: int, cores: tuple[int, ...]) -> Placement:
    return place(
        world_size=world_size, processes=world_size, threads_per_worker=threads, cores=cores, gpus=0, backend="auto"
    )


CORES = st.lists(st.integers(0, 255), min_size=1, max_size=16, unique=True).map(tuple)


def test_each_worker_has_cores_of_its_own() -> None:
    placement = placed(2, 2, (0, 2, 4, 6, 8))
    assert placement.cores == ((0, 2), (4, 6))
    assert not placement.oversubscribed


def test_more_threads_than_cores_go_round_and_say_so() -> None:
    placement = placed(3, 1, (4, 5))
    assert placement.cores == ((4,), (5,), (4,))
    assert placement.oversubscribed


@given(st.integers(1, 16), st.integers(1, 8), CORES)
def test_any_world_is_placed_fairly(world_size: int, threads: int, cores: tuple[int, ...]) -> None:
    placement = placed(world_size, threads, cores)
    used = Counter(core for own in placement.cores for core in own)
    assert placement.threads_per_worker == threads
    assert [len(own) for own in placement.cores] == [threads] * world_size  # the same for every worker
    assert set(used) <= set(cores)
    assert placement.oversubscribed == (max(used.values()) > 1)
    # Round robin: no core has two threads more than another.
    assert max(used.values()) - min(used[core] for core in cores) <= 1


@pytest.mark.parametrize(
    ("gpus", "asked", "device", "backend"),
    [
        (0, "auto", "cpu", "gloo"),
        (2, "auto", "cuda", "nccl"),
        (2, "gloo", "cpu", "gloo"),
        (2, "nccl", "cuda", "nccl"),
    ],
)
def test_the_backend_decides_on_the_device(gpus: int, asked: str, device: str, backend: str) -> None:
    placement = place(world_size=1, processes=1, threads_per_worker=1, cores=(0,), gpus=gpus, backend=asked)
    assert (placement.device, placement.backend) == (device, backend)


@pytest.mark.parametrize(("cores", "world", "threads"), [(8, 2, 4), (8, 3, 2), (2, 4, 1), (1, 1, 1)])
def test_the_largest_world_shares_the_cores(cores: int, world: int, threads: int) -> None:
    assert default_threads(cores, world) == threads
