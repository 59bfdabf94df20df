"""Which of several failures is the cause, and in what words it is told."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from worldsize.errors import DataError, LossNotFiniteError
from worldsize.launch.failure import explain, first_cause, is_echo, say_why
from worldsize.launch.job import Job

LOST_PEER = RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]")


def raised(error: Exception) -> Exception:
    """The error with the traceback that it has in a worker."""
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("error", "kind", "message", "exit_status"),
    [
        (ValueError("no such layer"), "ValueError", "ValueError: no such layer", 1),
        (DataError("truncated\nFetch it again."), "DataError", "truncated\nFetch it again.", 2),
        (LossNotFiniteError("the loss became nan"), "LossNotFiniteError", "the loss became nan", 1),
        (torch.OutOfMemoryError("CUDA out of memory. Tried\nmore"), "OutOfMemory", "CUDA out of memory. Tried", 1),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried\nmore"),
            "OutOfMemory",
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried",
            1,
        ),
    ],
)
def test_an_error_is_told_in_its_own_words(error: Exception, kind: str, message: str, exit_status: int) -> None:
    record = explain(raised(error), rank=1)
    assert (record.kind, record.message, record.exit_status, record.rank) == (kind, message, exit_status, 1)
    assert record.traceback is not None
    assert "raise error" in record.traceback


def test_memory_that_ended_is_told_although_python_has_no_words_for_it() -> None:
    record = explain(raised(MemoryError()), rank=0)
    assert record.kind == "OutOfMemory"
    assert "memory" in record.message


@pytest.mark.parametrize(
    ("error", "echo"),
    [
        (LOST_PEER, True),
        (dist.DistBackendError("NCCL error"), True),
        (dist.DistNetworkError("broken pipe"), True),
        (RuntimeError("shape '[3]' is invalid"), False),
        (ValueError("Connection closed"), False),
        (LossNotFiniteError("the loss became nan"), False),
    ],
)
def test_only_a_lost_peer_is_an_echo(error: Exception, echo: bool) -> None:
    assert is_echo(error) == echo


def cause(folder: Path, said: dict[int, Exception], ended: dict[int, int]) -> tuple[str, int | None]:
    """Kind and rank of the cause: `said` in this order, and exit codes in the order in which the agent lists them."""
    job = Job(entry="module:function", payload={}, processes=3, folder=folder)
    for rank, error in said.items():
        say_why(job.error_file(rank), error, rank)
    record = first_cause(job, ended)
    return record.kind, record.rank


def test_the_first_to_raise_is_the_cause(tmp_path: Path) -> None:
    said = {2: ValueError("first"), 0: TypeError("second"), 1: LOST_PEER}
    assert cause(tmp_path, said, {0: 1, 1: 1, 2: 1}) == ("ValueError", 2)


def test_an_echo_is_not_the_cause_even_if_it_was_first(tmp_path: Path) -> None:
    assert cause(tmp_path, {0: LOST_PEER, 2: ValueError("second")}, {0: 1, 2: 1}) == ("ValueError", 2)


def test_a_killed_worker_outranks_the_echoes(tmp_path: Path) -> None:
    assert cause(tmp_path, {0: LOST_PEER, 2: LOST_PEER}, {0: 1, 1: -9, 2: 1}) == ("Signal", 1)


@pytest.mark.parametrize(("exit_code", "kind"), [(-9, "Signal"), (-11, "Signal"), (-15, "Signal"), (3, "WorkerError")])
def test_one_that_ended_without_a_word_is_the_cause(tmp_path: Path, exit_code: int, kind: str) -> None:
    assert cause(tmp_path, {}, {1: exit_code}) == (kind, 1)


def test_a_worker_that_somebody_else_ended_is_the_cause(tmp_path: Path) -> None:
    assert cause(tmp_path, {0: LOST_PEER}, {1: -15, 0: 1}) == ("Signal", 1)


def test_an_echo_is_told_where_nothing_else_is_known(tmp_path: Path) -> None:
    assert cause(tmp_path, {1: dist.DistBackendError("timed out")}, {1: 1}) == ("DistBackendError", 1)


def test_an_end_without_any_word_is_told(tmp_path: Path) -> None:
    assert cause(tmp_path, {}, {}) == ("WorkerError", None)
