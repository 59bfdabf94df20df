"""One rank trains: the model, its strategy, its data and its optimizer, one step at a time."""

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from worldsize.config import CellSettings
from worldsize.measure.accelerator import kept_random_state, wait_for
from worldsize.measure.limits import memory_in_use_bytes
from worldsize.measure.timeline import Phase, Timeline
from worldsize.ranks.heartbeat import beat
from worldsize.results.comm_records import AllReduceCost
from worldsize.strategies import Strategy, World, find_strategy
from worldsize.strategies.shards import local
from worldsize.strategies.unused import plain_message
from worldsize.training.bucket_plan import with_planned_buckets
from worldsize.training.carrier import brought, carrier_for, on_device
from worldsize.training.gradients import GradientWatch
from worldsize.training.recipe import change_weights, learning_rate
from worldsize.training.stream import SeenOrder, endless
from worldsize.training.task import Batch, Source, Task
from worldsize.wire import Sizes

if TYPE_CHECKING:
    from worldsize.training.compiled import Compiled

STRETCHES = {
    Phase.DATA_WAIT: "data_wait",
    Phase.COPY: "copy",
    Phase.FORWARD: "forward",
    Phase.SYNCHRONISE: "other",
    Phase.OPTIMIZER: "optimizer",
}
"""Names of what lies between two marks, in a step of several micro-batches (Timeline.stretch)."""


