"""What a training is made of: weights, optimizer, place in the data and random state (ranks/checkpoint.py writes it).

Buffers are each rank's own: most strategies leave each its own BatchNorm statistics. So are shards, and then nothing is
common: a checkpoint of them is for as many ranks as wrote it.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from worldsize.ranks.workload import MisfitError, State
from worldsize.strategies.shards import as_shard_of, local
from worldsize.training.trainer import Trainer


def state_of(trainer: Trainer) -> State:
    """All that the next step depends on; the tensors are those of the trainer, not copies."""
    on_device = None if trainer.device.type == "cpu" else torch.get_device_module(trainer.device)
    model = trainer.strategy.unwrap()
    moments = (value for state in trainer.optimizer.state.values() for value in state.values())
    weights = {"model": model.state_dict(), "optimizer": trainer.optimizer.state_dict()}
    in_shards = trainer.strategy.traits.travels == "shards"
    return State(
        steps=trainer.steps,
        common={} if in_shards else weights,
        own={
            **(_here(weights) if in_shards else {}),
            "buffers": dict(model.named_buffers()),
            "strategy": trainer.strategy.state(),
            "seen": (trainer.seen.epoch, trainer.seen.last.hex()),
            "random": torch.random.get_rng_state(),
            "random_cuda": on_device.get_rng_state(trainer.device) if on_device else None,
        },
        replicated=()
        if in_shards
        else (*model.parameters(), *(value for value in moments if isinstance(value, Tensor))),
        belongs_to={
            "settings": trainer.settings,
            "bucket_bytes": trainer.world.bucket_bytes,
            "bucket_groups": trainer.world.bucket_groups,
        },
    )


def put_back(trainer: Trainer, state: State) -> None:
    """Make the trainer what it was; raise MisfitError for a state of another model."""
    own, weights = state.own, {**state.own, **state.common}
    _fit("model", lambda: _put(trainer, weights["model"], own["buffers"]))
    _fit("optimizer", lambda: _put_optimizer(trainer.optimizer, weights["optimizer"]))
    _fit("strategy", lambda: _put_all(trainer.strategy.state(), own["strategy"]))
    trainer.go_on_after(state.steps)
    epoch, last = own["seen"]
    trainer.seen.epoch, trainer.seen.last = epoch, bytes.fromhex(last)
    # Last: everything above may draw from the generators.
    torch.random.set_rng_state(own["random"])
    if own["random_cuda"] is not None:
        torch.get_device_module(trainer.device).set_rng_state(own["random_cuda"], trainer.device)


def arrange_buckets(trainer: Trainer) -> None:
    """One step on any batch before a state is put back: DDP arranges its buckets anew after its very first one.

    With three ranks and more, other buckets mean other sums: without this the first step after a resume would not
    be the one of a training that was never stopped.
    """
    batch = trainer.task.some_batch(trainer.samples, torch.device("cpu"))
    trainer.stream = (each for each in itertools.repeat((0, batch)))
    trainer.step()
    trainer.timeline.take()


def _fit(part: str, put: Callable[[], None]) -> None:
    try:
        put()
    except (KeyError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise MisfitError(part, f"it does not fit the model, which may have changed meanwhile ({reason})") from None


@torch.no_grad()
def _put(trainer: Trainer, weights: dict[str, Tensor], buffers: dict[str, Tensor]) -> None:
    """Copy values into the model that is there: strategies hold on to its tensors."""
    model = trainer.strategy.unwrap()
    _put_all(dict(model.named_parameters()), weights)
    _put_all(dict(model.named_buffers()), buffers)


def _put_optimizer(optimizer: torch.optim.Optimizer, there: dict[str, Any]) -> None:
    """What it keeps of a shard is a shard as well."""
    optimizer.load_state_dict(there)
    for parameter, state in optimizer.state.items():
        part = local(parameter)
        for name, value in state.items():
            if part is not parameter and isinstance(value, Tensor) and value.shape == part.shape:
                state[name] = as_shard_of(parameter, value)


def _here(value: Any) -> Any:
    """The same with the part of each tensor that is on this rank: plain torch can load it."""
    if isinstance(value, dict):
        return {key: _here(each) for key, each in value.items()}
    return local(value) if isinstance(value, Tensor) else value


@torch.no_grad()
def _put_all(here: Mapping[str, Tensor], there: Mapping[str, Tensor]) -> None:
    for name, whole in here.items():
        value, target = there[name], local(whole)
        if target.shape != value.shape:
            raise ValueError(f"{name} is {tuple(value.shape)} there and {tuple(target.shape)} here")
        target.copy_(value)
