"""A short loop: in turn as it is, with a meter, with the hook of a study, and with torch.profiler (FOLDER BLOCKS).

The last one in one process.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

import worldsize
from worldsize.hook.program import Program

STEPS = 1500
JOINED_STEPS = 300
"""Steps with collectives, which take most of the time."""
FIRST = 10
"""Steps that are not timed: in them the folder is opened and the hooks are hung, once a run."""
MESSAGES = 20
"""All-reduces of a step in a process group, of 1 KiB."""


class Loop:
    """A step of about a millisecond: batches from a list, a small network, Adam."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.joined = dist.is_initialized()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.batches = [torch.randn(32, 64) for _ in range(JOINED_STEPS if self.joined else STEPS)]
        self.message = torch.zeros(256)
        self.runs = 0

    def _steps(self, batches: object, after: Callable[[], None]) -> float:
        """When the first steps were over."""
        begin = 0.0
        for number, batch in enumerate(batches):  # type: ignore[var-annotated, arg-type] # a list, or the meter's
            begin = begin or (time.perf_counter() if number == FIRST else 0.0)
            self._step(batch)
            after()
        return begin

    def _per_step(self, begin: float) -> float:
        """Seconds a step, from then to now."""
        return (time.perf_counter() - begin) / (len(self.batches) - FIRST)

    def _step(self, batch: torch.Tensor) -> None:
        self.model(batch).square().mean().backward()
        if self.joined:
            for _ in range(MESSAGES):
                dist.all_reduce(self.message)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def bare(self) -> float:
        """Seconds a step as it is."""
        return self._per_step(self._steps(self.batches, lambda: None))

    def meter(self) -> float:
        """The same with a meter; what it writes at the end counts."""
        self.runs += 1
        meter = worldsize.meter(self.model, self.optimizer, out=self.folder / f"run{self.runs}")
        begin = self._steps(meter(self.batches), lambda: None)
        meter.close()
        return self._per_step(begin)

    def hook(self) -> float:
        """The same watched as a command of a study is: by the hook in it, which writes its marks."""
        self.runs += 1
        folder = self.folder / f"run{self.runs}"
        folder.mkdir()
        program = Program(str(folder))
        found = self._per_step(self._steps(self.batches, lambda: None))
        program.watch.close()
        program._stream.close()  # what no program needs, which ends with its hook
        return found

    def traceml(self) -> float:
        """The same with TraceML's context around each step, which needs its launcher."""
        traceml = importlib.import_module("traceml_ai")
        begin = 0.0
        for number, batch in enumerate(self.batches):
            begin = begin or (time.perf_counter() if number == FIRST else 0.0)
            with traceml.trace_step(self.model):
                self._step(batch)
        return self._per_step(begin)

    def profiler(self) -> float:
        """The same with torch's profiler, active in 5 of 100 steps; what it makes of them does not count."""
        plan = schedule(wait=90, warmup=5, active=5)
        with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
            return self._per_step(self._steps(self.batches, profiler.step))


def main() -> None:
    """Write the seconds a step of each variant, block by block."""
    folder, blocks = Path(sys.argv[1]), int(sys.argv[2])
    traced = "TRACEML" in sys.argv[3:]
    if traced:
        importlib.import_module("traceml_ai").init(mode="auto")
    torch.set_num_threads(1)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
    loop = Loop(folder)
    variants = {"bare": loop.bare}
    variants |= {"traceml": loop.traceml} if traced else {"meter": loop.meter, "hook": loop.hook}
    if not loop.joined and not traced:
        variants |= {"profiler": loop.profiler}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for block in range(-1, blocks):  # the first warms everything up
        for name, variant in variants.items():
            found = variant()
            if block >= 0:
                seconds[name].append(found)
    if not loop.joined or dist.get_rank() == 0:
        (folder / "seconds.json").write_text(json.dumps({**seconds, "messages": MESSAGES}))


if __name__ == "__main__":
    main()
