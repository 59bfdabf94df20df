"""What a worker says of the memory of its device."""

from worldsize.results.records import Record


class DeviceMemory(Record):
    """Memory of a device as its worker sees it. A CPU has none of it."""

    free_bytes: int
    """Of the whole device, beside all that its processes hold."""
    reserved_bytes: int
    """What the allocator of this worker holds, tensors in it or not: nobody else can have that."""
    peak_reserved_bytes: int
