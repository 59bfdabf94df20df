"""What the worker could do at best."""

import json
import subprocess
import sys

import pytest
import torch

from worldsize.config import Precision
from worldsize.measure.limits import MatmulPrecision, matmul_flops_per_s, matmul_precision

MIB = 2**20
GROW = """
import json, psutil, torch
from worldsize.measure.limits import peak_memory_bytes
cpu = torch.device("cpu")
resident, before = psutil.Process().memory_info().rss, peak_memory_bytes(cpu)
block = torch.ones(200 << 20, dtype=torch.uint8)
grown = peak_memory_bytes(cpu)
del block
print(json.dumps([resident, before, grown, peak_memory_bytes(cpu)]))
"""
LARGE_PARENT = """
import subprocess, sys
ballast = b"x" * (1000 << 20)
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""


def test_the_matmul_rate_is_that_of_products_that_were_run() -> None:
    """A rate off by the usual slips (a factor of 1e9, seconds for operations) is outside of what cores can do."""
    rate = matmul_flops_per_s(torch.device("cpu"), seconds=0.0)
    assert 1e8 < rate < 1e14


def test_peak_memory_is_that_of_the_process_alone_and_stays() -> None:
    """Not that of the process that started it, which the kernel hands down with some of its counts."""
    command = [sys.executable, "-c", LARGE_PARENT, GROW]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    resident, before, grown, freed = json.loads(done.stdout)
    assert 0.9 * resident < before < 900 * MIB
    assert resident + 190 * MIB < grown < before + 210 * MIB
    assert abs(freed - grown) < MIB  # the kernel counts in batches


UP_TO_THE_LIMIT = """
import json, sys, torch
from worldsize.measure.limits import begin_to_count_memory, peak_memory_bytes
from worldsize.ranks.memory import is_out_of_memory, limit_memory
torch.set_num_threads(1)
before = torch.ones(300 << 20, dtype=torch.uint8)  # what was there when the work began
begin_to_count_memory()
limit_memory(int(sys.argv[1]))
kept = []
try:
    while True:
        kept.append(torch.ones(4 << 20, dtype=torch.uint8))
except (RuntimeError, MemoryError) as error:
    assert is_out_of_memory(error), error
print(json.dumps([len(kept) * 4 << 20, peak_memory_bytes(torch.device("cpu"))]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is Linux's")
@pytest.mark.parametrize("limit", [200 * MIB, 600 * MIB])
def test_the_limit_and_the_printed_peak_are_one_quantity(limit: int) -> None:
    """Memory is taken until the limit ends it: the peak is then the limit, whatever was there before the work began."""
    done = subprocess.run(
        [sys.executable, "-c", UP_TO_THE_LIMIT, str(limit)], capture_output=True, text=True, check=True
    )
    taken, peak = json.loads(done.stdout)
    assert taken > 0.9 * limit
    assert 0.95 * limit < peak <= 1.01 * limit


GPU = torch.device("cuda", 0)


@pytest.fixture
def ampere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.version, "hip", None, raising=False)


@pytest.mark.usefixtures("ampere")
def test_the_yardstick_is_of_the_arithmetic_that_steps_may_compute_in(monkeypatch: pytest.MonkeyPatch) -> None:
    assert matmul_precision(GPU, "bf16") == "bf16"
    assert matmul_precision(GPU, "fp32") == "tf32", "torch lets convolutions use it unless told otherwise"
    with torch.backends.cudnn.flags(allow_tf32=False):
        assert matmul_precision(GPU, "fp32") == "fp32"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    assert matmul_precision(GPU, "fp32") == "fp32", "the hardware cannot"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_cpu_the_yardstick_is_fp32(precision: Precision) -> None:
    assert matmul_precision(torch.device("cpu"), precision) == "fp32"


@pytest.mark.parametrize(
    ("precision", "dtype", "allowed"),
    [("fp32", torch.float32, False), ("tf32", torch.float32, True), ("bf16", torch.bfloat16, False)],
)
def test_the_matmul_rate_is_taken_in_the_arithmetic_it_is_named_after(
    monkeypatch: pytest.MonkeyPatch, precision: MatmulPrecision, dtype: torch.dtype, allowed: bool
) -> None:
    seen = set()
    product = torch.mm

    def mm(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        seen.add((a.dtype, b.dtype, out.dtype, torch.backends.cuda.matmul.fp32_precision == "tf32"))
        return product(a[:8, :8], b[:8, :8]) if dtype is torch.bfloat16 else product(a, b, out=out)

    monkeypatch.setattr(torch, "mm", mm)
    before = torch.backends.cuda.matmul.allow_tf32
    matmul_flops_per_s(torch.device("cpu"), 0.0, precision)
    assert seen == {(dtype, dtype, dtype, allowed)}
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_the_rate_draws_nothing_from_the_random_state_of_training() -> None:
    """A cell that is launched again does not measure it, and must draw the same dropout as before."""
    before = torch.get_rng_state()
    assert matmul_flops_per_s(torch.device("cpu"), 0.001) > 0
    assert torch.equal(torch.get_rng_state(), before)
