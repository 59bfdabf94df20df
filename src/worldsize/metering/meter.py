"""`worldsize.meter`: three lines in a script of one's own, and its run folder is like any other.

Off unless asked. Nothing that goes wrong here ends a training: the first trouble is a warning, and ends the metering.
"""

import atexit
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

from worldsize.errors import OutputError
from worldsize.hook.watch import Watch
from worldsize.measure.clocks import clock_for
from worldsize.measure.timeline import Timeline
from worldsize.metering.run_folder import MAX_STEPS, WARMUP_STEPS, RunFolder, World, notices
from worldsize.results.records import WarningRecord
from worldsize.traits import BASELINE_STRATEGY, TraitsRecord

VARIABLE = "WORLDSIZE_METER"
"""Names the run folder; without it, and without `out`, nothing is metered."""
CUSTOM = "custom"
"""The strategy of a loop that synchronises by itself."""
SHARDED = "fsdp2"
REST_S = 0.2
"""Of several workers, before Python ends. 50 ms were too short once, where four such processes shared two cores."""

Batch = TypeVar("Batch")


class Meter:
    """Meters one training loop: `for batch in meter(loader)`, or `with meter.step()` around each step, or neither.

    With neither, a step ends with the optimizer's. Batches pass unchanged. Source: method.md §13.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: Optimizer | None = None,
        *,
        out: Path | str | None = None,
        samples_per_step: int | None = None,
    ) -> None:
        place = out or os.environ.get(VARIABLE)
        self._out = Path(place).absolute() if place else None  # a script may go to another folder
        self._samples_per_step = samples_per_step
        self._folder: RunFolder | None = None
        self._watch: Watch | None = None
        self._model = model
        self._full = False
        self._process = os.getpid()
        if self._out is not None:
            try:
                device = next((each.device for each in model.parameters()), None) if model is not None else None
                self._timeline = Timeline(clock_for(device or torch.device("cpu")))
                self._watch = Watch(model, optimizer, self._finished, self._gave_up, self._timeline)
            except Exception as error:
                self._gave_up(error)
            else:
                atexit.register(self._at_exit)

    @property
    def _forked(self) -> bool:
        """Whether this is a process that the loop has forked, as to save in the background: it writes nothing."""
        return os.getpid() != self._process

    @property
    def on(self) -> bool:
        """Whether anything is metered now."""
        return self._watch is not None

    def __call__(self, loader: Iterable[Batch]) -> "Iterable[Batch]":
        """The same batches; waiting for each of them is seen."""
        return loader if self._watch is None else Fed(loader, self)

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step, for a loop without a loader; the time between two is in the step time, and in no part of it."""
        watch = self._watch
        if watch is not None:
            watch.begin()
        try:
            yield
        finally:
            if watch is not None:
                watch.end()

    def close(self) -> None:
        """Write what is left, and take every hook off; it happens by itself when the process ends."""
        watch, self._watch = self._watch, None
        if watch is None or self._forked:
            return
        atexit.unregister(self._at_exit)
        try:
            watch.close()
            if self._folder is not None:
                self._folder.close(self._warnings(watch))
            else:
                _tell(f"no step of an optimizer was seen; nothing is in {self._out}")
        except Exception as error:
            warn_of(error)

    def _at_exit(self) -> None:
        if self._forked:
            return
        self.close()
        if World.found().workers > 1 or int(os.environ.get("WORLD_SIZE", 1)) > 1:
            # gloo's threads let go of tensors that Python knows; one that does so while Python ends aborts the process,
            # in 7 of 120 loops over DDP without a meter. After a rest of 50 ms, in 0 of 50.
            time.sleep(REST_S)

    def pause(self) -> None:
        """What the loop does now, until it asks for its next batch, is no part of a step: an evaluation, say."""
        if self._watch is not None:
            self._watch.pause()
        self._next_block()

    def fetching(self) -> None:
        """The loop asks for a batch; for a loop whose loader cannot be wrapped. See also `fetched` and `fed_out`."""
        if self._watch is not None:
            self._watch.fetching()

    def fetched(self, batch: object = None) -> None:
        """The batch is there; without it, its samples are counted when the model takes them."""
        if self._watch is not None:
            self._watch.fetched(batch)

    def fed_out(self) -> None:
        """There are no more batches: an epoch is over, and what comes now is no part of a step."""
        if self._watch is not None:
            self._watch.fed_out()
        self._next_block()

    def forward(self, batch: object) -> None:
        """The loss of this batch is about to be computed; for a loop that may do so without calling the model."""
        if self._watch is not None:
            self._watch.forward(batch)

    def replace(self, owner: object, name: str, replacement: object) -> None:
        """Replace an attribute of somebody else's until the metering ends."""
        if self._watch is not None:
            self._watch.patches.replace(owner, name, replacement)

    def _next_block(self) -> None:
        try:
            if self._folder is not None:
                self._folder.next_block()
        except Exception as error:
            self._gave_up(error)

    def _finished(self, samples: int, epoch: int) -> None:
        assert self._watch is not None
        step = self._timeline.take()
        if self._forked:
            return
        if self._folder is None:
            self._folder = self._opened()
        if self._folder.full:
            self._full, self._timeline.watching = True, False
            return
        if self._folder.steps <= WARMUP_STEPS:  # DDP agrees on its buckets in the second step, from C++
            self._watch.collectives.forget()
        timed = not self._watch.interrupted
        self._folder.add(step, self._samples_per_step or samples, epoch, time.perf_counter_ns(), timed=timed)

    def _opened(self) -> RunFolder:
        assert self._out is not None
        world = World.found(replicas_of(self._model))
        strategy, traits = strategy_of(self._model, world.workers)
        return RunFolder(self._out, world, self._timeline.clock, strategy, traits)

    def _warnings(self, watch: Watch) -> list[WarningRecord]:
        why = "A communication hook of DDP must be registered after the meter; calls from C++ are not seen."
        found = notices(watch, setting="samples_per_step", given=self._samples_per_step, unseen_because=why)
        if self._full:
            found.append(WarningRecord(code="cut-short", message=f"Only the first {MAX_STEPS:,} steps were metered."))
        return found

    def _gave_up(self, error: Exception) -> None:
        """Close what was measured so far, which says why it ends there."""
        watch, self._watch = self._watch, None
        folder, self._folder = self._folder, None
        with suppress(Exception):
            if watch is not None:
                watch.close()
        with suppress(Exception):  # such as the full disk that was the error
            if folder is not None:
                folder.close([WarningRecord(code="cut-short", message=f"Metering ended: {reason_of(error)}.")])
        warn_of(error)


