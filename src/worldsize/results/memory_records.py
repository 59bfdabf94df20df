"""What the memory of a training process is made of (method.md §9), and what a worker says of that of its device."""

from worldsize.results.base import Record


class MemoryParts(Record):
    """Bytes of the tensors of one rank, counted, not measured; what they leave of its peak is activations and more."""

    rank: int
    """The rank of the cell with the largest peak."""
    parameter_bytes: int
    buffer_bytes: int
    """Buffers of the model, such as BatchNorm statistics."""
    gradient_bytes: int
    """The gradients that were there after the backward of its first step."""
    optimizer_bytes: int
    """Tensors in the optimizer's state: momentum, second moments, step counts."""
    copy_bytes: int
    """The strategy's own copies of weights and gradients: buckets, replicas."""
    before_bytes: int | None = None
    """In use before the first step beside the model: data in memory, what torch needs; None where that is unknown."""

    @property
    def known_bytes(self) -> int:
        """All of them."""
        tensors = self.parameter_bytes + self.buffer_bytes + self.gradient_bytes
        return tensors + self.optimizer_bytes + self.copy_bytes + (self.before_bytes or 0)


class DeviceMemory(Record):
    """Memory of a device as its worker sees it. A CPU has none of it."""

    free_bytes: int
    """Of the whole device, beside all that its processes hold."""
    reserved_bytes: int
    """What the allocator of this worker holds, tensors in it or not: no other process can have that."""
    peak_reserved_bytes: int
