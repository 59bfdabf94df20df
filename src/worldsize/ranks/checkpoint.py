"""Save what a workload is made of, and put it back bit for bit on as many ranks, whatever the work is.

Rank 0 writes what all ranks have in common; each rank writes what only it has, and its own of the common where that
differs from rank 0's. So ranks on other hosts, with other file systems, need no more than their own files and rank 0's
word.
"""

import hashlib
import io
import itertools
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist
from torch import Tensor

from worldsize.errors import OutputError
from worldsize.ranks.heartbeat import beat
from worldsize.ranks.host_collectives import agree, gather, send_bytes
from worldsize.ranks.workload import MisfitError, State, Workload
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


def save(workload: Workload, folder: Path) -> None:
    """Write a checkpoint of all ranks; the one before it counts until this one is whole. Raises OutputError.

    Not to be called within a timed step: it waits for the device, the disk and all other ranks.
    """
    rank, processes, step = workload.world.channel.rank, workload.world.channel.world_size, workload.steps
    found = find_checkpoint(folder) if rank == 0 else None
    if agree(found is not None and found.step == step, processes):
        return  # written over, its parts would be old and new ones for a moment
    state = workload.state()
    fingerprints = gather(_fingerprint(state) if processes > 1 else "", processes)
    apart = [other for other, found in enumerate(fingerprints) if found != fingerprints[0]]
    own = {**state.own, **state.common} if rank in apart else state.own
    parts = [_written(folder / _own_name(rank, step), own)]
    if rank == 0:
        parts += [_written(folder / f"{name}-{step}.pt", content) for name, content in state.common.items()]
    answer = gather([part.model_dump() for part in parts], processes)
    everyone = [[Part.model_validate(part) for part in of_rank] for of_rank in answer]
    if rank == 0:
        write_index(folder, _index(workload, state, everyone, apart))
    if processes > 1:
        dist.barrier()  # no rank removes an old part before the index names the new ones
    remove_others(folder, itertools.chain(*everyone), "" if rank == 0 else f"rank{rank}-")


def _own_name(rank: int, step: int) -> str:
    return f"rank{rank}-{step}.pt"


def _index(workload: Workload, state: State, parts: list[list[Part]], apart: list[int]) -> CheckpointRecord:
    epoch, epoch_step = divmod(state.steps, workload.steps_per_epoch)
    return CheckpointRecord(
        processes=len(parts),
        device=workload.world.device.type,
        step=state.steps,
        epoch=epoch,
        epoch_step=epoch_step,
        parts=parts,
        apart=apart,
        **state.belongs_to,
    )


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


def _fingerprint(state: State) -> str:
    """A digest of what should be the same on all ranks, and is not where a strategy lets them drift apart."""
    digest = hashlib.sha256()
    for value in state.replicated:
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
    answer = agree(seen, processes)
    if "error" in answer:
        raise OutputError(answer["error"])
    return CheckpointRecord.model_validate_json(answer["record"]) if "record" in answer else None


def restore(workload: Workload, folder: Path, record: CheckpointRecord) -> None:
    """Make the workload what it was when the checkpoint was written; raise OutputError if its parts do not fit.

    All ranks call it together.
    """
    rank, processes = workload.world.channel.rank, workload.world.channel.world_size
    own_path = folder / _own_name(rank, record.step)
    mine = {part.name: part for part in record.parts[rank]}
    own = _loaded(own_path, read_part(folder, mine[own_path.name]))
    paths = {_name_of(part): folder / part.name for part in record.parts[0] if part.name != _own_name(0, record.step)}
    common = {}
    for name, path in paths.items():
        content = read_part(folder, mine[path.name]) if rank == 0 else b""
        common[name] = _loaded(path, content if processes == 1 else send_bytes(content, source=0))
    if rank in record.apart:
        common, paths = {name: own[name] for name in paths}, dict.fromkeys(paths, own_path)
    try:
        workload.restore(State(record.step, common, own))
    except MisfitError as misfit:
        raise unusable(paths.get(misfit.part, own_path), str(misfit)) from None


def _name_of(part: Part) -> str:
    """`model` of `model-12.pt`."""
    return part.name.rpartition("-")[0]


def _loaded(path: Path, content: bytes) -> Any:
    try:
        # weights_only: a checkpoint is data, and must not be able to run anything.
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise unusable(path, f"torch cannot load it ({str(error).partition(chr(10))[0]})") from None
