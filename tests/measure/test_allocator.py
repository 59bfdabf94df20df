"""The heap of a worker: what comes and goes must not leave holes (measure/allocator.py)."""

import os
import platform
import subprocess
import sys

import pytest

from worldsize.launch.environment import quick_environment
from worldsize.measure import allocator

TENSORS, SIZE_MIB, STEPS = 4, 8, 40
PEAK = f"""
import torch
from worldsize.measure.allocator import keep_freed_memory
from worldsize.measure.limits import begin_to_count_memory, forget_peak, peak_memory_bytes

assert keep_freed_memory()
torch.set_num_threads(1)
torch.ones(1024).sum()
begin_to_count_memory()
forget_peak(torch.device("cpu"))
for step in range({STEPS}):
    large, small = [], []
    for number in range({TENSORS}):
        large.append(torch.ones({SIZE_MIB} * 2**18))
        small += [torch.ones(1 + (7 * step + 13 * number + each) % 24) for each in range(6)]
    del large
print(peak_memory_bytes(torch.device("cpu")))
"""


def peak_mib(environment: dict[str, str]) -> float:
    """Of a process in which some tensors come and go, the small ones a little later than the large ones."""
    found = subprocess.run([sys.executable, "-c", PEAK], env=environment, check=True, capture_output=True, text=True)
    return float(found.stdout) / 2**20


@pytest.mark.skipif(allocator.set_by_user(), reason="you have set how glibc allocates")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this C library has no mallopt")
@pytest.mark.skipif(allocator.find_tcmalloc() is not None, reason="workers preload tcmalloc here")
def test_tensors_that_come_and_go_take_the_places_of_those_before() -> None:
    environment = {**os.environ, **quick_environment()}
    assert TENSORS * SIZE_MIB <= peak_mib(environment) < 2 * TENSORS * SIZE_MIB


@pytest.mark.parametrize(
    "theirs",
    [{"MALLOC_ARENA_MAX": "1"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}],
    ids=lambda each: next(iter(each)),
)
def test_what_a_user_sets_wins(theirs: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    assert allocator.TUNABLES not in quick_environment()
    assert not allocator.keep_freed_memory()


def test_other_tunables_of_a_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(allocator.TUNABLES, "glibc.cpu.x86_ibt=off")
    assert allocator.TUNABLES not in quick_environment()
    assert not allocator.set_by_user()
