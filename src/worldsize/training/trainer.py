"""One rank trains: the model, its strategy, its data and its optimizer, one step at a time."""

import dataclasses
import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from torch import Tensor, nn

from worldsize.config import CellSettings
from worldsize.measure.accelerator import settle
from worldsize.measure.limits import memory_in_use_bytes
from worldsize.measure.timeline import Phase, Timeline
from worldsize.ranks.heartbeat import beat
from worldsize.results.comm_records import AllReduceCost
from worldsize.strategies import Strategy, World, find_strategy
from worldsize.strategies.shards import local
from worldsize.training.bucket_plan import with_planned_buckets
from worldsize.training.carrier import brought, carrier_for, on_device
from worldsize.training.gradients import GradientWatch
from worldsize.training.recipe import change_weights, learning_rate
from worldsize.training.task import Batch, Source, Task
from worldsize.training.unused import told_plainly
from worldsize.wire import Sizes


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
    """Nothing else is ever done in it."""


class SeenOrder:
    """A digest of the labels of an epoch in the order in which this process has trained on them.

    Each is the digest of the one before it and a batch, so that a checkpoint within an epoch can hold it.
    """

    def __init__(self) -> None:
        self.epoch = -1
        self.last = b""

    def add(self, epoch: int, labels: Tensor) -> None:
        """The next batch; it takes microseconds, for labels are few bytes."""
        if epoch != self.epoch:
            self.epoch, self.last = epoch, b""
        self.last = hashlib.sha256(self.last + labels.numpy().tobytes()).digest()

    @property
    def digest(self) -> str:
        """Of what was seen of the current epoch so far."""
        return self.last.hex()[:12]


def endless(batches: Source, steps: int = 0) -> Generator[tuple[int, Batch]]:
    """Epoch and batch of one step after the other, from where `steps` have been."""
    epoch, first = 0, 0
    if steps:
        assert batches.steps_per_epoch is not None, "only whole epochs are gone on with"
        epoch, first = divmod(steps, batches.steps_per_epoch)
    while True:
        for batch in batches.epoch(epoch, first):
            yield epoch, batch
        epoch, first = epoch + 1, 0


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the elements of all tensors on this rank; of a sparse one, of its values and indices."""
    here = map(local, tensors)
    dense = (part for each in here for part in ((each._values(), each._indices()) if each.is_sparse else (each,)))
    return sum(part.numel() * part.element_size() for part in dense)


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
        timeline.watch_parameters(self.strategy.accumulating())
        self.gradients = GradientWatch(self.strategy.accumulating(), timeline)
        self.alone = world.world_size == 1
        self.optimizer = task.optimizer(model)
        self.batches, self.spare_batches = self._batches(), self._batches()
        self.seen = SeenOrder()
        self.stream = self._training_stream(0)
        self.spare_stream = endless(self.spare_batches)
        """Data of steps that only measure (workload.py)."""
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
        return with_planned_buckets(world, model, lambda twin: self.task.loss(twin, batch)[0], link)

    def go_on_after(self, steps: int) -> None:
        """Count these steps as done: the next one has its number, its learning rate and its data."""
        self.steps, self.stream = steps, self._training_stream(steps)

    def sizes(self) -> Sizes:
        """What model and local batch take, in bytes."""
        with self.strategy.whole():
            return self.task.sizes(self.strategy.unwrap(), self.settings.batch_size, self.device)

    def step(self, *, synchronise: bool = True) -> TrainedStep:
        """Train on the next batch.

        The timeline gets a mark at the end of each phase; nothing here waits for the device.
        """
        timeline = self.timeline
        beat()
        timeline.begin()
        epoch, batch = next(self.stream)
        timeline.end(Phase.DATA_WAIT)
        batch = brought(self.carrier, batch)
        timeline.end(Phase.COPY)
        with nullcontext() if synchronise else self.strategy.no_sync():
            loss, outputs = self.loss(batch)
            timeline.end(Phase.FORWARD)
            with self.gradients.watched(alone=self.alone or not synchronise):
                loss.backward()
            timeline.end(Phase.BACKWARD)
            self.strategy.synchronise()
            timeline.end(Phase.SYNCHRONISE)
        if self.gradient_bytes is None:
            model = self.strategy.unwrap()
            self.gradient_bytes = tensor_bytes(p.grad for p in model.parameters() if p.grad is not None)
        change_weights(self.strategy.clip, self.optimizer, self.settings, self.rate())
        self.optimizer.zero_grad()
        timeline.end(Phase.OPTIMIZER)
        self.steps += 1
        result = TrainedStep(epoch, self.samples, *self._told(loss, self.task.right(outputs, batch)))
        timeline.end(Phase.END)
        return result

    def _told(self, loss: Tensor, right: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Loss and number of right ones, as far as there are any, on the host: there as soon as the step has ended."""
        found = [loss.detach()] if self.task.has_loss else []
        found += [] if right is None else [right]
        self.carrier.used()
        if self.timeline.watching:  # what nobody will read need not travel
            found = [*self.carrier.fetch(*found)]
        return (found[0] if self.task.has_loss else None), (None if right is None else found[-1])

    def try_step(self) -> None:
        """Forward and backward of a batch without synchronisation; weights, optimizer and data stay as they are.

        The bare model is called, not the wrapper: DDP may broadcast buffers in a forward without synchronisation, and
        a rank whose memory ends before it would keep the others waiting.
        """
        beat()
        _, batch = next(self.spare_stream)
        try:
            with self.strategy.no_sync():
                model = self.model if self.world.channel.world_size == 1 else self.strategy.unwrap()
                self.task.loss(model, on_device(batch, self.device))[0].backward()
            settle(self.device)
        finally:
            self.optimizer.zero_grad()

    def loss(self, batch: Batch) -> tuple[Tensor, Any]:
        """The mean loss of a batch on the device, and the outputs that it comes from."""
        with told_plainly(self.strategy.unwrap()):
            return self.task.loss(self.model, batch)

    @contextmanager
    def unseen(self, *, room: bool) -> Iterator[None]:
        """Steps inside this context have no hook of ours on a parameter, and with `room` none on a wrapper either."""
        hooked, watching = self.model, self.timeline.watching
        self.timeline.watching = False
        try:
            with self.strategy.unseen() if room else nullcontext() as bare:
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
