import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from advised import codes
from advised import study as with_settings
from made_runs import SHARES, MadeCell, make_run, synchronised, usual_cells
from worldsize.analysis.decision import decide, is_decided
from worldsize.analysis.headline import headline
from worldsize.analysis.statistics import Ratio
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.verdict import step_sum, verdict
from worldsize.results.folder import load_run
from worldsize.results.records import ErrorRecord, Estimate


def study(folder: Path, cells: Sequence[MadeCell], **options: object) -> StudyAnalysis:
    return analyse(load_run(make_run(folder, cells, **options)))  # type: ignore[arg-type]


def several(step_s: float, shares: dict[str, float], strategy: str = "ddp", **options: object) -> MadeCell:
    return replace(MadeCell(strategy, 2, step_s=step_s, shares=shares, rank_spread=0), **options)  # type: ignore[arg-type]


SINGLE = MadeCell("single", 1)


def test_names_the_fastest_its_speed_up_its_baseline_and_its_largest_loss(tmp_path: Path) -> None:
    even = [replace(cell, rank_spread=0) for cell in usual_cells(noise=0)]
    assert verdict(study(tmp_path, even)) == (
        "2 workers are 1.80 times as fast as one with as many cores as each of them (at least 1.80, by one launch). "
        "The fastest multi-worker configuration is ddp with 2 workers at b = 32: 115 samples/s, a scaled speed-up of "
        "1.80 [1.80, 1.80] over single-w1-b32 (efficiency 90.0 %). Its largest loss is exposed communication: "
        "33.3 ms of a mean step of 556 ms, 6.00 %."
    )


def test_the_step_is_that_of_one_worker_and_what_was_lost(tmp_path: Path) -> None:
    """Of 500 ms of one worker 475 are compute; two workers add 70 ms of communication, and 10 ms of compute."""
    lengths_s = {"data_wait_s": 0.01, "forward_s": 0.15, "backward_s": 0.31, "optimizer_s": 0.025, "other_s": 0.015}
    shares = {part: seconds / 0.58 for part, seconds in {**lengths_s, "exposed_sync_s": 0.07}.items()}
    cells = [SINGLE, several(0.58, shares, comm_s=0.07)]
    assert step_sum(study(tmp_path, cells)) == (
        "Mean step of ddp-w2-b32: 580 ms ≈ 500 of single-w1-b32 + 70.0 exposed communication + 10.0 compute."
    )


def kept_batch(folder: Path, exposed_s: float) -> StudyAnalysis:
    """A step is 30 ms and 1 ms a sample: 94 ms of one worker with B = 64, and 62 of one of two, with messages after."""
    step_s = 0.062 + exposed_s
    shares = {"forward_s": 0.062 / step_s, "exposed_sync_s": exposed_s / step_s}
    alone = MadeCell("single", 1, 64, step_s=0.094, shares={"forward_s": 1.0})
    return with_settings(folder, [alone, several(step_s, shares, comm_s=exposed_s)], global_batch=64)


@pytest.mark.parametrize(
    ("exposed_s", "said"),
    [
        (0.003, "slower compute (forward, backward and optimizer together): 15.0 ms of a mean step of 65.0 ms, 23.1 %"),
        (0.008, "slower compute (forward, backward and optimizer together): 15.0 ms of a mean step of 70.0 ms, 21.4 %"),
        (0.03, "exposed communication: 30.0 ms of a mean step of 92.0 ms, 32.6 %"),
    ],
)
def test_with_one_global_batch_a_worker_is_held_against_its_share(tmp_path: Path, exposed_s: float, said: str) -> None:
    """Of 94 ms half: 47, so that 15 are lost in compute. From 5 % on there is advice on communication as well."""
    analysis = kept_batch(tmp_path, exposed_s)
    assert ("communication-bound" in codes(analysis)) == (exposed_s > 0.005)
    assert verdict(analysis).endswith(f"Its bottleneck is {said}, against 1/2 of single-w1-b64.")


