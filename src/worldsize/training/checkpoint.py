"""Save all that a training is made of, and go on from it bit for bit on as many workers.

Rank 0 writes what all ranks have in common (weights, optimizer); each rank writes what only it has (buffers: most
strategies leave each rank its own BatchNorm statistics; random state) and its own weights where they differ from
rank 0's. So ranks on other hosts, with other file systems, need no more than their own files and rank 0's word.
"""

import hashlib
import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from torch import Tensor

from worldsize.errors import OutputError
from worldsize.ranks.exchange import agree, gather, send_bytes
from worldsize.ranks.heartbeat import beat
from worldsize.results.checkpoints import (
    CheckpointRecord,
    Part,
    find_checkpoint,
    read_part,
    remove_others,
    unusable,
    write_index,
    write_part,
)
from worldsize.training.trainer import Trainer


def save(trainer: Trainer, folder: Path) -> None:
    """Write a checkpoint of all ranks; the one before it counts until this one is whole. Raises OutputError.

    Not to be called within a timed step: it waits for the device, the disk and all other ranks.
    """
    rank, step = trainer.world.channel.rank, trainer.steps
    found = find_checkpoint(folder) if rank == 0 else None
    processes = trainer.world.channel.world_size
    if agree(found is not None and found.step == step, processes):
        return  # written over, its parts would be old and new ones for a moment
    fingerprints = gather(_fingerprint(trainer), processes)
    apart = [other for other, found in enumerate(fingerprints) if found != fingerprints[0]]
    parts = [_written(folder / f"rank{rank}-{step}.pt", _own(trainer, with_weights=rank in apart))]
    if rank == 0:
        model = trainer.strategy.unwrap()
        parts.append(_written(folder / f"model-{step}.pt", model.state_dict()))
        parts.append(_written(folder / f"optimizer-{step}.pt", trainer.optimizer.state_dict()))
    told = gather([part.model_dump() for part in parts], processes)
    everyone = [[Part.model_validate(part) for part in of_rank] for of_rank in told]
    if rank == 0:
        write_index(folder, _index(trainer, everyone, apart))
    if processes > 1:
        dist.barrier()  # nobody removes an old part before the index names the new ones
    remove_others(folder, itertools.chain(*everyone), "" if rank == 0 else f"rank{rank}-")


def _index(trainer: Trainer, parts: list[list[Part]], apart: list[int]) -> CheckpointRecord:
    epoch, epoch_step = divmod(trainer.steps, trainer.batches.steps_per_epoch)
    return CheckpointRecord(
        settings=trainer.settings,
        processes=len(parts),
        device=trainer.device.type,
        step=trainer.steps,
        epoch=epoch,
        epoch_step=epoch_step,
        parts=parts,
        apart=apart,
        bucket_bytes=trainer.world.bucket_bytes,
        bucket_groups=trainer.world.bucket_groups,
    )


def _own(trainer: Trainer, *, with_weights: bool) -> dict[str, Any]:
    """What only this rank has."""
    on_device = None if trainer.device.type == "cpu" else torch.get_device_module(trainer.device)
    own: dict[str, Any] = {
        "buffers": dict(trainer.strategy.unwrap().named_buffers()),
        "seen": (trainer.seen.epoch, trainer.seen.last.hex()),
        "random": torch.random.get_rng_state(),
        "random_cuda": on_device.get_rng_state(trainer.device) if on_device else None,
    }
    if with_weights:
        own["model"] = trainer.strategy.unwrap().state_dict()
        own["optimizer"] = trainer.optimizer.state_dict()
    return own


def _written(path: Path, content: Any) -> Part:
    beat()

    def write(file: BinaryIO) -> None:
        # On the CPU, so that plain torch.load can read it on any machine.
        torch.save(_on_cpu(content), file)

    return write_part(path, write)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(each) for key, each in value.items()}
    return [_on_cpu(each) for each in value] if isinstance(value, list) else value


