"""What the worker could do at best."""

import psutil
import torch

from worldsize.measure.limits import matmul_flops_per_s, peak_memory_bytes

CPU = torch.device("cpu")


def test_the_matmul_rate_is_that_of_products_that_were_run() -> None:
    """A rate off by the usual slips (a factor of 1e9, seconds for operations) is outside of what cores can do."""
    rate = matmul_flops_per_s(CPU, seconds=0.0)
    assert 1e8 < rate < 1e14


def test_peak_memory_is_in_bytes_and_never_falls() -> None:
    before = peak_memory_bytes(CPU)
    assert before >= psutil.Process().memory_info().rss // 2  # the kernel rounds the two differently
    size = max(64 << 20, before - psutil.Process().memory_info().rss + (64 << 20))
    block = torch.ones(size, dtype=torch.uint8)
    grown = peak_memory_bytes(CPU)
    assert grown >= before + (16 << 20)
    del block
    assert peak_memory_bytes(CPU) >= grown
