"""Is there room on the GPUs for another cell, beside those that wait for their turns? Their workers have told."""

from collections.abc import Iterable, Sequence

from worldsize.ranks.turns import Reply

CONTEXT_BYTES = 2**29
"""What a process takes on a GPU beside what its allocator holds: the context, kernels, buffers of NCCL."""


class DeviceRoom:
    """What is free on the fullest GPU, by the last that a worker has said of it; nothing is known of a CPU."""

    def __init__(self) -> None:
        self._free_bytes: int | None = None
        self._held_bytes: dict[str, int] = {}
        self._largest_bytes = 0

    def told(self, cell_id: str, replies: Sequence[Reply]) -> None:
        """The ranks of a cell have done a turn."""
        seen = [reply.device_memory for reply in replies if reply.device_memory]
        if seen:
            self._free_bytes = min(memory.free_bytes for memory in seen)
            self._held_bytes[cell_id] = max(memory.reserved_bytes for memory in seen) + CONTEXT_BYTES
            most = max(memory.peak_reserved_bytes for memory in seen) + CONTEXT_BYTES
            self._largest_bytes = max(self._largest_bytes, most)

    def left(self, cell_ids: Iterable[str]) -> None:
        """The workers of these cells have ended, and what they held is free."""
        for cell_id in cell_ids:
            held = self._held_bytes.pop(cell_id, 0)
            if self._free_bytes is not None:
                self._free_bytes += held

    def is_short(self) -> bool:
        """Whether a cell as large as the largest so far may not fit."""
        return self._free_bytes is not None and self._free_bytes < self._largest_bytes
