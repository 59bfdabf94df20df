"""The short proof that each cell of a study gives before it is timed (method.md §10).

One batch, twice from the same weights: the gradients that the strategy synchronises must be the mean of those without.
The mean travels outside of the strategy's channel, so nothing of the strategy can be in it. A lossy strategy is held
against the same mean: what must be equal is compared, what may differ is measured (losses.py).
"""

import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor

from worldsize.measure.accelerator import kept_random_state
from worldsize.ranks.heartbeat import beat
from worldsize.results.check_records import DIGEST_LENGTH, Losses, RankCheck
from worldsize.training.averaged_weights import WeightsWatch
from worldsize.training.carrier import on_device
from worldsize.training.losses import LossMeter, Plain, average_over_ranks, first_steps, period
from worldsize.training.proof import (
    TOLERANCES,
    compare,
    first_apart,
    named_gradients,
)
from worldsize.training.reference import add_mean_gradients
from worldsize.training.task import Batch
from worldsize.training.trainer import Trainer

MAX_SAMPLES = 4096
"""Samples of an epoch whose digests are kept, over all ranks; more would only make the records large."""
SINGLE_BYTES = 4
"""Of an element in single precision."""
FEEDBACK_STEPS = 4
"""Over so many steps the sum of the averages and what is held back must be the sum of the means. It is an identity, so
more steps would prove no more; in the first alone nothing is given back yet."""
MAX_STEPS = 40
"""More than these are not made to come to the first lossy step, or to where weights are averaged."""

Gradients = dict[str, Tensor]


def check(trainer: Trainer, batches: int) -> RankCheck:
    """Prove this cell in one batch, and read some global batches; all ranks call it together.

    Call it in TrainingWorkload.rolled_back: what it does to buffers, random state and step count is undone there.
    """
    found = RankCheck(tolerance=_tolerance(trainer))
    watching, trainer.timeline.watching = trainer.timeline.watching, False
    try:
        first = None
        for step, batch in enumerate(_read(trainer, batches)):
            first = batch if step == 0 else first
            found.samples.append(_digests(trainer, step, batch))
        if trainer.settings.world_size > 1 and first is not None:
            if trainer.strategy.traits.travels != "weights" or trainer.steps == 0:  # later, each rank has its own
                found.apart = first_apart(trainer.strategy.full_weights(), trainer.world.channel.world_size)
            _compare(trainer, on_device(first, trainer.device), found)
    finally:
        trainer.optimizer.zero_grad()
        trainer.timeline.watching = watching
    return found


def _tolerance(trainer: Trainer) -> float:
    """That of the precision; weights that are narrower than 32 bits are rounded as bf16 is."""
    trained = (parameter for parameter in trainer.strategy.unwrap().parameters() if parameter.requires_grad)
    narrow = any(parameter.element_size() < SINGLE_BYTES for parameter in trained)
    return TOLERANCES["bf16" if narrow else trainer.settings.precision]


def _read(trainer: Trainer, batches: int) -> Iterator[Batch]:
    """The first batches of this process in epoch 0, from an iterator of their own; its loader ends with it."""
    epoch = trainer.batches.epoch(0)
    with closing(cast(Any, epoch)) if hasattr(epoch, "close") else nullcontext():
        for batch in islice(epoch, batches):
            beat()
            yield batch


