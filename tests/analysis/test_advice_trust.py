"""What keeps a study from an answer, and how the answer can be had."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advised import SINGLE, codes, evidence, exchanging, found, steps, study
from made_runs import MadeCell, make_run
from worldsize.analysis.advice.noise import steps_needed
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.verdict import verdict
from worldsize.config import StudySettings
from worldsize.results.folder import load_run, write_cell, write_study
from worldsize.results.records import ErrorRecord, Estimate, WarningRecord

SEVERAL = exchanging(exposed=0.02)


class TestOversubscribed:
    def test_fewer_threads_for_each(self, tmp_path: Path) -> None:
        crowded = replace(SEVERAL, oversubscribed=True, threads=2)
        analysis = study(tmp_path, [replace(SINGLE, threads=2), crowded], threads_per_worker=2)
        advice = found(analysis, "oversubscribed")
        assert advice is not None
        assert advice.finding == "ddp with 2 workers at b = 32 runs 4 threads on 2 cores."
        assert "--threads-per-worker 1" in str(advice.command)
        assert codes(analysis)[0] == "oversubscribed", "nothing else can be judged"

    def test_fewer_workers_where_there_are_more_than_cores(self, tmp_path: Path) -> None:
        crowded = replace(SEVERAL, oversubscribed=True, world_size=4)
        advice = found(study(tmp_path, [SINGLE, SEVERAL, crowded]), "oversubscribed")
        assert advice is not None
        assert "--world-sizes 1,2" in str(advice.command)
        assert advice.cell_id == crowded.id

    @pytest.mark.parametrize(("whole", "sizes"), [(9, None), (8, "--world-sizes 1,2 ")])
    def test_fewer_workers_divide_the_global_batch(self, tmp_path: Path, whole: int, sizes: str | None) -> None:
        """Of three workers or four on two cores; settings refuse two workers with B = 9."""
        n = 3 if whole == 9 else 4
        crowded = replace(SEVERAL, oversubscribed=True, world_size=n, batch_size=whole // n)
        cells = [replace(SINGLE, batch_size=whole), crowded]
        advice = found(study(tmp_path, cells, global_batch=whole), "oversubscribed")
        assert advice is not None
        assert advice.command is None if sizes is None else sizes in str(advice.command)

    @pytest.mark.parametrize(
        ("room", "cores", "next_step"),
        [
            (1.5, "1.5 cores", "Use a machine with more cores"),
            (0.5, "0.5 cores", "Raise the CPU quota"),
            (1, "1 core.", ""),
        ],
    )
    def test_room_is_what_the_placement_found(self, tmp_path: Path, room: float, cores: str, next_step: str) -> None:
        crowded = replace(SEVERAL, oversubscribed=True, threads=1)

        def within(folder: Path) -> None:
            record = load_run(folder).cells[crowded.id].record
            assert record.placement is not None
            update = {"room_cores": float(room), "on_siblings": (1,)}
            record.placement = record.placement.model_copy(update=update)
            write_cell(folder, record)

        advice = found(study(tmp_path, [SINGLE, crowded], changes=[within]), "oversubscribed")
        assert advice is not None
        assert f"runs 2 threads on {cores}" in advice.finding
        assert advice.next_step.startswith(next_step)
        assert evidence(advice)["Workers on second threads of cores that others have"] == "1"

    def test_another_cell_that_can_be_judged_goes_first(self, tmp_path: Path) -> None:
        fine = exchanging(exposed=0.3)
        crowded = replace(SEVERAL, oversubscribed=True, world_size=4)
        assert codes(study(tmp_path, [SINGLE, fine, crowded]))[-1] == "oversubscribed"

    def test_silent_where_every_thread_has_its_core(self, tmp_path: Path) -> None:
        assert found(study(tmp_path, [SINGLE, SEVERAL]), "oversubscribed") is None


class TestBaseline:
    def test_one_worker_that_is_missing(self, tmp_path: Path) -> None:
        analysis = study(tmp_path, [SEVERAL])
        advice = found(analysis, "baseline-not-comparable")
        assert advice is not None
        assert "has nothing to be compared with" in advice.finding
        assert advice.command == (
            "worldsize study --strategies single,ddp --world-sizes 1,2 --batch-sizes 32 --threads-per-worker 1 "
            "--steps 18"
        )
        assert codes(analysis)[0] == "baseline-not-comparable"

    def test_a_training_of_epochs_is_timed_by_steps_instead(self, tmp_path: Path) -> None:
        epochs = study(tmp_path, [SEVERAL], epochs=5, steps=None, lr_schedule="cosine", lr_warmup_epochs=2)
        command = str(getattr(found(epochs, "baseline-not-comparable"), "command", ""))
        assert "--epochs" not in command
        assert "--lr-schedule" not in command
        assert "--lr-warmup-epochs" not in command

    def test_a_baseline_that_failed(self, tmp_path: Path) -> None:
        error = ErrorRecord(kind="RuntimeError", message="boom\nmore")
        advice = found(
            study(tmp_path, [replace(SINGLE, state="failed", error=error), SEVERAL]), "baseline-not-comparable"
        )
        assert advice is not None
        assert "single-w1-b32 has no numbers" in advice.finding
        assert advice.cause == "The baseline was not measured: RuntimeError: boom."

    @pytest.mark.parametrize(("whole", "smaller"), [(64, 32), (2, None)])
    def test_a_batch_that_one_worker_cannot_hold(self, tmp_path: Path, whole: int, smaller: int | None) -> None:
        error = ErrorRecord(kind="OutOfMemory", message="can't allocate memory")
        cells = [
            replace(SINGLE, batch_size=whole, state="failed", error=error),
            replace(SEVERAL, batch_size=whole // 2),
        ]
        advice = found(study(tmp_path, cells, global_batch=whole), "baseline-not-comparable")
        assert advice is not None
        assert "more memory" in advice.next_step
        if smaller is None:
            assert advice.command is None
        else:
            assert f"--global-batch {smaller} " in str(advice.command)
            assert f"B = {smaller}" in advice.next_step

    def test_another_number_of_threads(self, tmp_path: Path) -> None:
        advice = found(study(tmp_path, [replace(SINGLE, threads=2), SEVERAL]), "baseline-not-comparable")
        assert advice is not None
        assert "another number of threads per worker than single-w1-b32" in advice.finding
        assert advice.cause.startswith("1 against 2")

    def test_cells_that_were_not_timed_in_turn(self, tmp_path: Path) -> None:
        advice = found(study(tmp_path, [SINGLE, replace(SEVERAL, session=1)]), "baseline-not-comparable")
        assert advice is not None
        assert "was not timed in turn with its baseline" in advice.finding

    @pytest.mark.parametrize("crowded", [False, True])
    def test_silent_where_it_is_comparable_and_where_threads_are_the_reason(
        self, tmp_path: Path, crowded: bool
    ) -> None:
        cells = [SINGLE, replace(SEVERAL, oversubscribed=crowded)]
        assert found(study(tmp_path, cells), "baseline-not-comparable") is None


class TestNoise:
    def test_a_speed_up_that_is_hardly_known(self, tmp_path: Path) -> None:
        analysis = study(tmp_path, noisy(0.1))
        advice = found(analysis, "too-noisy")
        assert advice is not None
        assert codes(analysis)[0] == "too-noisy"
        assert "is known to ±" in advice.finding
        assert evidence(advice)["Timed steps of the cell, in blocks"] == "18 in 6"
        assert "6 blocks are few" in advice.cause
        steps = int(str(advice.command).rpartition("--steps ")[2])
        assert steps > 18

    def test_noise_that_no_time_makes_up_for(self, tmp_path: Path) -> None:
        """32,000 steps would be days of a study that took minutes."""
        analysis = study(tmp_path, noisy(3))
        advice = found(analysis, "too-noisy")
        assert advice is not None
        assert advice.next_step == "Time it again on a quiet machine: with this noise more steps would hardly help."
        assert advice.gain is None
        assert "--steps 18" in str(advice.command), "as it was"
        assert "measure on a quiet machine: with this noise" in verdict(analysis)

    def test_a_study_of_epochs_is_told_to_give_steps_in_place_of_them(self, tmp_path: Path) -> None:
        said = verdict(study(tmp_path, noisy(1.0), steps=None, epochs=2))
        assert re.search(r"measure longer: --steps \d+ in place of --epochs, in another --out, if", said)

    def test_metered_runs_are_told_to_make_more_steps(self, tmp_path: Path) -> None:
        """They were not started by worldsize, so no flag of its own makes them longer."""

        def metered(folder: Path) -> None:
            record = load_run(folder).study
            record.settings = record.data = record.model = None
            write_study(folder, record)

        said = verdict(study(tmp_path, noisy(1.0), changes=[metered]))
        assert re.search(r"measure longer: [\d,]+ timed steps in each run of your script, if", said)

    def test_one_that_its_budget_has_ended_goes_on(self, tmp_path: Path) -> None:
        """By the flags that the verdict and the advice give; what its run had before is no time to wait."""

        def out_of_time(folder: Path) -> None:
            record = load_run(folder).cells[SEVERAL.id].record
            record.ended_by = "budget"
            write_cell(folder, record)

        analysis = study(tmp_path, noisy(0.15), changes=[out_of_time], steps=None, budget="60s")
        advice = found(analysis, "too-noisy")
        assert advice is not None
        flags = f"--resume --out {analysis.run.folder} --budget "
        assert str(advice.command).startswith(f"worldsize study {flags}")
        assert flags in verdict(study(tmp_path, noisy(1.0), changes=[out_of_time], steps=None, budget="60s"))
        budget_s = StudySettings(budget=str(advice.command).rpartition(" ")[2]).budget_s
        assert budget_s is not None
        assert budget_s >= 120, "as long again at least"
        assert advice.takes_s == pytest.approx(budget_s - 60)

    def test_what_was_seen_on_the_machine_is_named_as_its_cause(self, tmp_path: Path) -> None:
        busy = WarningRecord(code="busy-machine", message="load 3.5 on 2 cores")
        advice = found(made(tmp_path, noisy(0.3), [busy]), "too-noisy")
        assert advice is not None
        assert any(f'the warning "{code}"' in advice.cause for code in ("busy-machine", "drift"))

    def test_one_block_has_no_interval(self, tmp_path: Path) -> None:
        advice = found(study(tmp_path, [replace(cell, blocks=1) for cell in (SINGLE, SEVERAL)]), "too-noisy")
        assert advice is not None
        assert "it was timed in one block" in advice.finding
        assert "--steps 15" in str(advice.command)  # five blocks of three, as long as the one there is

    def test_batches_of_a_sweep_that_are_not_told_apart(self, tmp_path: Path) -> None:
        cells = [MadeCell("single", 1, b, step_s=b / 64, noise=0.4) for b in (32, 128)]
        advice = found(study(tmp_path, cells, sweep=True), "too-noisy")
        assert advice is not None
        assert "too little to choose one" in advice.finding
        assert str(advice.command).startswith(
            "worldsize sweep --strategy single --world-size 1 --batch-size 32 --steps "
        )

    def test_a_limit_that_is_surely_larger_than_the_noise_goes_first(self, tmp_path: Path) -> None:
        slow = replace(exchanging(exposed=0.9, step_s=3.0), noise=0.25)
        analysis = study(tmp_path, [replace(SINGLE, noise=0.25), slow])
        advice = found(analysis, "too-noisy")
        assert advice is not None
        assert advice.finding.endswith("too little to compare it.")
        assert codes(analysis)[0] == "communication-bound"
        assert codes(analysis)[1] == "too-noisy", "before more numbers that are not to be trusted"
        assert "Its bottleneck is exposed communication" in verdict(analysis)

    def test_silent_on_a_quiet_machine(self, tmp_path: Path) -> None:
        assert found(study(tmp_path, noisy(0.01)), "too-noisy") is None


def noisy(noise: float) -> list[MadeCell]:
    return [replace(SINGLE, noise=noise), replace(SEVERAL, noise=noise)]


def made(folder: Path, cells: Sequence[MadeCell], warnings: Sequence[WarningRecord]) -> StudyAnalysis:
    return analyse(load_run(make_run(folder, cells, warnings=warnings)))


def estimate(half: float, samples: int) -> Estimate:
    return Estimate(value=1.0, low=1 - half, high=1 + half, samples=samples)


@pytest.mark.parametrize(
    ("half", "samples", "blocks"),
    [
        (0.10, 100, 393),  # half as wide: four times the blocks, a little fewer for Student's quantile
        (0.10, 4, 9),  # of four blocks the interval is wide for want of knowledge: 3.18/√4 → 2.31/√9
        (0.04, 6, 5),  # narrow enough as it is: the fewest blocks
    ],
)
def test_steps_that_would_do(half: float, samples: int, blocks: int) -> None:
    assert steps_needed(estimate(half, samples), 1) == blocks
    assert steps_needed(estimate(half, samples), 3) == 3 * steps_needed(estimate(half, samples), 1)


def test_steps_that_are_far_longer_now_and_then_are_no_noise_of_a_watched_machine(tmp_path: Path) -> None:
    """Beside them the short computation was as quick as ever; without it nobody knows."""

    def change(_: int, record: dict[str, Any]) -> None:
        record["reference_s"] = 0.004
        if record["step"] in (2, 7, 8, 13, 15, 19):
            record["forward_s"] += 2.0
            record["step_s"] += 2.0

    def unwatched(rank: int, record: dict[str, Any]) -> None:
        change(rank, record)
        record["reference_s"] = None

    cell = exchanging("ddp", exposed=0.02)
    watched = study(tmp_path / "a", [SINGLE, cell], changes=[steps(cell, change)])
    assert codes(watched)[0] == "periodic-stall"
    alone = study(tmp_path / "b", [SINGLE, cell], changes=[steps(cell, unwatched)])
    assert "periodic-stall" not in codes(alone)


def test_a_part_that_is_surely_most_of_the_step_is_the_limit_however_noisy_the_ratio(tmp_path: Path) -> None:
    """The noise is in one worker alone: what two workers lose is known."""

    def uneven(_: int, record: dict[str, Any]) -> None:
        longer = 3.0 if record["block"] % 2 else 0.0
        record["forward_s"] += longer
        record["step_s"] += longer

    cell = exchanging("ddp", exposed=0.7)
    found_codes = codes(study(tmp_path, [SINGLE, cell], changes=[steps(SINGLE, uneven)]))
    assert found_codes[0] == "communication-bound"
    assert found_codes[1] == "too-noisy"