def test_and_the_sum_is_of_that_share(tmp_path: Path) -> None:
    assert step_sum(kept_batch(tmp_path, 0.003)) == (
        "Mean step of ddp-w2-b32: 65.0 ms ≈ 47.0 (1/2 of single-w1-b64) + 15.0 compute + 3.00 exposed communication."
    )


def test_the_mean_step_is_that_of_the_table(tmp_path: Path) -> None:
    """The step of the world ends with its last rank: 556 ms; the other one's are a fifth shorter."""
    apart = [replace(cell, rank_spread=0.2) for cell in usual_cells(noise=0)]
    text = step_sum(study(tmp_path, apart))
    assert text is not None
    assert text.startswith("Mean step of ddp-w2-b32: 556 ms ≈ ")


def test_there_is_no_such_sum_where_nothing_is_compared(tmp_path: Path) -> None:
    assert step_sum(study(tmp_path / "one", [SINGLE])) is None
    assert step_sum(study(tmp_path / "alone", [several(0.5, SHARES)])) is None


def slower_later(turn: float) -> float:
    """A machine that is a fifth slower from block 5 on."""
    return 1.2 if turn >= 5 else 1.0


def ended_early(several_s: float, exposed: float) -> list[MadeCell]:
    """A study whose wrapped worker ended after 5 of 30 blocks, as one does whose ratio is known early."""
    step = replace(SINGLE, step_s=0.1, blocks=30)
    fastest = several(several_s, synchronised(SHARES, exposed), comm_s=exposed * several_s, blocks=30)
    return [step, replace(step, strategy="ddp", blocks=5), fastest]


def test_what_the_machine_does_after_a_cell_has_ended_is_no_loss(tmp_path: Path) -> None:
    """Of 100 ms 4 are lost, to communication; 25 of 30 blocks are a fifth slower, so the printed steps are, too."""
    analysis = study(tmp_path, ended_early(0.104, 0.004 / 0.104), drift=slower_later)
    assert verdict(analysis).endswith(
        "Its largest loss is exposed communication: 4.67 ms of a mean step of 121 ms, 3.85 %."
    )
    assert step_sum(analysis) == (
        "Mean step of ddp-w2-b32: 121 ms ≈ 117 of single-w1-b32 + 4.67 exposed communication."
    )


def test_where_nothing_is_slower_but_the_machine_nothing_is_lost(tmp_path: Path) -> None:
    analysis = study(tmp_path, ended_early(0.1, 0.0), drift=slower_later)
    assert verdict(analysis).endswith("No significant loss: the interval of its efficiency reaches 100 %.")
    assert step_sum(analysis) is None


def test_names_no_cause_that_may_be_another(tmp_path: Path) -> None:
    """Surely slower; but one worker in the wrapper, timed in two noisy blocks, may be as slow or as fast as without."""
    cells = [
        replace(SINGLE, noise=0.02, blocks=20),
        MadeCell("ddp", 1, step_s=0.5, noise=0.1, blocks=2),
        several(0.6, SHARES, noise=0.02, blocks=20),
    ]
    text = verdict(study(tmp_path, cells))
    assert "a scaled speed-up of 1.6" in text
    assert re.search(r"only known to ±[\d.]+ % of its step, which names no bottleneck", text)


def test_cells_that_were_not_timed_in_turn_have_no_loss_that_is_known(tmp_path: Path) -> None:
    analysis = study(tmp_path, [SINGLE, several(0.7, SHARES, session=1)])
    assert "over single-w1-b32" in verdict(analysis)
    assert "ottleneck" not in verdict(analysis)
    assert step_sum(analysis) is None


def test_is_a_sentence_for_each_of_three_answers(tmp_path: Path) -> None:
    text = verdict(study(tmp_path, usual_cells(noise=0.02)))
    assert text.count(". ") <= 2


