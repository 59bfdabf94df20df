"""A model in shards: the blocks that are gathered one by one, and the part of a tensor that a rank holds.

Blocks are gathered one by one so that one travels while another computes. Parts are DTensors of torch; a tensor that a
rank holds whole is its own part.
"""

from collections import Counter
from collections.abc import Iterator

from torch import Tensor, nn

from worldsize.strategies.channel import payload_bytes

MIN_BLOCK_BYTES = 2**18
"""Smaller ones stay with the root: their messages would be latency and little else."""
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
"""Those whose parts are looked at, not they themselves; two of them have no forward at all."""


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The largest parts of a model that are worth a message of their own, in its order; what is left is its root's.

    A part that holds more than half of all parameters is taken apart itself, where it has a container in it. One whose
    parameters are used in another place as well stays with the root, which is gathered before all others.
    """
    uses = Counter(id(parameter) for _, parameter in model.named_parameters(remove_duplicate=False))
    half = payload_bytes(*model.parameters()) / 2
    return list(_within(model, half, {number for number, count in uses.items() if count > 1}))


def _within(module: nn.Module, half: float, shared: set[int]) -> Iterator[nn.Module]:
    for child in module.children():
        parameters = list(child.parameters())
        size = payload_bytes(*parameters)
        opens = size > half and any(isinstance(part, CONTAINERS) for part in child.children())
        if isinstance(child, CONTAINERS) or opens:
            yield from _within(child, half, shared)
        elif size >= MIN_BLOCK_BYTES and not any(id(parameter) in shared for parameter in parameters):
            yield child


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that is on this rank: all of it, unless it is a shard."""
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part


def as_shard_of(whole: Tensor, part: Tensor) -> Tensor:
    """A part on this rank as a shard that is cut as `whole` is."""
    from torch.distributed.tensor import DTensor  # half a second to load, and only shards need it

    assert isinstance(whole, DTensor), "only a shard has a part that is not all of it"
    return DTensor.from_local(
        part, whole.device_mesh, whole.placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )
