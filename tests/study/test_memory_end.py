"""A killed worker ran out of memory only where the kernel's counter, or its own limit, says so."""

import pytest

from worldsize.results.records import ErrorRecord
from worldsize.study import memory as study_memory
from worldsize.study.memory import judged


def killed(signal: str) -> ErrorRecord:
    return ErrorRecord(kind="Signal", message=f"rank 1 was killed by {signal}; a hint", rank=1)


@pytest.mark.parametrize(
    ("signal", "before", "after", "limited", "memory"),
    [
        ("SIGKILL", 3, 4, False, True),
        ("SIGKILL", 3, 3, False, False),
        ("SIGKILL", None, None, False, False),
        ("SIGSEGV", 3, 4, False, False),
        ("SIGABRT", 3, 3, True, True),
        ("SIGTERM", 3, 4, True, False),
    ],
)
def test_who_killed_it(
    monkeypatch: pytest.MonkeyPatch, signal: str, before: int | None, after: int | None, limited: bool, memory: bool
) -> None:
    monkeypatch.setattr(study_memory, "memory_kills", lambda: after)
    found = judged(killed(signal), before, limited=limited)
    assert (found.kind == "OutOfMemory") is memory
    assert found.rank == 1
    assert signal in found.message


def test_other_errors_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_memory, "memory_kills", lambda: 9)
    error = ErrorRecord(kind="ValueError", message="ValueError: no", rank=0)
    assert judged(error, 3, limited=True) is error
