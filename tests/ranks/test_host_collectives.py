"""What ranks tell each other arrives as it was, on all of them, and is never unpickled."""

from pathlib import Path

import pytest

from jobs import start
from launch_entries import WORDS
from worldsize.launch.local import JobFailed
from worldsize.ranks.host_collectives import agree, gather


def test_two_ranks_exchange_json_and_bytes(tmp_path: Path) -> None:
    job = start("launch_entries:exchanging", 2, tmp_path)
    try:
        replies = [reply["said"] for reply in job.receive()]
    finally:
        job.close()
    for reply in replies:
        assert reply["gathered"] == [WORDS[0], WORDS[1]]
        assert reply["agreed"] == WORDS[0]
        assert reply["bytes"] == [[0, 0], [1000, sum(bytes(range(250))) * 4]]
        assert "PickleBomb" in reply["refused"]


def test_one_process_needs_no_group() -> None:
    assert gather({"a": (1, 2.5, None)}, 1) == [{"a": [1, 2.5, None]}]
    assert agree("word", 1) == "word"


def test_what_json_does_not_hold_is_refused() -> None:
    with pytest.raises(TypeError):
        gather(object(), 1)


def test_a_rank_waits_for_another_for_as_long_as_its_turn_takes(tmp_path: Path) -> None:
    """While rank 0 runs a cell of one worker for an epoch, the others are in no collective that a time-out ends."""
    job = start("launch_entries:waiting", 2, tmp_path, between_cpus=True)
    try:
        assert [reply["said"] for reply in job.receive()] == [["at last", [0, 1], True]] * 2
    finally:
        job.close()


def test_the_wait_that_is_proved_would_fail_in_the_group_of_the_gradients(tmp_path: Path) -> None:
    job = start("launch_entries:waiting", 2, tmp_path, between_cpus=False)
    try:
        with pytest.raises(JobFailed):
            job.receive()
    finally:
        job.close()


def test_a_wrapped_cell_of_one_worker_has_a_group_of_its_own(tmp_path: Path) -> None:
    """DDP compares its model over its group when it is made: in that of all ranks it would wait for those that wait."""
    wrappers = ["ddp", "bucketed", "all-reduce", "gather-scatter"]
    job = start("launch_entries:wrapped_alone", 2, tmp_path, strategies=wrappers)
    try:
        assert [reply["said"] for reply in job.receive()] == [[wrappers, []]] * 2
    finally:
        job.close()
