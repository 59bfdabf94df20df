"""One rank trains: the model, its strategy, its data and its optimizer, one step at a time."""

import dataclasses
import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from worldsize.config import CellSettings
from worldsize.data import Batches, DataSet, training_batches
from worldsize.measure.accelerator import settle
from worldsize.measure.limits import memory_in_use_bytes
from worldsize.measure.timeline import Phase, Timeline
from worldsize.models import build_model
from worldsize.ranks.heartbeat import beat
from worldsize.results.comm_records import AllReduceCost
from worldsize.strategies import Strategy, World, find_strategy, sizes_of
from worldsize.training.bucket_plan import with_planned_buckets
from worldsize.training.carrier import carrier_for
from worldsize.training.memory_format import in_memory_format
from worldsize.training.recipe import change_weights, learning_rate, loss_of, make_optimizer
from worldsize.traits import Sizes


class TrainedStep(NamedTuple):
    """What a step of training leaves, as a `StepResult` of the loop."""

    epoch: int
    samples: int
    """Samples of this process."""
    loss: Tensor
    """Their mean loss."""
    right: Tensor
    """How many of them were classified right."""


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


def my_share(settings: CellSettings, rank: int, processes: int) -> slice:
    """The part of each global batch that this process works on: its workers' local batches, side by side."""
    size = settings.global_batch // processes
    return slice(rank * size, (rank + 1) * size)