@pytest.mark.parametrize(
    ("shares", "cause"),
    [
        (synchronised(SHARES, 0.3), "exposed communication"),
        ({**SHARES, "data_wait_s": 0.32, "forward_s": 0.15, "backward_s": 0.45}, "waiting for data"),
        (SHARES, "slower compute"),
        ({**SHARES, "other_s": 0.33, "forward_s": 0.15, "backward_s": 0.45}, "copies to the device"),
    ],
)
def test_names_the_cause_that_was_made(tmp_path: Path, shares: dict[str, float], cause: str) -> None:
    text = verdict(study(tmp_path, [SINGLE, several(0.7, shares)]))
    assert f"Its bottleneck is {cause}" in text


def test_names_the_wrapper_if_one_worker_in_it_is_as_slow(tmp_path: Path) -> None:
    cells = [SINGLE, MadeCell("ddp", 1, step_s=0.6), several(0.61, SHARES)]
    assert "the overhead of the strategy itself" in verdict(study(tmp_path, cells))


def test_says_that_the_two_fastest_are_not_told_apart(tmp_path: Path) -> None:
    cells = [SINGLE, several(0.55, SHARES, noise=0.02), several(0.551, SHARES, strategy="all-reduce", noise=0.02)]
    analysis = study(tmp_path, cells, seed=4)
    found = headline(analysis)
    assert found is not None
    assert found.runner_up is not None
    assert f"; not significantly slower: {found.runner_up.id} (may be up to " in verdict(analysis)
    assert is_decided(analysis)


def test_says_of_which_it_is_not_known_whether_they_are_as_fast(tmp_path: Path) -> None:
    cells = [SINGLE, several(0.55, SHARES, noise=0.2), several(0.551, SHARES, strategy="all-reduce", noise=0.2)]
    analysis = study(tmp_path, cells, seed=4)
    assert "; indistinguishable from it: " in verdict(analysis)
    assert is_decided(analysis) is False


@pytest.mark.parametrize(("low", "decided"), [(0.98, True), (0.92, True), (0.90, False), (None, False)])
def test_what_may_not_be_much_faster_changes_no_choice(tmp_path: Path, low: float | None, decided: bool) -> None:
    """However much slower it may be: only what the choice of the named one can cost is asked."""
    found = headline(study(tmp_path, [SINGLE, several(0.5, SHARES), several(0.55, SHARES, strategy="all-reduce")]))
    assert found is not None
    assert found.runner_up is not None
    ratio = Ratio(Estimate(value=1.1, low=low, high=None if low is None else 1.6, samples=5), paired=True)
    decision = decide(replace(found, rivals=((found.runner_up, ratio),)))
    assert decision is not None
    assert decision.decided is decided


def test_which_of_several_is_fastest_matters_to_nobody_who_takes_one(tmp_path: Path) -> None:
    found = headline(study(tmp_path, [SINGLE, several(2.0, SHARES), several(2.2, SHARES, strategy="all-reduce")]))
    assert found is not None
    assert found.runner_up is not None
    for low, decided in ((0.55, True), (0.45, False)):  # the fastest has half the samples/s of one worker
        ratio = Ratio(Estimate(value=1.1, low=low, high=1.6, samples=5), paired=True)
        decision = decide(replace(found, rivals=((found.runner_up, ratio),)))
        assert decision is not None
        assert decision.workers == "one"
        assert decision.decided is decided


def test_tells_the_two_fastest_apart_where_it_can(tmp_path: Path) -> None:
    analysis = study(tmp_path, usual_cells(noise=0.01))
    assert "surely slower" not in verdict(analysis)
    assert "told apart" not in verdict(analysis)
    assert is_decided(analysis)


def test_says_that_workers_do_not_help(tmp_path: Path) -> None:
    slower = verdict(study(tmp_path / "slower", [SINGLE, several(1.2, synchronised(SHARES, 0.6))]))
    assert slower.startswith(
        "One worker with as many cores as each of them is faster than 2 workers: they are "
        "0.833 [0.833, 0.833] times as fast, by one launch. "
    )
    assert "53.3 samples/s, a scaled speed-up of 0.833 [0.833, 0.833] over single-w1-b32" in slower
    noisy = [replace(SINGLE, noise=0.01), several(0.998, synchronised(SHARES, 0.5), noise=0.01)]
    equal = verdict(study(tmp_path / "equal", noisy))
    assert equal.startswith("2 workers are about as fast as one with as many cores as each of them: they are ")


