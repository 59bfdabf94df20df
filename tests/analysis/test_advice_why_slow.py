"""Why a rank, some steps or several workers are slow is said only as far as it was seen: by threads, or in a trace."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advised import SINGLE, Change, acting, evidence, exchanging, found, records, steps, study
from made_traces import event, trace, write_traces
from worldsize.analysis.advice import Advice
from worldsize.config import StudySettings, validated
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run, write_study
from worldsize.results.records import CellRecord

FOUR = replace(exchanging(exposed=0.2, world_size=4), batch_size=SINGLE.batch_size)
USUAL = {"cpu_s": 0.2, "queued_s": 0.01}


def later(part: str, seconds: float, rank: int = 2) -> Change:
    """One rank takes so much longer, and the others wait for it."""

    def change(mine: int, record: dict[str, Any]) -> None:
        record[part if mine == rank else "exposed_sync_s"] += seconds
        record["comm_s"] += 0.0 if mine == rank else seconds
        record["step_s"] += seconds
        record["reference_s"] = 0.004 * (1 + 0.01 * (record["block"] % 3))

    return change


def slow_rank(folder: Path, more: dict[str, float] | None = None, *, part: str = "forward_s") -> Advice:
    """The advice where rank 2 takes 300 ms longer, and its thread did so much `more` of something."""
    own = {**USUAL, **{name: USUAL.get(name, 0.0) + value for name, value in (more or {}).items()}}
    told = acting(FOUR, USUAL, USUAL, own, USUAL)
    advice = found(study(folder, [SINGLE, FOUR], changes=[steps(FOUR, later(part, 0.3)), told]), "slow-rank")
    assert advice is not None
    return advice


@pytest.mark.parametrize(
    ("more", "cause", "step", "seen"),
    [
        ({"cpu_s": 0.29}, "More is done there", "must do in forward", "computing"),
        ({"queued_s": 0.25, "cpu_s": 0.02}, "Other work uses the cores there", "what else runs", "a core"),
        ({"cpu_s": 0.3, "collected_s": 0.28}, "Python collects garbage", "gc.freeze()", "garbage"),
        ({}, "a sleep, or waiting for a disk, a lock", "alone must wait for", "neither computing"),
        ({"major_faults": 5.0}, "5.0 pages per step come from a disk", "alone must wait for", "neither computing"),
    ],
)
def test_what_the_thread_did(tmp_path: Path, more: dict[str, float], cause: str, step: str, seen: str) -> None:
    advice = slow_rank(tmp_path, more)
    assert cause in advice.cause
    assert step in advice.next_step
    assert any(seen in label for label in evidence(advice))


def test_where_nothing_is_most_of_it_no_cause_is_asserted(tmp_path: Path) -> None:
    advice = slow_rank(tmp_path, {"cpu_s": 0.12, "queued_s": 0.1})
    assert not any(label.startswith("Of what it takes longer") for label in evidence(advice))
    assert "or something is waited for" in advice.cause


def test_a_system_that_does_not_tell_of_queues_leaves_open_whether_it_sleeps(tmp_path: Path) -> None:
    def untold(record: CellRecord) -> None:
        for block in record.activities:
            block.queued_s = [None] * len(block.queued_s)

    changes = [steps(FOUR, later("forward_s", 0.3)), acting(FOUR, *[USUAL] * 4), records(FOUR, untold)]
    advice = found(study(tmp_path, [SINGLE, FOUR], changes=changes), "slow-rank")
    assert advice is not None
    assert "sleep" not in advice.cause


def test_a_late_batch_says_whether_its_own_process_computes_it(tmp_path: Path) -> None:
    assert "another process, a disk or the network" in slow_rank(tmp_path / "a", part="data_wait_s").cause
    computing = slow_rank(tmp_path / "b", {"cpu_s": 0.28}, part="data_wait_s")
    assert "The batches come later there" in computing.cause
    assert evidence(computing)["Of what it takes longer, computing"] == "280 [280, 280] ms"


SLOWER = replace(exchanging(exposed=0.02, world_size=2, step_s=0.8), batch_size=SINGLE.batch_size)


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({"cpu_s": 0.2}, "memory bandwidth"),
        ({"queued_s": 0.2}, "take cores from each other"),
        ({}, "neither compute nor wait for a core"),
    ],
)
def test_why_several_compute_longer_than_one(tmp_path: Path, more: dict[str, float], cause: str) -> None:
    own = {**USUAL, **{name: USUAL.get(name, 0.0) + value for name, value in more.items()}}
    changes = [acting(SINGLE, USUAL), acting(SLOWER, own, own)]
    advice = found(study(tmp_path, [SINGLE, SLOWER], changes=changes), "compute-slower")
    assert advice is not None
    assert cause in advice.cause


def stall(_: int, record: dict[str, Any]) -> None:
    if record["step"] % 3 == 0:
        record["forward_s"] += 1.0
        record["step_s"] += 1.0


def now_and_then(_: int, record: dict[str, Any]) -> None:
    if record["step"] in (2, 7, 8, 13, 15, 19):
        record["forward_s"] += 1.0
        record["step_s"] += 1.0


FAST = exchanging("ddp", exposed=0.02)


def test_long_steps_in_which_garbage_is_collected(tmp_path: Path) -> None:
    """Regular or not: it is known what they are made of."""
    regular, irregular = steps(FAST, stall), steps(FAST, now_and_then)
    told = acting(FAST, USUAL, {**USUAL, "collected_s": 0.3})
    advice = found(study(tmp_path / "a", [SINGLE, FAST], changes=[regular, told]), "periodic-stall")
    assert advice is not None
    assert advice.cause.startswith("Python collects garbage")
    assert "gc.freeze()" in advice.next_step
    advice = found(study(tmp_path / "b", [SINGLE, FAST], changes=[irregular, told]), "periodic-stall")
    assert advice is not None
    assert " % of the steps of ddp" in advice.finding
    apart = acting(FAST, USUAL, {**USUAL, "collected_s": 0.3, "most_collected_s": 0.3})
    advice = found(study(tmp_path / "d", [SINGLE, FAST], changes=[regular, apart]), "periodic-stall")
    assert advice is not None
    assert "not done in each step" in advice.cause, "what is collected in each step alike makes none of them long"
    silent = found(
        study(tmp_path / "c", [SINGLE, FAST], changes=[irregular, acting(FAST, USUAL, USUAL)]), "periodic-stall"
    )
    assert silent is None, "irregular, and not for garbage"


def traced(*operators: tuple[str, float, float]) -> dict[str, Any]:
    """One step of 500 ms with these operators: name, begin and length (ms)."""
    step = event("ProfilerStep#0", 0, 500_000, cat="user_annotation")
    return trace(step, *(event(name, 1e3 * begin, 1e3 * length) for name, begin, length in operators))


MM = ("aten::mm", 0.0, 100.0)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ([("aten::mm", 0.0, 500.0), ("aten::copy_", 10.0, 350.0)], "aten::copy_ (350 ms)"),
        ([MM, ("aten::sort", 150.0, 320.0)], "aten::sort (320 ms)"),
        ([MM], ""),
    ],
)
def test_the_trace_of_a_slow_rank_is_read(tmp_path: Path, own: list[tuple[str, float, float]], said: str) -> None:
    """An operator counts without those that it calls."""

    def write(folder: Path) -> None:
        usual = traced(MM)
        write_traces(cell_folder(folder, FOUR.id), [usual, usual, traced(*own), usual])

    changes = [steps(FOUR, later("forward_s", 0.3)), write]
    advice = found(study(tmp_path, [SINGLE, FOUR], changes=changes), "slow-rank")
    assert advice is not None
    assert (f"In the trace of rank 2, more than on the others: {said}" in advice.cause) is bool(said)
    assert advice.command is None, "the trace is there"


def test_time_outside_of_operators_is_python_or_waiting(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        usual = traced(("aten::mm", 0.0, 500.0))
        write_traces(cell_folder(folder, FOUR.id), [usual, usual, traced(("aten::mm", 0.0, 180.0)), usual])

    changes = [steps(FOUR, later("forward_s", 0.3)), write]
    advice = found(study(tmp_path, [SINGLE, FOUR], changes=changes), "slow-rank")
    assert advice is not None
    assert "time outside of any operator (320 ms)" in advice.cause
    assert "Python, a sleep, or waiting" in advice.cause


def test_traces_of_several_are_read_beside_those_of_one(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        write_traces(cell_folder(folder, SINGLE.id), [traced(MM)])
        slower = traced(("aten::mm", 0.0, 400.0))
        write_traces(cell_folder(folder, SLOWER.id), [slower, slower])

    advice = found(study(tmp_path, [SINGLE, SLOWER], changes=[write]), "compute-slower")
    assert advice is not None
    assert f"In the traces, more than in {SINGLE.id}: aten::mm (300 ms)" in advice.cause


def test_without_a_trace_one_is_advised_where_it_tells_more(tmp_path: Path) -> None:
    assert "--profile" in str(slow_rank(tmp_path / "a", {"cpu_s": 0.29}).command)
    assert slow_rank(tmp_path / "b").command is None, "a trace does not tell what a thread waits for"


def stalls_on_rank_1(rank: int, record: dict[str, Any]) -> None:
    if record["step"] % 3 == 0:
        part = "forward_s" if rank == 1 else "exposed_sync_s"
        record[part] += 1.0
        record["step_s"] += 1.0


def test_what_one_rank_does_now_and_then_is_told_once_with_the_rank(tmp_path: Path) -> None:
    analysis = study(tmp_path, [SINGLE, FAST], changes=[steps(FAST, stalls_on_rank_1)])
    advice = found(analysis, "periodic-stall")
    assert advice is not None
    assert "Every 3 steps" in advice.finding
    assert advice.finding.endswith("most of it in the forward pass of rank 1.")
    assert found(analysis, "slow-rank") is None


def test_a_rank_that_is_slow_in_each_step_is_named_beside_a_stall_of_all(tmp_path: Path) -> None:
    """The stall is not blamed on that rank, and does not hide it."""

    def change(rank: int, record: dict[str, Any]) -> None:
        stall(rank, record)
        part = "forward_s" if rank == 1 else "exposed_sync_s"
        record[part] += 0.3
        record["step_s"] += 0.3

    analysis = study(tmp_path, [SINGLE, FAST], changes=[steps(FAST, change)])
    slow, long = found(analysis, "slow-rank"), found(analysis, "periodic-stall")
    assert slow is not None
    assert slow.finding.startswith("Rank 1 of ddp")
    assert long is not None
    assert "rank 1" not in long.finding


def of_a_script(folder: Path) -> None:
    settings = validated(StudySettings, {"script": ("train.py",), "world_sizes": (1, 2, 4), "budget": "60s"})
    update = {"settings": settings, "data": None, "model": None}
    write_study(folder, load_run(folder).study.model_copy(update=update))


def test_of_a_script_no_trace_is_promised(tmp_path: Path) -> None:
    """`--profile` is of worldsize's own training."""
    more = {**USUAL, "cpu_s": 0.49}
    changes = [steps(FOUR, later("forward_s", 0.3)), acting(FOUR, USUAL, USUAL, more, USUAL), of_a_script]
    advice = found(study(tmp_path / "a", [SINGLE, FOUR], changes=changes), "slow-rank")
    assert advice is not None
    assert "trace" not in advice.next_step
    advice = found(study(tmp_path / "b", [SINGLE, SLOWER], changes=[of_a_script]), "compute-slower")
    assert advice is not None
    assert "race" not in advice.next_step


