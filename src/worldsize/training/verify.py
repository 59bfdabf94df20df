"""One rank of `worldsize verify`: trains as a study does, held against the reference in each step (method.md §10).

Rank 0 computes the reference itself, so nothing large travels. In single precision training amplifies rounding:
gradients that differ by 7e-8 in the first step differ by 2e-2 in the third. So the proof is in double precision, where
the noise is 1e-14, and where a model refuses that only the first step is compared.
"""

import copy
from collections.abc import Generator, Iterator
from typing import Any

import torch
from torch import nn

from worldsize.config import Arithmetic, CellSettings
from worldsize.data import DataSet, load_data
from worldsize.errors import UsageError
from worldsize.measure.clocks import clock_for
from worldsize.measure.timeline import Timeline
from worldsize.ranks.host_collectives import gather
from worldsize.ranks.setup import Rank, choose_device, pin, process_group
from worldsize.ranks.turns import Reply, Turns
from worldsize.results.base import Record
from worldsize.results.check_records import Difference, Losses
from worldsize.results.records import Placement
from worldsize.results.verify_records import Proof, RankProof, Samples
from worldsize.training.averaged_weights import WeightsWatch
from worldsize.training.carrier import on_device
from worldsize.training.check import meter_for, plain_gradients
from worldsize.training.classifier import Classifier
from worldsize.training.losses import LossMeter, first_steps, period
from worldsize.training.proof import (
    TOLERANCES,
    compare,
    digest,
    first_apart,
    first_unlike,
    named_gradients,
    named_weights,
    sample_digests,
)
from worldsize.training.rank import world_of
from worldsize.training.reference import Numbered, Reference
from worldsize.training.repeatable import in_double, refuses_double, unrepeatable, without_dropout
from worldsize.training.trainer import Trainer


class Task(Record):
    """What is to be proved."""

    settings: CellSettings
    placement: Placement
    arithmetic: Arithmetic
    steps: int


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """The entry that launch calls in each worker; replies with what this rank found."""
    task = Task.model_validate(payload)
    rank = Rank.from_environment()
    pin(rank, task.placement)  # first: the backend's threads inherit the cores
    device = choose_device(rank, task.placement)
    with process_group(rank, task.placement, device):
        turns.reply(Reply(proof=prove(task, rank, device)))
        turns.next()


def prove(task: Task, rank: Rank, device: torch.device) -> RankProof:
    """Run all steps; all ranks call it together. Raises what training raises."""
    data = load_data(task.settings)
    timeline = Timeline(clock_for(device))
    timeline.watching = False
    preparation = Preparation(task, rank, data.shape)
    world = world_of(rank, task.settings, task.placement, device, timeline)
    trainer = Trainer(task.settings, Classifier(task.settings, data), world, timeline, prepare=preparation)
    trainer.compile()
    witness = Witness(trainer, preparation, data)
    for _ in range(witness.steps):
        witness.before_step()
        trainer.step()
        timeline.take()
        witness.after_step()
    witness.second_epoch()
    witness.end()
    return witness.found


class Preparation:
    """Makes the model fit for the proof before the strategy gets it, and keeps a copy for the reference.

    Raises UsageError for a model that cannot be compared with itself.
    """

    def __init__(self, task: Task, rank: Rank, shape: tuple[int, ...]) -> None:
        self.task, self.rank, self.shape = task, rank, shape
        self.arithmetic = task.arithmetic
        self.fallback: str | None = None
        self.dropouts = 0
        self.copy: nn.Module | None = None

    def __call__(self, model: nn.Module) -> nn.Module:
        """The same model, changed in place."""
        self.dropouts = without_dropout(model)
        if self.arithmetic == "fp64":
            self.fallback = _any_rank(refuses_double(model, self.shape), self.rank)
            if self.fallback is None:
                in_double(model)
            else:
                self.arithmetic = "fp32"
        if unrepeatable(model, self.shape):
            raise UsageError(
                f"{self.task.settings.model}: two forward passes in training mode differ for the same inputs\n"
                "verify sets dropout to 0; switch off what else the model draws at random, or keeps between passes."
            )
        if self.rank.rank == 0:
            self.copy = copy.deepcopy(model)
        return model


def _any_rank(reason: str | None, rank: Rank) -> str | None:
    """The reason of the first rank that has one: all must compute in the same precision."""
    return next((each for each in gather(reason, rank.processes) if each is not None), None)


class Measured:
    """What is measured of a lossy strategy, on all ranks: each step against their own gradients at the same weights."""

    def __init__(self, trainer: Trainer, tolerance: float) -> None:
        self.trainer, self.stream = trainer, trainer.stream
        self.meter: LossMeter = meter_for(trainer, tolerance)
        self.watch: WeightsWatch | None = None
        if trainer.strategy.traits.travels == "weights":
            self.watch = WeightsWatch(trainer, tolerance, self.meter.faults)
            self.watch.begin()
        trainer.optimizer.register_step_pre_hook(lambda *_: self.meter.add(trainer.steps, self.plain))

    def before_step(self) -> None:
        """Take the gradients of the next batch without the strategy, and give the batch to the step."""
        batch = next(self.stream)
        self.plain = plain_gradients(self.trainer, on_device(batch[1], self.trainer.device))
        self.trainer.stream = _first(batch, self.stream)

    def result(self) -> Losses:
        """Of all steps; all ranks call it."""
        exchanges = self.watch.end() if self.watch else None
        return self.meter.result().model_copy(update={"exchanges": exchanges})