class TrainedStep(NamedTuple):
    """What a step of training leaves, as a `StepResult` of the loop."""

    epoch: int
    samples: int
    """Samples of this process."""
    loss: Any
    """Their mean loss, a tensor; None of a task that has none."""
    right: Tensor | None
    """How many of them were classified right; None where nothing is classified."""
    interrupted: bool = False
    """Whether torch compiled in it."""


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the elements of all tensors on this rank; of a sparse one, of its values and indices."""
    here = map(local, tensors)
    dense = (part for each in here for part in ((each._values(), each._indices()) if each.is_sparse else (each,)))
    return sum(part.numel() * part.element_size() for part in dense)


def _compiled_calls(strategy: Strategy) -> "Compiled":
    """Those of the model of a strategy; the compiler is only loaded where something is compiled."""
    from worldsize.training.compiled import Compiled

    return Compiled(strategy.to_compile(), strategy.pieces_bytes)


class Trainer:
    """Everything that one rank needs to run a step. Raises UsageError for settings that do not fit the task.

    `prepare` is given the model before the strategy is.
    """

    def __init__(
        self,
        settings: CellSettings,
        task: Task,
        world: World,
        timeline: Timeline,
        link: AllReduceCost | None = None,
        prepare: Callable[[nn.Module], nn.Module] = lambda model: model,
    ) -> None:
        self.settings, self.task = settings, task
        self.timeline = timeline
        self.device = world.device
        self.samples = settings.global_batch // world.channel.world_size
        """Of this process in a step."""
        model = prepare(task.put(task.model(settings.seed), self.device))
        self.world = world = self._with_buckets(world, model, link)
        self.built_bytes = memory_in_use_bytes(self.device)
        """In use when the model was there, and nothing that trains it."""
        self.gradient_bytes: int | None = None
        """Of the gradients after the first backward."""
        self.strategy: Strategy = find_strategy(settings.strategy)(world)
        self.model: nn.Module = self.strategy.wrap(model).train()
        if "initial-weights" in settings.leave_out:
            self._forget_agreement(model)
        self.compiled = _compiled_calls(self.strategy) if settings.compile else None
        timeline.watch_parameters(self.strategy.hooked_parameters())
        self.gradients = GradientWatch(self.strategy.hooked_parameters(), timeline)
        self.alone = world.world_size == 1
        self.optimizer = task.optimizer(model)
        self.batches = self._batches()
        self.seen = SeenOrder()
        self.stream = self._training_stream(0)
        self.spare_stream = None if self.batches.works_ahead else endless(self._batches())
        """Data of steps that only measure (workload.py); None where these read on in the data of training."""
        self.carrier = carrier_for(self.device)
        self.steps = 0

    def _batches(self) -> Source:
        return self.task.batches(self.world.channel.rank, self.world.channel.world_size)

    def _training_stream(self, steps: int) -> Generator[tuple[int, Batch]]:
        """The batches of training after these steps; their order is noted."""
        for epoch, batch in endless(self.batches, steps):
            order = self.task.order(batch)
            if order is not None:
                self.seen.add(epoch, order)
            yield epoch, batch

    def _forget_agreement(self, model: nn.Module) -> None:
        """Give this rank first weights of its own, drawn with seed + rank: what the strategy agreed on is undone."""
        seed = self.settings.seed + self.world.channel.rank
        model.load_state_dict(self.task.model(seed).state_dict())

    def _with_buckets(self, world: World, model: nn.Module, link: AllReduceCost | None) -> World:
        """The world with the buckets that the settings ask for; `auto` without a known link is the default."""
        wanted = self.settings.bucket_mb
        if isinstance(wanted, float):
            return dataclasses.replace(world, bucket_bytes=round(wanted * 1e6))
        if wanted != "auto" or link is None or world.channel.world_size == 1:
            return world
        batch = self.task.some_batch(self.settings.batch_size, self.device)
        strategy = find_strategy(self.settings.strategy)
        world = with_planned_buckets(world, model, lambda twin: self.task.loss(twin, batch)[0], link, strategy)
        # Compiled code is cut by a size, so its gradients come in no other groups.
        return dataclasses.replace(world, bucket_groups=None) if self.settings.compile else world

    def go_on_after(self, steps: int) -> None:
        """Count these steps as done: the next one has its number, its learning rate and its data."""
        known = self.batches.steps_per_epoch is not None
        self.steps, self.stream = steps, self._training_stream(steps if known else 0)

    def sizes(self) -> Sizes:
        """What model and local batch take, in bytes."""
        settings = self.settings
        with self.uncompiled(), self.strategy.unsharded():
            found = self.task.sizes(self.strategy.unwrap(), settings.batch_size, self.device)
        return dataclasses.replace(found, accumulate=settings.accumulate, sync_every=settings.sync_every)

    def compile(self) -> float | None:
        """Compile what training calls, if it is to be; the seconds that it took. All ranks call it together.

        It takes a forward and a backward of a batch without synchronisation, which leave nothing behind.
        """
        if self.compiled is None:
            return None
        buffers = [(buffer, buffer.clone()) for buffer in self.strategy.unwrap().buffers()]
        watching, self.timeline.watching = self.timeline.watching, False
        with self.strategy.compiling(), self.strategy.no_sync(), kept_random_state(self.device):
            self.compiled.first(self._trial_backward)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        self.timeline.watching = watching
        return self.compiled.seconds

    def _trial_backward(self) -> None:
        """Forward and backward of a batch that training does not read."""
        batch = self.task.some_batch(self.samples, self.device)
        for micro in self.micro_batches(on_device(batch, self.device)):
            self.loss(micro)[0].backward()
        self.strategy.synchronise()
        wait_for(self.device)
        self.optimizer.zero_grad()

    def uncompiled(self) -> AbstractContextManager[None]:
        """Within, the model runs as it is written."""
        return nullcontext() if self.compiled is None else self.compiled.off()

    def step(self, *, synchronise: bool = True) -> TrainedStep:
        """Train on the next batch.

        The timeline gets a mark at the end of each phase; nothing here waits for the device.
        """
        timeline = self.timeline
        beat()
        timeline.begin()
        epoch, batch = next(self.stream)
        self._mark(Phase.DATA_WAIT)
        batch = brought(self.carrier, batch)
        self._mark(Phase.COPY)
        with nullcontext() if synchronise else self.strategy.no_sync():
            loss, right = self.backward(batch, synchronise=synchronise)
            self.strategy.synchronise()
            self._mark(Phase.SYNCHRONISE)
            if self.gradient_bytes is None:
                model = self.strategy.unwrap()
                self.gradient_bytes = tensor_bytes(p.grad for p in model.parameters() if p.grad is not None)
            change_weights(self.strategy.clip, self.optimizer, self.settings, self.rate())
            self.strategy.after_step()
            self.optimizer.zero_grad()
            self._mark(Phase.OPTIMIZER)
        self.steps += 1
        compiled = self.compiled is not None and self.compiled.again()
        result = TrainedStep(epoch, self.samples, *self._kept_scores(loss, right), compiled)
        timeline.end(Phase.END)
        return result

    def backward(self, batch: Batch, *, synchronise: bool = True) -> tuple[Tensor, Tensor | None]:
        """The gradients of a batch of this process; its mean loss, and how many samples were classified right.

        Micro-batches add up their gradients; nothing of them travels but in the last one's backward.
        """
        each = self.micro_batches(batch)
        losses, rights = [], []
        for number, micro in enumerate(each, 1):
            last = number == len(each)
            with nullcontext() if last or not synchronise else self.strategy.no_sync():
                loss, outputs = self.loss(micro)
                self._mark(Phase.FORWARD)
                with self.gradients.watched(alone=last and (self.alone or not synchronise)):
                    (loss / len(each) if len(each) > 1 else loss).backward()
                self._mark(Phase.BACKWARD)
            losses.append(loss.detach())
            rights.append(self.task.right(outputs, micro))
        if len(each) == 1:
            return losses[0], rights[0]
        known = [right for right in rights if right is not None]
        return torch.stack(losses).mean(), torch.stack(known).sum() if known else None

    def micro_batches(self, batch: Batch) -> Sequence[Batch]:
        """The parts of a process's batch that go through the model one after the other: K of N·b of its workers."""
        times = self.settings.accumulate
        return [batch] if times == 1 else self.task.shares(batch, times)

    def _mark(self, phase: Phase) -> None:
        """A phase ends; with several micro-batches a step has more than one stretch of a kind."""
        if self.settings.accumulate == 1:
            self.timeline.end(phase)
        elif phase is Phase.BACKWARD:
            self.timeline.backward_over()
        else:
            self.timeline.stretch(STRETCHES[phase])

    def _kept_scores(self, loss: Tensor, right: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Loss and number of right ones, as far as there are any, on the host: there as soon as the step has ended."""
        found = [loss] if self.task.has_loss else []
        found += [] if right is None else [right]
        self.carrier.used()
        if self.timeline.watching:  # what is not read need not travel
            found = [*self.carrier.fetch(*found)]
        return (found[0] if self.task.has_loss else None), (None if right is None else found[-1])

    def try_step(self) -> None:
        """Forward and backward of a batch without synchronisation; weights, optimizer and data stay as they are.

        The bare model is called, not the wrapper: DDP may broadcast buffers in a forward without synchronisation, and
        a rank whose memory ends before it would keep the others waiting.
        """
        beat()
        try:
            with self.strategy.no_sync(), self.uncompiled(), kept_random_state(self.device):
                batch = self.task.some_batch(self.samples, self.device)
                model = self.model if self.world.channel.world_size == 1 else self.strategy.unwrap()
                for micro in self.micro_batches(on_device(batch, self.device)):
                    self.task.loss(model, micro)[0].backward()
            wait_for(self.device)
        finally:
            self.optimizer.zero_grad()

    def loss(self, batch: Batch) -> tuple[Tensor, Any]:
        """The mean loss of a batch on the device, and the outputs that it comes from."""
        with plain_message(self.strategy.unwrap()):
            return self.task.loss(self.model, batch)

    @contextmanager
    def uninstrumented(self, *, room: bool) -> Iterator[None]:
        """Steps inside this context have no hook of ours on a parameter, and with `room` none on a wrapper either."""
        hooked, watching = self.model, self.timeline.watching
        self.timeline.watching = False
        try:
            with self.strategy.uninstrumented() if room else nullcontext() as bare:
                self.model = hooked if bare is None else bare
                yield
        finally:
            self.model, self.timeline.watching = hooked, watching

    def rate(self) -> float | None:
        """The learning rate of the next step; None leaves it to the optimizer."""
        if not self.task.sets_rate:
            return None
        alone = "learning-rate" in self.settings.leave_out and self.world.channel.rank > 0
        batch = self.settings.base_batch if alone else self.settings.global_batch
        return learning_rate(self.settings, batch, self.batches.steps_per_epoch or 0, self.steps)
