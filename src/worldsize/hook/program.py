"""A program that is watched from outside: its marks in a file, and what is known of it beside that."""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from .finding import Finder
from .marks import ASK, ONE_FILE
from .stream import Stream
from .waiting import tell
from .watch import Watch

WARMUP_STEPS = 3
"""First steps of which it does not count what was not seen: DDP agrees on its buckets in the second, from C++."""
TOLD_STEPS = (1, WARMUP_STEPS + 1)
"""After these steps it tells what is known of it; later once in TELL_S, for a file that is replaced takes 4 ms."""
TELL_S = 10.0
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
"""How launchers tell a process its rank, and how many there are."""


def watch_program(folder: str) -> None:
    """Watch this process from now on; its files are made with its first step."""
    Program(folder)


class Program:
    """What is watched of this process; a process that it forks is not watched."""

    def __init__(self, folder: str) -> None:
        self._folder, self._process = folder, os.getpid()
        self._stacks = open(self._path(f"stack.{self._process}"), "w")  # noqa: SIM115 - open as long as the process is
        faulthandler.register(ASK, file=self._stacks, all_threads=False)
        self._stream = Stream()
        self._tell_s = float("inf")
        self.watch = Watch(None, None, self._stepped, self._gave_up, self._stream, by_optimizer=True)
        self.finder = Finder(self.watch)
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._at_exit)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _stepped(self, samples: int, epoch: int) -> None:
        watch = self.watch
        steps = self.finder.stepped()
        if steps <= WARMUP_STEPS:
            watch.collectives.forget()
            watch.unseen = 0
            if steps == 1:
                self._open()
        self._stream.stepped(steps, samples, watch.unseen, interrupted=watch.interrupted)
        if time.monotonic() > self._tell_s or steps in TOLD_STEPS:
            self._write_facts()
            self._tell_s = time.monotonic() + TELL_S

    def _open(self) -> None:
        """Open the file of this rank, as it is known now that a step was made."""
        self.rank, self.world_size = _place()
        self._stream.open(self._path(ONE_FILE.format(rank=self.rank, pid=self._process) + ".marks"))

    def _write_facts(self) -> None:
        """Write what is known of this rank by now; whole or not at all."""
        name = self._path(ONE_FILE.format(rank=self.rank, pid=self._process) + ".json")
        with open(f"{name}.new", "w", encoding="utf-8") as file:
            json.dump(self._facts(), file)
        os.replace(f"{name}.new", name)

    def _facts(self) -> dict[str, Any]:
        watch, finder = self.watch, self.finder
        model = finder.wrappers[0] if finder.wrappers else (finder.models[0] if finder.models else None)
        optimizer = watch.optimizer
        groups = [] if optimizer is None else optimizer.param_groups
        first = next((each for group in groups for each in group["params"]), None)
        return {
            "pid": self._process,
            "rank": self.rank,
            "world_size": self.world_size,
            "joined": dist.get_world_size() if _joined() else 0,
            "samples": watch.samples,
            "workers_of_process": max(1, len(model.device_ids)) if isinstance(model, DataParallel) else 1,
            "host": socket.gethostname(),
            "cores": sorted(os.sched_getaffinity(0)),
            "threads": torch.get_num_threads(),
            "modules": dict(_own_modules()),
            "device": "cpu" if first is None else first.device.type,
            "synchronises": _synchronises(model, self.world_size),
            "samples_from": watch.samples_from,
            "seen": watch.collectives.seen,
            "unseen": watch.collectives.unseen,
            "further_optimizers": sorted({type(each).__name__ for each in watch.further_optimizers}),
            "optimizers": 1 + len(watch.further_optimizers),
        }

    def _gave_up(self, error: Exception) -> None:
        """Something went wrong in us: the program goes on, and the study is told."""
        tell(self._folder, error)
        try:
            self.watch.close()
        except Exception as second:
            tell(self._folder, second)

    def _forget(self) -> None:
        """A process that was forked is no rank."""
        self._stream.close()
        self.watch.broken = True
        self.watch.collectives.active = False

    def _at_exit(self) -> None:
        if os.getpid() != self._process or not self.finder.steps:
            return
        try:
            self._write_facts()
            self._stream.close()
        except Exception as error:  # such as a folder that is gone: nothing of us is said at the program's end
            tell(self._folder, error)


def _own_modules() -> Iterator[tuple[str, str]]:
    """What was imported from outside of Python and its packages: name and file."""
    installed = (sys.prefix, sys.base_prefix, os.path.dirname(__file__), os.path.dirname(os.__file__))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and isinstance(file, str) and not os.path.abspath(file).startswith(installed):
            yield name, os.path.abspath(file)


def _joined() -> bool:
    return dist.is_available() and dist.is_initialized()


def _place() -> tuple[int, int]:
    """This process among those that train together: of the process group, or as its launcher says."""
    if _joined():
        return dist.get_rank(), dist.get_world_size()
    for rank, size in zip(RANKS, SIZES):  # noqa: B905 - of Python 3.9 as well
        if os.environ.get(rank, "").isdigit() and os.environ.get(size, "").isdigit():
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def _synchronises(model: nn.Module | None, world_size: int) -> str:
    """What is seen of how gradients are synchronised: nothing, ddp, fsdp2, data-parallel or custom."""
    if isinstance(model, DataParallel) and (world_size > 1 or len(model.device_ids) > 1):
        return "data-parallel"
    if world_size == 1:
        return "nothing"
    if isinstance(model, DistributedDataParallel):
        return "ddp"
    return "fsdp2" if any(kind.__name__ == "FSDPModule" for kind in type(model).__mro__) else "custom"