def _digests(trainer: Trainer, step: int, batch: Batch) -> str:
    """Digests of this process's samples, without those that come late in the epoch."""
    begin = step * trainer.settings.global_batch + trainer.world.channel.rank * trainer.samples
    count = max(0, min(trainer.samples, MAX_SAMPLES - begin))
    return "".join(trainer.task.digests(batch, count, DIGEST_LENGTH // 2))


def _compare(trainer: Trainer, batch: Batch, found: RankCheck) -> None:
    traits = trainer.strategy.traits
    if not traits.exact and traits.travels != "shards":
        _measure(trainer, batch, found)
        return
    alone = trainer.world.channel.world_size == 1
    mean = _mean_over_shares if alone else _mean_over_ranks
    # Compiled code must compute what the model as it is written does. In bf16 it rounds elsewhere.
    as_written = trainer.uncompiled if found.tolerance == TOLERANCES["fp32"] else nullcontext
    with _buffers_kept(trainer), _same_random_draws(trainer) as state:
        with as_written():
            wanted = mean(trainer, batch)
        drew = not torch.equal(state, torch.get_rng_state())
    if drew and not alone and trainer.compiled is not None:  # compiled code draws other numbers
        with _buffers_kept(trainer), _same_random_draws(trainer):
            wanted = mean(trainer, batch)
    if alone and drew:
        # Its workers are threads that share one generator: who draws first is not ours to say.
        found.left_out = "the model draws random numbers, and its workers share one generator"
        return
    with _buffers_kept(trainer):
        _synchronised(trainer, batch)
    found.largest, found.gradients = compare(trainer.strategy.full_gradients(), wanted, found.tolerance, step=0)


def _measure(trainer: Trainer, batch: Batch, found: RankCheck) -> None:
    """What a lossy strategy makes of the same batch, in as many steps as it takes to see what it says of itself."""
    traits, settings = trainer.strategy.traits, trainer.settings
    before = max(0, first_steps(traits, settings) - trainer.steps)
    steps = before + (FEEDBACK_STEPS if traits.feedback else period(traits, settings))
    if steps > MAX_STEPS:
        found.left_out = f"its first lossy synchronisation comes after {before} steps, or takes {steps - before}"
        return
    meter = meter_for(trainer, found.tolerance)
    if traits.travels == "weights":
        found.losses = _exchanged_weights(trainer, batch, meter, steps)
        return
    plain = plain_gradients(trainer, batch)
    for step in range(steps):
        with _buffers_kept(trainer), _same_random_draws(trainer):
            _synchronised(trainer, batch)
        meter.add(trainer.steps + step, plain)
        beat()
    found.losses = meter.result()


def _exchanged_weights(trainer: Trainer, batch: Batch, meter: LossMeter, steps: int) -> Losses:
    """One batch's gradients, then whole steps until weights were averaged; what calls this undoes them."""
    plain = plain_gradients(trainer, batch)
    with _buffers_kept(trainer), _same_random_draws(trainer):
        _synchronised(trainer, batch)
    meter.add(trainer.steps, plain)
    trainer.optimizer.zero_grad()
    watch = WeightsWatch(trainer, meter.tolerance, meter.faults)
    watch.begin()
    training, trainer.stream = trainer.stream, (each for each in itertools.repeat((0, batch)))
    try:
        for _ in range(steps):
            trainer.step()
            trainer.timeline.take()
    finally:
        trainer.stream = training
    exchanges = watch.end()
    return meter.result().model_copy(update={"exchanges": exchanges})


def meter_for(trainer: Trainer, tolerance: float) -> LossMeter:
    """One for this trainer's strategy; all ranks ask for it together."""
    exact_steps = first_steps(trainer.strategy.traits, trainer.settings)
    return LossMeter(trainer.strategy, trainer.world.channel.world_size, tolerance, exact_steps)


def plain_gradients(trainer: Trainer, batch: Batch) -> Plain:
    """The gradients of a batch on the device without the strategy; buffers and random state are as they were."""
    if trainer.world.channel.world_size == 1:
        with _buffers_kept(trainer), _same_random_draws(trainer):
            mean = _mean_over_shares(trainer, batch)
        trainer.optimizer.zero_grad()
        return Plain(mean, mean)
    with _buffers_kept(trainer), _same_random_draws(trainer), trainer.strategy.no_sync():
        _synchronised(trainer, batch, synchronise=False)
    own = {name: gradient.clone() for name, gradient in named_gradients(trainer.strategy.unwrap()).items()}
    trainer.optimizer.zero_grad()
    mean = {name: gradient.clone() for name, gradient in own.items()}
    average_over_ranks(mean.values())
    return Plain(own, mean)


def _synchronised(trainer: Trainer, batch: Batch, *, synchronise: bool = True) -> None:
    """Backward as training does it, micro-batch by micro-batch; within `no_sync` it does not `synchronise`."""
    trainer.optimizer.zero_grad()
    trainer.backward(batch, synchronise=synchronise)
    trainer.strategy.synchronise()


def _mean_over_ranks(trainer: Trainer, batch: Batch) -> Gradients:
    """The gradients of each rank without synchronisation, averaged over the ranks on the default group."""
    alone = trainer.strategy.local_gradients(lambda: _synchronised(trainer, batch, synchronise=False))
    found = {name: gradient.clone() for name, gradient in alone.items()}
    average_over_ranks(found.values())
    return found


def _mean_over_shares(trainer: Trainer, batch: Batch) -> Gradients:
    """The gradients of the model itself, averaged over the workers' shares of one process's batch."""
    model, settings = trainer.strategy.unwrap(), trainer.settings
    trainer.optimizer.zero_grad()
    shares = trainer.task.shares(batch, settings.world_size * settings.accumulate)
    add_mean_gradients(model, shares, lambda alone, share: trainer.task.loss(alone, share)[0])
    return {name: gradient.clone() for name, gradient in named_gradients(model).items()}


@contextmanager
def _buffers_kept(trainer: Trainer) -> Iterator[None]:
    """Both passes begin with the same buffers."""
    buffers = list(trainer.strategy.unwrap().buffers())
    before = [buffer.clone() for buffer in buffers]
    yield
    with torch.no_grad():
        for buffer, value in zip(buffers, before, strict=True):
            buffer.copy_(value)


@contextmanager
def _same_random_draws(trainer: Trainer) -> Iterator[Tensor]:
    """What is drawn in this context is drawn again after it; gives the state at its start."""
    with kept_random_state(trainer.device):
        yield torch.get_rng_state()
