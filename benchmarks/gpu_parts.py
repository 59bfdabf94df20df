"""What `make gpu-check` asks of a GPU directly: that nothing waits for it, and that its clock and its copies are right.

The tests prove the same on a stand-in (tests/support/later.py); this asks a real device.
"""

import time
from collections.abc import Callable

import torch

from worldsize.measure.accelerator import Accelerator, accelerator_for, device_memory
from worldsize.measure.clocks import EVERY_NS, DeviceClock
from worldsize.measure.limits import matmul_flops_per_s, matmul_precision
from worldsize.training.carrier import Prefetcher

BUSY_STEPS = 20
SIZE = 4096


def check_parts(device: torch.device) -> dict[str, str | None]:
    """What is wrong with each part, by its name; None where it is right."""
    accelerator = accelerator_for(device)
    assert accelerator is not None
    checks: dict[str, Callable[[Accelerator], str | None]] = {
        "host goes on": _host_goes_on,
        "batches and losses": _batches_and_losses,
        "clock after bases": _clock,
        "yardsticks": _yardsticks,
        "memory": _memory,
    }
    return {name: check(accelerator) for name, check in checks.items()}


def _host_goes_on(accelerator: Accelerator) -> str | None:
    """Give the device long work, a batch and a loss to fetch: the host is back in half of its time."""
    carrier, work = Prefetcher(accelerator), _work(accelerator)
    loss = torch.zeros((), device=accelerator.device)
    batch = torch.randn(512, 3, 32, 32)
    for _ in range(8):  # pinned memory is asked for, kernels and libraries are loaded: 0.2 s on an H200
        work(1)
        carrier.bring(batch)
        carrier.used()
        carrier.fetch(loss)
    accelerator.synchronize()
    begin = time.perf_counter()
    work(BUSY_STEPS)
    carrier.bring(batch)
    carrier.used()
    carrier.fetch(loss)
    mark = accelerator.event()
    asked_s = time.perf_counter() - begin
    mark.synchronize()
    done_s = time.perf_counter() - begin
    return None if asked_s < done_s / 2 else f"the host took {asked_s:.3f} s of {done_s:.3f} s"


def _batches_and_losses(accelerator: Accelerator) -> str | None:
    """Batches and losses of 200 steps, each with work before it is read, against what they must be."""
    carrier, work = Prefetcher(accelerator), _work(accelerator)
    loss = torch.zeros((), device=accelerator.device)
    fetched, wrong = [], torch.zeros((), dtype=torch.int64, device=accelerator.device)
    for number in range(200):
        inputs, labels = carrier.bring(torch.full((256, 1024), float(number)), torch.full((256,), number))
        work(1)
        wrong += (inputs != number).sum() + (labels != number).sum()
        loss.fill_(number)
        carrier.used()
        fetched.append(carrier.fetch(loss)[0])
    accelerator.synchronize()
    if int(wrong):
        return f"{int(wrong)} numbers of batches were overwritten"
    losses = [float(each) for each in fetched]
    return None if losses == list(range(200)) else "losses are not those of their steps"


def _clock(accelerator: Accelerator) -> str | None:
    """Short stretches, timed before and after the clock has gone through some bases, are of the same length."""
    clock, work = DeviceClock(accelerator), _work(accelerator)
    marks = []
    work(BUSY_STEPS)  # a device that waits for the host puts the host's pauses between two marks: nothing is read yet
    until = time.perf_counter_ns() + 4 * EVERY_NS
    while time.perf_counter_ns() < until:
        begin, event = clock.mark(), accelerator.event()
        work(1)
        marks.append((begin, event, clock.mark(), accelerator.event()))
    accelerator.synchronize()
    lengths = [
        (clock.read(end) - clock.read(begin), event.elapsed_time(other) * 1e6) for begin, event, end, other in marks
    ]
    far = max(abs(ours - theirs) for ours, theirs in lengths)
    offset_ns, error_ns = clock.astray()
    if abs(offset_ns) > error_ns + 10**6:
        return f"the clock went astray by {offset_ns} ns in 4 s"
    return None if far < 50_000 else f"a stretch is {far:.0f} ns longer than the events beside it say"


def _yardsticks(accelerator: Accelerator) -> str | None:
    """bf16 is quicker than TF32, which is quicker than fp32, where the device has all three."""
    device = accelerator.device
    if matmul_precision(device, "fp32") != "tf32":
        return None
    fp32, tf32, bf16 = (matmul_flops_per_s(device, 0.5, each) for each in ("fp32", "tf32", "bf16"))
    return None if fp32 < tf32 < bf16 else f"fp32 {fp32:.3g}, tf32 {tf32:.3g}, bf16 {bf16:.3g} per second"


def _memory(accelerator: Accelerator) -> str | None:
    """The device tells what is free and reserved."""
    held = torch.empty(2**28, dtype=torch.uint8, device=accelerator.device)
    memory = device_memory(accelerator.device)
    if memory is None or memory.reserved_bytes < held.nbytes or memory.peak_reserved_bytes < memory.reserved_bytes:
        return f"reserved memory is not told: {memory}"
    return None


def _work(accelerator: Accelerator) -> Callable[[int], None]:
    """Work for the device: so many products of matrices."""
    a, b = torch.randn(2, SIZE, SIZE, device=accelerator.device)
    out = torch.empty_like(a)

    def work(count: int) -> None:
        for _ in range(count):
            torch.mm(a, b, out=out)

    return work