def threads(count: int) -> Any:
    def change(record: CellRecord) -> None:
        assert record.placement is not None
        record.placement = record.placement.model_copy(update={"threads_per_worker": count})

    return records(FOUR, change)


def test_of_several_threads_one_may_wait_for_another(tmp_path: Path) -> None:
    """Which has lost its core: that is no sleep. What is computed is known all the same."""
    idle, computing = acting(FOUR, *[USUAL] * 4), acting(FOUR, USUAL, USUAL, {"cpu_s": 0.49}, USUAL)
    slow = steps(FOUR, later("forward_s", 0.3))
    advice = found(study(tmp_path / "a", [SINGLE, FOUR], changes=[slow, idle, threads(2)]), "slow-rank")
    assert advice is not None
    assert "or something is waited for" in advice.cause
    advice = found(study(tmp_path / "b", [SINGLE, FOUR], changes=[slow, computing, threads(2)]), "slow-rank")
    assert advice is not None
    assert "the training thread computes" in advice.cause


def test_slower_cores_are_the_cause_whatever_else_is_seen(tmp_path: Path) -> None:
    def change(rank: int, record: dict[str, Any]) -> None:
        later("forward_s", 0.3)(rank, record)
        record["reference_s"] *= 1.8 if rank == 2 else 1.0

    told = acting(FOUR, *[USUAL] * 4)
    advice = found(study(tmp_path, [SINGLE, FOUR], changes=[steps(FOUR, change), told]), "slow-rank")
    assert advice is not None
    assert advice.cause.startswith("The cores there are slower or busier")
    assert "what else runs" in advice.next_step
    assert advice.command is None