def endless(batches: Batches, seen: SeenOrder | None = None, steps: int = 0) -> Generator[tuple[int, Tensor, Tensor]]:
    """Epoch, inputs and labels of one step after the other, from where `steps` have been; `seen` notes their order."""
    epoch, first = divmod(steps, batches.steps_per_epoch)
    while True:
        for inputs, labels in batches.epoch(epoch, first):
            if seen is not None:
                seen.add(epoch, labels)
            yield epoch, inputs, labels
        epoch, first = epoch + 1, 0


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the elements of all tensors; of a sparse one, of its values and indices."""
    dense = (part for each in tensors for part in ((each._values(), each._indices()) if each.is_sparse else (each,)))
    return sum(part.numel() * part.element_size() for part in dense)


class Trainer:
    """Everything that one rank needs to run a step. Raises UsageError for settings that do not fit the data.

    `prepare` is given the model before the strategy is.
    """

    def __init__(
        self,
        settings: CellSettings,
        data: DataSet,
        world: World,
        timeline: Timeline,
        link: AllReduceCost | None = None,
        prepare: Callable[[nn.Module], nn.Module] = lambda model: model,
    ) -> None:
        self.settings = settings
        self.timeline = timeline
        self.shape, self.classes = data.shape, data.classes
        self.device = world.device
        model = build_model(settings.model, classes=data.classes, shape=data.shape, seed=settings.seed)
        model = prepare(in_memory_format(model, data.shape, self.device))
        self.world = world = self._with_buckets(world, model, link)
        self.built_bytes = memory_in_use_bytes(self.device)
        """In use when the model was there, and nothing that trains it."""
        self.gradient_bytes: int | None = None
        """Of the gradients after the first backward."""
        self.strategy: Strategy = find_strategy(settings.strategy)(world)
        self.model: nn.Module = self.strategy.wrap(model).train()
        if "initial-weights" in settings.leave_out:
            self._forget_agreement(model)
        timeline.watch_gradients(model)
        self.optimizer = make_optimizer(model, settings, fused=True)
        self.batches, self.spare_batches = self._batches(data), self._batches(data)
        self.seen = SeenOrder()
        self.stream = endless(self.batches, self.seen)
        self.spare_stream = endless(self.spare_batches)
        """Data of steps that only measure (workload.py)."""
        self.carrier = carrier_for(self.device)
        self.steps = 0

    def _batches(self, data: DataSet) -> Batches:
        settings, channel = self.settings, self.world.channel
        return training_batches(
            data,
            loader=settings.loader,
            loader_workers=settings.loader_workers,
            seed=settings.seed,
            global_batch=settings.global_batch,
            share=my_share(settings, channel.rank, channel.world_size),
            redrawn="sampler-epoch" not in settings.leave_out,
        )

    def _forget_agreement(self, model: nn.Module) -> None:
        """Give this rank first weights of its own, drawn with seed + rank: what the strategy agreed on is undone."""
        seed = self.settings.seed + self.world.channel.rank
        own = build_model(self.settings.model, classes=self.classes, shape=self.shape, seed=seed)
        model.load_state_dict(own.state_dict())

    def _with_buckets(self, world: World, model: nn.Module, link: AllReduceCost | None) -> World:
        """The world with the buckets that the settings ask for; `auto` without a known link is the default."""
        wanted = self.settings.bucket_mb
        if isinstance(wanted, float):
            return dataclasses.replace(world, bucket_bytes=round(wanted * 1e6))
        if wanted != "auto" or link is None or world.channel.world_size == 1:
            return world
        inputs = torch.randn(self.settings.batch_size, *self.shape, device=self.device)
        inputs = inputs.to(memory_format=torch.channels_last)
        labels = torch.zeros(self.settings.batch_size, dtype=torch.int64, device=self.device)
        return with_planned_buckets(world, model, inputs, labels, link)

    def go_on_after(self, steps: int) -> None:
        """Count these steps as done: the next one has its number, its learning rate and its data."""
        self.steps, self.stream = steps, endless(self.batches, self.seen, steps)

    def sizes(self) -> Sizes:
        """What model and local batch take, in bytes, from the model itself and one sample of zeros."""
        model = self.strategy.unwrap()
        inputs = torch.zeros(1, *self.shape, device=self.device)
        with torch.no_grad():
            # In eval mode, so that the probe leaves no trace in the BatchNorm statistics.
            outputs = model.eval()(inputs)
            model.train()
        return sizes_of(
            model,
            input_bytes=inputs[0].numel() * inputs.element_size() * self.settings.batch_size,
            output_bytes=outputs.numel() * outputs.element_size() * self.settings.batch_size,
        )

    def step(self, *, synchronise: bool = True) -> TrainedStep:
        """Train on the next batch.

        The timeline gets a mark at the end of each phase; nothing here waits for the device.
        """
        timeline = self.timeline
        beat()
        timeline.begin()
        epoch, inputs, labels = next(self.stream)
        timeline.end(Phase.DATA_WAIT)
        inputs, labels = self.carrier.bring(inputs, labels)
        timeline.end(Phase.COPY)
        with nullcontext() if synchronise else self.strategy.no_sync():
            loss, outputs = self.loss(inputs, labels)
            timeline.end(Phase.FORWARD)
            loss.backward()
            timeline.end(Phase.BACKWARD)
            self.strategy.synchronise()
            timeline.end(Phase.SYNCHRONISE)
        if self.gradient_bytes is None:
            model = self.strategy.unwrap()
            self.gradient_bytes = tensor_bytes(p.grad for p in model.parameters() if p.grad is not None)
        change_weights(self.strategy.unwrap(), self.optimizer, self.settings, self.rate())
        self.optimizer.zero_grad()
        timeline.end(Phase.OPTIMIZER)
        self.steps += 1
        loss, right = loss.detach(), (outputs.detach().argmax(dim=1) == labels).sum()
        self.carrier.used()
        if timeline.watching:  # what nobody will read need not travel
            loss, right = self.carrier.fetch(loss, right)
        result = TrainedStep(epoch, len(labels), loss, right)
        timeline.end(Phase.END)
        return result

    def try_step(self) -> None:
        """Forward and backward of a batch without synchronisation; weights, optimizer and data stay as they are.

        The bare model is called, not the wrapper: DDP may broadcast buffers in a forward without synchronisation, and
        a rank whose memory ends before it would keep the others waiting.
        """
        beat()
        _, inputs, labels = next(self.spare_stream)
        try:
            with self.strategy.no_sync():
                model = self.model if self.world.channel.world_size == 1 else self.strategy.unwrap()
                loss_of(model, inputs.to(self.device), labels.to(self.device), self.settings)[0].backward()
            settle(self.device)
        finally:
            self.optimizer.zero_grad()

    def loss(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss of a batch, and the outputs that it comes from."""
        return loss_of(self.model, inputs, labels, self.settings)

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

    def rate(self) -> float:
        """The learning rate of the next step."""
        alone = "learning-rate" in self.settings.leave_out and self.world.channel.rank > 0
        batch = self.settings.base_batch if alone else self.settings.global_batch
        return learning_rate(self.settings, batch, self.batches.steps_per_epoch, self.steps)
