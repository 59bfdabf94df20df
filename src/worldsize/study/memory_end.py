"""Did a job end because memory ran out? What an exception did not say, signals and the kernel's counter tell."""

from worldsize.measure.memory_kills import memory_kills
from worldsize.results.records import ErrorRecord

OUT_OF_MEMORY = "OutOfMemory"
AT_THE_LIMIT = ("SIGABRT", "SIGSEGV", "SIGBUS")
"""How a worker ends that runs into its own memory limit where C++ does not expect it."""


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
