"""What the worker could do at best."""

import json
import subprocess
import sys

import pytest
import torch

from worldsize.measure.limits import matmul_flops_per_s

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
