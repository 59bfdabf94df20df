"""Tensors of which a rank has a part (DTensors of torch), and those that it has as a whole, alike."""

from torch import Tensor


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
