"""A rank that works longer than its peers is named: which, where, in what part, by how much, and why if it was seen."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advised import SINGLE, Change, codes, evidence, exchanging, found, gain, steps, study
from worldsize.analysis.verdict import verdict

FOUR = replace(exchanging(exposed=0.2, world_size=4), batch_size=SINGLE.batch_size)


def slow(part: str, seconds: float, *ranks: int, reference: float = 1.0) -> Change:
    """These ranks take so much longer for a part, and the others wait for them; and the short computation there."""

    def change(rank: int, record: dict[str, Any]) -> None:
        slower = rank in ranks
        record[part if slower else "exposed_sync_s"] += seconds
        record["comm_s"] += 0.0 if slower else seconds
        record["step_s"] += seconds
        record["reference_s"] = 0.004 * (reference if slower else 1.0) * (1 + 0.01 * (record["block"] % 3))

    return change


@pytest.mark.parametrize(
    ("part", "word"),
    [
        ("data_wait_s", "data wait"),
        ("forward_s", "forward"),
        ("backward_s", "backward"),
        ("optimizer_s", "optimizer"),
        ("other_s", "the rest of the step"),
    ],
)
def test_it_comes_first_with_its_part_and_its_milliseconds(tmp_path: Path, part: str, word: str) -> None:
    analysis = study(tmp_path, [SINGLE, FOUR], changes=[steps(FOUR, slow(part, 0.3, 2))])
    advice = found(analysis, "slow-rank")
    assert codes(analysis)[0] == "slow-rank"
    assert advice is not None
    assert advice.finding.startswith("Rank 2 of ddp")
    assert (
        f"takes 300 [300, 300] ms longer per step than the others, 300 [300, 300] ms of it in {word}" in advice.finding
    )
    assert gain(advice) == "at most 1.60 [1.60, 1.60] times the samples/s"  # 800 / 500
    assert "rank 2" in advice.next_step
    assert "rank 2 of ddp" in verdict(analysis)


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        (1.0, "More is done there, or something is waited for: a short computation"),
        (1.8, "The cores there are slower or busier: a short computation"),
    ],
)
def test_the_cores_are_only_blamed_where_they_were_seen_to_be_slower(
    tmp_path: Path, reference: float, told: str
) -> None:
    change = steps(FOUR, slow("backward_s", 0.3, 1, reference=reference))
    advice = found(study(tmp_path, [SINGLE, FOUR], changes=[change]), "slow-rank")
    assert advice is not None
    assert advice.cause.startswith(told)
    assert f"{reference:.2f}" in evidence(advice)["A short computation beside the steps, there ÷ on the others"]


def test_without_the_short_computation_nothing_is_said_of_the_cores(tmp_path: Path) -> None:
    def change(rank: int, record: dict[str, Any]) -> None:
        slow("backward_s", 0.3, 1)(rank, record)
        record["reference_s"] = None

    advice = found(study(tmp_path, [SINGLE, FOUR], changes=[steps(FOUR, change)]), "slow-rank")
    assert advice is not None
    assert "was not measured" in advice.cause


def test_two_of_four(tmp_path: Path) -> None:
    advice = found(study(tmp_path, [SINGLE, FOUR], changes=[steps(FOUR, slow("forward_s", 0.3, 1, 3))]), "slow-rank")
    assert advice is not None
    assert advice.finding.startswith("Ranks 1 and 3 of ddp")
    assert " take 300 " in advice.finding


def in_turn(rank: int, record: dict[str, Any]) -> None:
    slow("forward_s", 0.3, record["step"] % 4)(rank, record)


def little(rank: int, record: dict[str, Any]) -> None:
    slow("forward_s", 0.02, 1)(rank, record)


def now_and_then(rank: int, record: dict[str, Any]) -> None:
    if record["block"] % 4 == 1:
        slow("forward_s", 0.05, 1)(rank, record)


def gradually(rank: int, record: dict[str, Any]) -> None:
    slow("forward_s", 0.05 * rank, rank)(rank, record)


@pytest.mark.parametrize("change", [in_turn, little, now_and_then, gradually])
def test_no_rank_is_accused(tmp_path: Path, change: Callable[[int, dict[str, Any]], None]) -> None:
    """Who is late in turn, by less than 5 % of the step, in a few blocks only, or little more than the next one."""
    assert "slow-rank" not in codes(study(tmp_path, [SINGLE, FOUR], changes=[steps(FOUR, change)]))


def test_where_all_wait_for_data_it_is_the_loader(tmp_path: Path) -> None:
    def change(rank: int, record: dict[str, Any]) -> None:
        more = 0.4 if rank == 1 else 0.2
        record["data_wait_s"] += more
        record["exposed_sync_s"] += 0.4 - more
        record["comm_s"] += 0.4 - more
        record["step_s"] += 0.4

    found_codes = codes(study(tmp_path, [SINGLE, FOUR], changes=[steps(FOUR, change)]))
    assert {"input-bound", "slow-rank"} <= set(found_codes)


@pytest.mark.parametrize(("exposed", "told"), [(0.02, False), (0.3, True)])
def test_the_waiting_of_the_others_is_not_told_again_as_communication(
    tmp_path: Path, exposed: float, told: bool
) -> None:
    """All that is exposed is waiting, or there is as much again that is not."""
    four = replace(exchanging(exposed=exposed, world_size=4), batch_size=SINGLE.batch_size)
    found_codes = codes(study(tmp_path, [SINGLE, four], changes=[steps(four, slow("forward_s", 0.3, 2))]))
    assert found_codes[0] == "slow-rank"
    assert ("communication-bound" in found_codes) is told