def _fingerprint(trainer: Trainer) -> str:
    """A digest of weights and optimizer; equal on all ranks unless a strategy lets them drift apart."""
    digest = hashlib.sha256()
    if trainer.world.channel.world_size > 1:
        moments = (value for state in trainer.optimizer.state.values() for value in state.values())
        for value in itertools.chain(trainer.strategy.unwrap().parameters(), moments):
            if isinstance(value, Tensor):
                digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def agreed_checkpoint(folder: Path, rank: int, processes: int) -> CheckpointRecord | None:
    """The checkpoint that rank 0 sees, on every rank: others may be on hosts that have no index.

    Raises OutputError, on every rank, if rank 0 cannot read it.
    """
    seen: dict[str, str] = {}
    if rank == 0:
        try:
            found = find_checkpoint(folder)
            seen = {} if found is None else {"record": found.model_dump_json()}
        except OutputError as error:
            seen = {"error": str(error)}
    told = agree(seen, processes)
    if "error" in told:
        raise OutputError(told["error"])
    return CheckpointRecord.model_validate_json(told["record"]) if "record" in told else None


def restore(trainer: Trainer, folder: Path, record: CheckpointRecord) -> None:
    """Make the trainer what it was when the checkpoint was written; raise OutputError if its parts do not fit.

    All ranks call it together.
    """
    _lead(trainer)
    rank = trainer.world.channel.rank
    mine = {part.name: part for part in record.parts[rank]}
    own_path = folder / f"rank{rank}-{record.step}.pt"
    own = _loaded(own_path, read_part(folder, mine[own_path.name]))
    model_path, optimizer_path = folder / f"model-{record.step}.pt", folder / f"optimizer-{record.step}.pt"
    model, optimizer = (
        _loaded(path, _broadcast(trainer, read_part(folder, mine[path.name]) if rank == 0 else b""))
        for path in (model_path, optimizer_path)
    )
    if rank in record.apart:
        model, optimizer = own["model"], own["optimizer"]
    _fit(own_path if rank in record.apart else model_path, lambda: _put(trainer, model, own["buffers"]))
    _fit(optimizer_path, lambda: trainer.optimizer.load_state_dict(optimizer))
    trainer.go_on_after(record.step)
    epoch, last = own["seen"]
    trainer.seen.epoch, trainer.seen.last = epoch, bytes.fromhex(last)
    # Last: everything above may draw from the generators.
    torch.random.set_rng_state(own["random"])
    if own["random_cuda"] is not None:
        torch.get_device_module(trainer.device).set_rng_state(own["random_cuda"], trainer.device)


def _lead(trainer: Trainer) -> None:
    """One step on zeros, of which nothing stays: DDP arranges its buckets anew after its very first one.

    With three ranks and more, other buckets mean other sums: without this the first step after a resume would not
    be the one of a training that was never stopped.
    """
    size = trainer.settings.global_batch // trainer.world.channel.world_size
    nothing = torch.zeros(size, *trainer.shape), torch.zeros(size, dtype=torch.int64)
    trainer.stream = (each for each in itertools.repeat((0, *nothing)))
    trainer.step()
    trainer.timeline.take()


def _broadcast(trainer: Trainer, content: bytes) -> bytes:
    """Rank 0's bytes, on every rank."""
    if trainer.world.channel.world_size == 1:
        return content
    return send_bytes(content, source=0)


def _loaded(path: Path, content: bytes) -> Any:
    try:
        # weights_only: a checkpoint is data, and must not be able to run anything.
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise unusable(path, f"torch cannot load it ({str(error).partition(chr(10))[0]})") from None


def _fit(path: Path, put: Callable[[], None]) -> None:
    try:
        put()
    except (KeyError, ValueError, RuntimeError) as error:
        told = str(error).partition("\n")[0]
        raise unusable(path, f"it does not fit the model, which may have been changed meanwhile ({told})") from None


@torch.no_grad()
def _put(trainer: Trainer, weights: dict[str, Tensor], buffers: dict[str, Tensor]) -> None:
    """Copy values into the model that is there: strategies hold on to its tensors."""
    for name, target, value in _pairs(trainer, weights, buffers):
        if target.shape != value.shape:
            raise ValueError(f"{name} is {tuple(value.shape)} there and {tuple(target.shape)} here")
        target.copy_(value)


def _pairs(
    trainer: Trainer, weights: dict[str, Tensor], buffers: dict[str, Tensor]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    model = trainer.strategy.unwrap()
    for name, parameter in model.named_parameters():
        yield name, parameter, weights[name]
    for name, buffer in model.named_buffers():
        yield name, buffer, buffers[name]
