"""A script of the user's own as the work of a rank: the loop asks for a step, and the script goes on until it has one.

What the script does between two optimizer steps is a step. How it is seen is told in metering/.
"""

import functools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.algorithms.join import Join

from worldsize.config import ScriptSettings
from worldsize.data.feeding_threads import FeedingThreads
from worldsize.data.ready import Ready
from worldsize.data.standing import ForkedLoaders, loaders_that_go_on
from worldsize.errors import UsageError, WorkerError
from worldsize.measure.alignment import Offset
from worldsize.measure.machine import allowed_cores
from worldsize.measure.timeline import Step, Timeline
from worldsize.metering.finding import Finder
from worldsize.metering.run_folder import WARMUP_STEPS, notices
from worldsize.metering.watch import Watch
from worldsize.ranks.heartbeat import beat
from worldsize.ranks.turns import Reply, Turn
from worldsize.ranks.workload import State, World
from worldsize.results.memory_records import MemoryParts
from worldsize.results.records import WarningRecord
from worldsize.scripts.gate import Gate


class ScriptStep(NamedTuple):
    """What a step of a script leaves, as a `StepResult` of the loop."""

    epoch: int
    samples: int
    interrupted: bool
    loss: Tensor | None = None
    right: Tensor | None = None


class ScriptWorkload:
    """A script that is held between its steps; `begin` comes first, then the steps."""

    def __init__(self, script: ScriptSettings, device: torch.device) -> None:
        self.script = script
        self.gate = Gate()
        self.watch = Watch(None, None, self._stepped, self._gave_up, by_optimizer=True, device=device)
        self.finder = Finder(self.watch)
        self.watch.patches.replace(Join, "_get_num_nonjoined_procs", self._joined(Join._get_num_nonjoined_procs))
        self.loaders = ForkedLoaders(self.finder.processes_of_loaders)
        self.feeding = FeedingThreads(lambda: self.thread, self.finder.waiting)
        """Sees within its context which threads of the script make its batches."""
        self.ready = Ready(self.feeding)
        self._process = os.getpid()
        self.steps = 0
        """Steps behind it, in this launch; the first one is part of the start."""
        self.thread = threading.main_thread()
        """In which the script makes its steps."""
        self._last = ScriptStep(0, 0, interrupted=False)
        self._world: World | None = None
        self._samples: Counter[int] = Counter()

    def begin(self, world: World) -> None:
        """It has made its first step, and this is the world that it works in."""
        self._world = world
        self._stand_still()
        self.ready.after(1, timed=False)

    @property
    def world(self) -> World:
        """As it is known once the script has made a step."""
        assert self._world is not None
        return self._world

    @property
    def timeline(self) -> Timeline:
        """Which the hooks mark."""
        return self.watch.timeline

    @property
    def samples(self) -> int:
        """Samples of this process in its last step."""
        return max(1, self.script.samples_per_step or self._last.samples)

    @property
    def usual_samples(self) -> int:
        """Those of most of its steps so far: a loader that is a batch ahead makes the first of them larger."""
        return self._samples.most_common(1)[0][0] if self._samples else self.samples

    @property
    def loader_processes(self) -> int:
        """Those of its largest DataLoader, or that it has forked by itself, which may make batches; or such threads."""
        return max(self.finder.loader_processes, self.loaders.most, self.ready.burst)

    @property
    def steps_per_epoch(self) -> int:
        """Unknown."""
        return 0

    @property
    def saves(self) -> bool:
        """What it saves is its own business."""
        return False

    def _stepped(self, step: Step, samples: int, epoch: int) -> None:
        """Called by the watch where the script has ended a step, in the thread of the script."""
        if os.getpid() != self._process:  # a process that the script has started itself, which is given no turns
            return
        self.thread = threading.current_thread()
        self.finder.stepped()
        self.feeding.stepped()
        if self.finder.steps <= WARMUP_STEPS:  # DDP agrees on its buckets in the second step, from C++
            self.watch.collectives.forget()
        self._last = ScriptStep(epoch, samples, self.watch.interrupted)
        beat()
        self.watch.collectives.active = False  # what the loop says to other ranks is no message of the script
        self.gate.arrive()
        self.watch.collectives.active = True

    def _gave_up(self, error: Exception) -> None:
        self.gate.fail(WorkerError(f"{self.script.name} could not be followed: {type(error).__name__}: {error}"))

    def _joined(self, original: Callable[[Join], Any]) -> Callable[[Join], Any]:
        """What torch's Join asks where the data of this rank has ended: how many ranks go on without it.

        It then makes the messages of their steps, and no step of its own: it would never be at the gate again.
        """

        @functools.wraps(original)
        def others(join: Join) -> Any:
            left = original(join)
            if left and not join._throw_on_early_termination:
                self.gate.fail(
                    UsageError(
                        f"the data of a rank of {self.script.name} ended before another's, and it waits in "
                        "torch's Join: a study times steps that all ranks make\n"
                        "End the loop of each rank after the same number of steps, or meter the loop in place of a "
                        "study (docs/own-training.md)."
                    )
                )
            return left

        return others

    def step(self, *, synchronise: bool = True) -> ScriptStep:
        """Let the script make its next step."""
        assert synchronise, "a script is never asked to train without synchronisation"
        self.gate.step()
        self.steps += 1
        self._samples[self.samples] += 1
        return self._last._replace(samples=self.samples)

    @contextmanager
    def awake(self, turn: Turn) -> Iterator[None]:
        """What makes batches stands still outside of a turn: processes that the script has forked, and threads."""
        self.go_on()
        try:
            yield
        finally:
            self._stand_still()

    def go_on(self) -> None:
        """Let them go on. They must, before they are asked to end."""
        self.loaders.go_on()
        self.feeding.go_on()

    def _stand_still(self) -> None:
        self.feeding.stand_still()
        self.loaders.stand_still()

    def rolled_back(self) -> nullcontext[None]:
        """Nothing is undone: no step of a script only measures."""
        return nullcontext()

    def uninstrumented(self) -> nullcontext[None]:
        """As it is."""
        return nullcontext()

    def other(self, turn: Turn, align: Callable[[], Offset]) -> Reply:
        """There is nothing else that it can do."""
        return Reply()

    def state(self) -> State:
        """Unknown."""
        raise NotImplementedError

    def restore(self, state: State) -> None:
        """It cannot be done here."""
        raise NotImplementedError

    def gradients(self) -> None:
        """They are not looked at."""

    def memory(self) -> MemoryParts | None:
        """What the memory is made of is unknown."""
        return None

    def close(self) -> None:
        """It ends with its process."""

    def warnings(self) -> list[WarningRecord]:
        """What a reader of its numbers must know."""
        watch, given = self.watch, self.script.samples_per_step
        why = "Calls from C++ are not seen."
        found = notices(watch, setting="--samples-per-step", given=given, unseen_because=why)
        if watch.further_optimizers:
            kinds = ", ".join(sorted({type(each).__name__ for each in watch.further_optimizers}))
            text = f"{len(watch.further_optimizers) + 1} optimizers stepped; a step is one of the first that did."
            found.append(WarningRecord(code="several-optimizers", message=f"{text} The others: {kinds}."))
        found += loaders_on_cores(self.finder.loader_processes)
        go_on = loaders_that_go_on(self.loaders.left_alone, self.feeding.shared)
        return [*found, *go_on, *self.ready.warnings()]


def loaders_on_cores(loaders: int) -> list[WarningRecord]:
    """Where loader processes share the cores of their worker beside cores that nothing uses."""
    cores, workers = len(allowed_cores()), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    idle = (os.cpu_count() or cores) - workers * cores
    if not loaders or idle <= 0:
        return []
    text = (
        f"Its {loaders} loader processes share the cores of their worker ({cores}), as they do at every world size; "
        f"cores left idle: {idle}. Run by itself it may be faster: --threads-per-worker gives it more cores."
    )
    return [WarningRecord(code="loaders-share-cores", message=text)]
