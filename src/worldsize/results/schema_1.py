"""Lines of schema 1, which held steps that were taken apart while they were recorded; its run folders can be read."""

from worldsize.results.records import PARTS, StepRecord

TAKEN_APART = (*PARTS, "comm_s", "overlapped_s")
"""What such a line says of a step: the parts of method.md §2 and its communication, in seconds."""


class TakenApartStep(StepRecord):
    """A step of either schema: with marks, or with its parts."""

    data_wait_s: float | None = None
    copy_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    exposed_sync_s: float | None = None
    optimizer_s: float | None = None
    other_s: float | None = None
    comm_s: float | None = None
    overlapped_s: float | None = None
