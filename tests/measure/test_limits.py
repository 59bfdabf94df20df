"""What the worker could do at best."""

import json
import subprocess
import sys

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