class Fed(Generic[Batch]):
    """A loader whose batches pass through a meter; all else of it is as it was."""

    def __init__(self, loader: Iterable[Batch], meter: Meter) -> None:
        self._loader, self._meter = loader, meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type] # where it has none, it says so itself

    def __iter__(self) -> Iterator[Batch]:
        batches = iter(self._loader)
        while True:
            self._meter.fetching()
            try:
                batch = next(batches)
            except StopIteration:
                self._meter.fed_out()
                return
            self._meter.fetched(batch)
            try:
                yield batch
            except GeneratorExit:  # the loop was left by a break, or by an exception
                self._meter.fed_out()
                raise


def strategy_of(model: nn.Module | None, workers: int) -> tuple[str, TraitsRecord | None]:
    """What a study would call the way in which these gradients are synchronised, and the traits of an own one."""
    if workers == 1:
        return BASELINE_STRATEGY, None
    if isinstance(model, DistributedDataParallel):
        return "ddp", None
    if model is not None and replicas_of(model) > 1:
        return "data-parallel", None
    if any(kind.__name__ == "FSDPModule" for kind in type(model).__mro__):
        return SHARDED, TraitsRecord(collectives=("all-gather", "reduce-scatter"), overlaps=True)
    return CUSTOM, TraitsRecord(collectives=("all-reduce",))


def warn_of(error: Exception) -> None:
    """Say that something went wrong in us, and that the training goes on."""
    _tell(f"metering ended, training goes on: {reason_of(error)}")


def reason_of(error: Exception) -> str:
    """What went wrong: the message of our own errors, type and message of any other."""
    return str(error) if isinstance(error, OutputError) else f"{type(error).__name__}: {error}"


def _tell(text: str) -> None:
    with suppress(Warning):  # `python -W error` makes exceptions of them, and none of ours may end a training
        warnings.warn(f"worldsize: {text}", stacklevel=4)


def replicas_of(model: nn.Module | None) -> int:
    """Workers that one process drives: those of a DataParallel."""
    return max(1, len(model.device_ids)) if isinstance(model, DataParallel) else 1