def test_says_how_noisy_it_was_and_what_would_tell_where_nothing_is_decided(tmp_path: Path) -> None:
    cells = [replace(SINGLE, noise=0.2), several(0.85, synchronised(SHARES, 0.5), noise=0.2)]
    analysis = study(tmp_path, cells)
    text = verdict(analysis)
    assert text.startswith(
        "Whether 2 workers are faster than one with as many cores as each of them is open: they are "
    )
    assert "Blocks of " in text
    assert "To decide it, measure longer: --steps " in text  # it was timed by steps, as the advice says
    assert is_decided(analysis) is False


def test_names_no_cause_where_it_is_too_noisy(tmp_path: Path) -> None:
    cells = [replace(SINGLE, noise=0.25), several(0.7, synchronised(SHARES, 0.1), noise=0.25)]
    text = verdict(study(tmp_path, cells))
    assert "too wide to name its bottleneck" in text
    assert "bottleneck is" not in text
    assert "largest loss is" not in text


def test_names_no_loss_that_may_be_none(tmp_path: Path) -> None:
    cells = [replace(SINGLE, noise=0.02), several(0.502, synchronised(SHARES, 0.03), noise=0.02)]
    text = verdict(study(tmp_path, cells))
    assert "No significant loss" in text
    assert "bottleneck is" not in text
    assert "largest loss is" not in text


def test_names_no_loss_that_is_small(tmp_path: Path) -> None:
    cells = [SINGLE, several(0.506, synchronised(SHARES, 0.01))]
    assert "No single loss was seen to be above 2.00 % of its step." in verdict(study(tmp_path, cells))


def test_one_block_is_said_to_have_no_interval(tmp_path: Path) -> None:
    cells = [replace(cell, blocks=1) for cell in usual_cells(noise=0)]
    text = verdict(study(tmp_path, cells))
    assert "measured in one block, hence without an interval" in text
    assert "scaled speed-up of 1.80 over" in text
    assert text.startswith(
        "Whether 2 workers are faster than one with as many cores as each of them is not known: they were "
    )


def test_without_a_baseline_there_is_no_speed_up(tmp_path: Path) -> None:
    text = verdict(study(tmp_path, [several(0.5, SHARES), MadeCell("all-reduce", 2, step_s=0.9)]))
    assert "without a speed-up (no baseline" in text
    assert "bottleneck is" not in text
    assert "largest loss is" not in text


def test_crowded_configurations_are_not_judged(tmp_path: Path) -> None:
    cells = [SINGLE, several(0.5, SHARES, oversubscribed=True)]
    strict = study(tmp_path / "strict", cells)
    assert headline(strict) is None
    assert verdict(strict).startswith("Every multi-worker configuration had more threads than cores")
    assert "scaled speed-up of 2.00" in verdict(study(tmp_path / "allowed", cells, allow_oversubscribed=True))


def test_one_worker_alone_has_no_scaling(tmp_path: Path) -> None:
    text = verdict(study(tmp_path / "two", [SINGLE, MadeCell("ddp", 1, step_s=0.6)]))
    assert text == (
        "Only one worker was measured, so there is no scaling to judge. "
        "The fastest single worker is single with 1 worker at b = 32: 64.0 samples/s."
    )
    alone = verdict(study(tmp_path / "one", [SINGLE]))
    assert alone == "single with 1 worker at b = 32: 64.0 samples/s. It was run alone, so nothing is compared."


def test_says_why_no_configuration_has_numbers(tmp_path: Path) -> None:
    failed = several(0.5, SHARES, state="failed", error=ErrorRecord(kind="RuntimeError", message="boom"))
    text = verdict(study(tmp_path / "one", [SINGLE, failed]))
    assert text.startswith("No multi-worker configuration has numbers (ddp-w2-b32: RuntimeError: boom).")
    assert "single with 1 worker" in text
    nothing = study(tmp_path / "none", [], never_started=[SINGLE])
    assert verdict(nothing) == "Nothing was measured (single-w1-b32: not started)."
