"""Memory of the cells: whether a job ended because it ran out, and whether GPUs have room for another cell.

Signals and the kernel's counter tell what an exception did not say; of GPUs the workers of waiting cells have told.
"""

from collections.abc import Iterable, Sequence

from worldsize.measure.conditions import memory_kills
from worldsize.ranks.turns import Reply
from worldsize.results.records import ErrorRecord

OUT_OF_MEMORY = "OutOfMemory"
AT_THE_LIMIT = ("SIGABRT", "SIGSEGV", "SIGBUS")
"""How a worker ends that runs into its own memory limit where C++ does not expect it."""
CONTEXT_BYTES = 2**29
"""What a process takes on a GPU beside what its allocator holds: the context, kernels, buffers of NCCL."""


def judged(error: ErrorRecord, kills_before: int | None, *, limited: bool) -> ErrorRecord:
    """The same error, or `OutOfMemory` where a worker was killed and memory was the cause.

    `kills_before` is `memory_kills()` before the job was started, `limited` whether its workers had a memory limit.
    """
    if error.kind != "Signal":
        return error
    kills = memory_kills()
    if "SIGKILL" in error.message and kills_before is not None and kills is not None and kills > kills_before:
        return _because(error, "the kernel ended it because memory ran out")
    if limited and any(name in error.message for name in AT_THE_LIMIT):
        return _because(error, "it had reached its memory limit")
    return error


def _because(error: ErrorRecord, cause: str) -> ErrorRecord:
    said = error.message.split(";")[0]
    return error.model_copy(update={"kind": OUT_OF_MEMORY, "message": f"{said}: {cause}"})


class DeviceRoom:
    """What is free on the fullest GPU, by the last that a worker has said of it; nothing is known of a CPU."""

    def __init__(self) -> None:
        self._free_bytes: int | None = None
        self._held_bytes: dict[str, int] = {}
        self._largest_bytes = 0

    def note(self, cell_id: str, replies: Sequence[Reply]) -> None:
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
