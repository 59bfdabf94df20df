"""What ranks tell each other beside gradients: JSON and bytes, through the process group.

torch's own collectives for objects (`all_gather_object`, `broadcast_object_list`) unpickle what arrives: whoever can
write to the wire could run code on every node. JSON runs nothing.
"""

import json
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

CHUNK_BYTES = 2**26
"""Bytes that are sent at a time, so that a large file is never twice in memory."""
WAIT = timedelta(days=365)
"""How long a rank may wait for another here: as long as a turn takes that the others have no part in."""


class _BetweenCpus:
    """All ranks once more, over gloo: who waits in it takes no GPU, and no core either."""

    group: dist.ProcessGroup | None = None


def open_between_cpus() -> None:
    """Let ranks meet on their CPUs from here on, for as long as it takes; all ranks call it together.

    In the group of the gradients a wait is a kernel that spins on the device, beside what is timed there, and it
    ends the run after ten minutes (NCCL) or thirty (gloo).
    """
    if _BetweenCpus.group is None:
        _BetweenCpus.group = dist.new_group(backend="gloo", timeout=WAIT)


def close_between_cpus() -> None:
    """Forget it, before the groups are destroyed."""
    _BetweenCpus.group = None


def between_cpus() -> dist.ProcessGroup | None:
    """The ranks where they meet on their CPUs; None is the default group."""
    return _BetweenCpus.group


def gather(value: Any, processes: int) -> list[Any]:
    """The value of every rank, on every rank: a collective that all ranks call.

    Values are what JSON holds: tuples come back as lists. With one process no process group is needed.
    """
    content = json.dumps(value).encode()
    if processes == 1:
        return [json.loads(content)]
    device = _device()
    sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(processes)]
    dist.all_gather(sizes, torch.tensor([len(content)], device=device), group=between_cpus())
    most = max(int(size) for size in sizes)
    parcels = [torch.empty(most, dtype=torch.uint8, device=device) for _ in range(processes)]
    dist.all_gather(parcels, _tensor(content.ljust(most), device), group=between_cpus())
    return [json.loads(_bytes(parcel)) for parcel in parcels]  # JSON minds no blanks at its end


def agree(value: Any, processes: int) -> Any:
    """Rank 0's value, on every rank; what the others give is not looked at. Values are what JSON holds."""
    if processes == 1:
        return json.loads(json.dumps(value))
    first = dist.get_rank() == 0
    content = send_bytes(json.dumps(value).encode() if first else b"", source=0)
    return json.loads(content)


def send_bytes(content: bytes, source: int) -> bytes:
    """The bytes of the rank `source`, on every rank; what the others give is not looked at."""
    device = _device()
    size = torch.tensor([len(content)], device=device)
    dist.broadcast(size, src=source, group=between_cpus())
    received = bytearray()
    for begin in range(0, int(size), CHUNK_BYTES):
        length = min(CHUNK_BYTES, int(size) - begin)
        if dist.get_rank() == source:
            parcel = _tensor(content[begin : begin + length], device)
        else:
            parcel = torch.empty(length, dtype=torch.uint8, device=device)
        dist.broadcast(parcel, src=source, group=between_cpus())
        received += _bytes(parcel)
    return bytes(received)


def _device() -> torch.device:
    """Where the backend wants its tensors."""
    if dist.get_backend(between_cpus()) == "gloo":
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def _tensor(content: bytes, device: torch.device) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).to(device)


def _bytes(parcel: Tensor) -> bytes:
    return parcel.cpu().numpy().tobytes()