def _first(batch: Numbered, others: Iterator[Numbered]) -> Generator[Numbered]:
    yield batch
    yield from others


def lossy_steps(trainer: Trainer, wanted: int) -> int:
    """Steps until as many as were wanted are lossy, and until weights that are exchanged were so once."""
    traits, settings = trainer.strategy.traits, trainer.settings
    return first_steps(traits, settings) + max(wanted, period(traits, settings))


class Witness:
    """Watches the steps of a rank, and on rank 0 holds them against the reference."""

    def __init__(self, trainer: Trainer, preparation: Preparation, data: DataSet) -> None:
        self.trainer = trainer
        traits = trainer.strategy.traits
        self.lossy = not traits.exact and traits.travels != "shards" and trainer.settings.world_size > 1
        self.alike = traits.travels == "gradients"
        self.steps = preparation.task.steps
        if self.lossy:
            self.steps = lossy_steps(trainer, self.steps)
        self.processes = trainer.world.channel.world_size
        self.model = trainer.strategy.unwrap()
        self.found = RankProof(samples=[])
        self.reference: Reference | None = None
        self._buffers: dict[str, str] = {}
        self.apart: Difference | None = None
        self.buffers_apart_from: int | None = None
        if preparation.copy is not None:
            self.reference = Reference(preparation.copy, trainer.settings, data, trainer.device)
            self.found.proof = self._empty(preparation)
        trainer.optimizer.register_step_pre_hook(lambda *_: self._compare_gradients())
        trainer.stream = self._tapped(trainer.stream)
        self.measured = Measured(trainer, TOLERANCES[preparation.arithmetic]) if self.lossy else None
        if self.processes > 1:
            self.model.register_forward_pre_hook(self._note_buffers)

    def _empty(self, preparation: Preparation) -> Proof:
        arithmetic, steps = preparation.arithmetic, self.steps
        all_steps = arithmetic == "fp64" or self.lossy
        return Proof(
            arithmetic=arithmetic,
            fallback=preparation.fallback,
            tolerance=TOLERANCES[arithmetic],
            steps=steps,
            compared_steps=steps if all_steps else 1,
            dropouts=preparation.dropouts,
            largest_gradient=None if self.lossy else 0.0,
            largest_weight=0.0 if arithmetic == "fp64" else None,
            buffers=sum(1 for _ in self.model.buffers()),
        )

    def _tapped(self, stream: Iterator[Numbered]) -> Generator[Numbered]:
        for batch in stream:
            self.found.samples.append(_samples([batch]))
            yield batch

    def _note_buffers(self, *_: Any) -> None:
        """What the forward of this step begins with: a strategy may have given all ranks the same before it."""
        self._buffers = {name: digest(buffer) for name, buffer in self.model.named_buffers()}

    def before_step(self) -> None:
        """All ranks call it before each step."""
        if self.measured is not None:
            self.measured.before_step()

    def _compare_gradients(self) -> None:
        """After the synchronisation, before the optimizer (a hook of it)."""
        proof, reference, step = self.found.proof, self.reference, self.trainer.steps
        gradients = self.trainer.strategy.full_gradients()  # of shards all ranks together make it
        if proof is None or reference is None:
            return
        self.found.expected.append(_samples(reference.backward()))
        if step < proof.compared_steps and not self.lossy:
            largest, first = compare(gradients, named_gradients(reference.model), proof.tolerance, step)
            proof.largest_gradient = _larger(proof.largest_gradient, largest)
            proof.gradients = proof.gradients or first

    def after_step(self) -> None:
        """Compare the weights with the reference and between the ranks; all ranks call it after each step."""
        step = self.trainer.steps - 1
        proof, reference = self.found.proof, self.reference
        weights = self.trainer.strategy.full_weights()
        unlike = first_apart(weights, self.processes) if self.alike else None
        if unlike and self.apart is None:
            self.apart = Difference(step=step, parameter=unlike)
        if first_unlike(self._buffers, self.processes) and self.buffers_apart_from is None:
            self.buffers_apart_from = step
        if proof is None or reference is None:
            return
        proof.ranks, proof.buffers_apart_from = self.apart, self.buffers_apart_from
        reference.step(self.trainer.optimizer.param_groups[0]["lr"])
        if proof.largest_weight is not None:
            largest, first = compare(weights, named_weights(reference.model), proof.tolerance, step)
            if self.lossy:  # where it has come to: shown, and not judged
                proof.largest_weight = largest
                return
            proof.largest_weight = _larger(proof.largest_weight, largest)
            proof.weights = proof.weights or first

    def second_epoch(self) -> None:
        """Note the first batch of the next epoch: its order and augmentation are drawn anew."""
        if self.trainer.steps > (self.trainer.batches.steps_per_epoch or 0):
            return  # the steps have been there
        self.found.samples.append(_samples([(1, next(self.trainer.batches.epoch(1)))]))
        if self.reference is not None:
            self.found.expected.append(_samples(list(self.reference.first_batches(1))))

    def end(self) -> None:
        """Sum up what was measured; all ranks call it after the last step."""
        if self.measured is not None:
            losses = self.measured.result()
            if self.found.proof is not None:
                self.found.proof.losses = losses


def _samples(batches: list[Numbered]) -> Samples:
    epoch = batches[0][0]
    return Samples(epoch=epoch, digests=[each for _, batch in batches for each in sample_digests(*batch)])


def _larger(a: float | None, b: float | None) -> float | None:
    """The larger of two distances; None where one of them is None, for it is not finite."""
    return None if a is None or b is None else max(a, b)
