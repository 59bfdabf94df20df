"""Which strategy, what it costs by itself, and whether several workers pay."""

from dataclasses import replace
from pathlib import Path

from advised import SINGLE, basis, codes, evidence, exchanging, found, gain, longer, steps, study
from made_runs import SHARES, MadeCell
from worldsize.config import StudySettings

FASTER = exchanging("ddp", exposed=0.02, step_s=0.5)
SLOWER = exchanging("all-reduce", exposed=0.02, step_s=0.6)


class TestStrategyChoice:
    def test_recommends_what_is_surely_faster(self, tmp_path: Path) -> None:
        slowest = exchanging("gather-scatter", exposed=0.02, step_s=0.75)
        advice = found(study(tmp_path, [SINGLE, slowest, SLOWER, FASTER]), "strategy-choice")
        assert advice is not None
        assert advice.cell_id == slowest.id
        assert advice.finding == "With 2 workers and b = 32, ddp is 1.50 [1.50, 1.50] times as fast as gather-scatter."
        assert evidence(advice) == {
            "Samples/s, ddp ÷ gather-scatter": "1.50 [1.50, 1.50]",
            "Samples/s, ddp ÷ all-reduce": "1.20 [1.20, 1.20]",
        }
        assert advice.next_step == "Use ddp in place of gather-scatter or all-reduce."
        assert advice.command == "worldsize train --strategy ddp --world-size 2 --batch-size 32"
        assert gain(advice) == "1.50 [1.50, 1.50] times the samples/s of gather-scatter"

    def test_scripts_differ_in_what_they_do(self, tmp_path: Path) -> None:
        asked = StudySettings(script=("a.py", "b.py"), world_sizes=(1, 2), steps=10)
        analysis = study(tmp_path, [SINGLE, SLOWER, FASTER], **asked.model_dump(exclude={"cells"}))
        advice = found(analysis, "strategy-choice")
        assert advice is not None
        assert advice.cause.startswith("They are different scripts")

    def test_silent_where_the_interval_includes_1(self, tmp_path: Path) -> None:
        unsteady = steps(SLOWER, longer("backward_s", (0.6, 1.2, 1.2)))
        analysis = study(tmp_path, [SINGLE, SLOWER, FASTER], changes=[unsteady])
        assert found(analysis, "strategy-choice") is None

    def test_silent_about_other_batches_other_worlds_other_threads_and_other_turns(self, tmp_path: Path) -> None:
        unlike = [
            replace(SLOWER, batch_size=16),
            replace(SLOWER, world_size=4),
            replace(SLOWER, threads=2),
            replace(SLOWER, strategy="bucketed", session=1),
        ]
        for number, other in enumerate(unlike):
            assert found(study(tmp_path / str(number), [FASTER, other]), "strategy-choice") is None


class TestWrapper:
    SLOW = MadeCell("ddp", 1, step_s=0.6)

    def test_what_one_worker_in_it_costs(self, tmp_path: Path) -> None:
        several = exchanging("ddp", exposed=0.02, step_s=0.62)
        advice = found(study(tmp_path, [SINGLE, self.SLOW, several]), "wrapper-overhead")
        assert advice is not None
        assert advice.cell_id == several.id
        assert "takes 1.20 [1.20, 1.20] times the step of single-w1-b32" in advice.finding
        assert evidence(advice)["ddp-w1-b32 − single-w1-b32, per step"] == "100 [100, 100] ms"
        assert gain(advice) == "at most 1.19 [1.19, 1.19] times the samples/s of ddp-w2-b32"  # 620 / 520
        assert "--baseline both" in str(advice.command)
        assert "--strategies single,ddp,bucketed" in str(advice.command)

    def test_silent_where_it_may_cost_nothing(self, tmp_path: Path) -> None:
        unsteady = steps(self.SLOW, longer("backward_s", (0.7, 0.7, 1.1)))
        assert found(study(tmp_path / "a", [SINGLE, self.SLOW], changes=[unsteady]), "wrapper-overhead") is None
        little = replace(self.SLOW, step_s=0.505)
        assert found(study(tmp_path / "b", [SINGLE, little]), "wrapper-overhead") is None


class TestComputeSlower:
    SLOW = MadeCell("ddp", 2, step_s=0.65, shares=SHARES, rank_spread=0)

    def test_computing_that_several_workers_make_slower(self, tmp_path: Path) -> None:
        advice = found(study(tmp_path, [SINGLE, self.SLOW]), "compute-slower")
        assert advice is not None
        assert "take 1.30 [1.30, 1.30] times as long as those of single-w1-b32" in advice.finding
        assert gain(advice) == "at most 1.28 [1.28, 1.28] times the samples/s"  # 650 / (650 − 0.95 · 150)
        assert "--profile" in str(advice.command)

    def test_several_workers_in_one_process_get_processes_of_their_own(self, tmp_path: Path) -> None:
        cell = replace(self.SLOW, strategy="data-parallel")
        advice = found(study(tmp_path, [SINGLE, cell]), "compute-slower")
        assert advice is not None
        assert "--strategies single,data-parallel,ddp" in str(advice.command)

    def test_threads_leave_a_core_free(self, tmp_path: Path) -> None:
        cells = [replace(SINGLE, threads=4), replace(self.SLOW, threads=4)]
        advice = found(study(tmp_path, cells), "compute-slower")
        assert advice is not None
        assert "--threads-per-worker 3" in str(advice.command)

    def test_silent_where_the_wrapper_or_chance_explains_it(self, tmp_path: Path) -> None:
        wrapped = MadeCell("ddp", 1, step_s=0.65)
        assert found(study(tmp_path / "wrapped", [SINGLE, wrapped, self.SLOW]), "compute-slower") is None
        unsteady = steps(self.SLOW, longer("backward_s", (0.6, 1.1)))
        assert found(study(tmp_path / "chance", [SINGLE, self.SLOW], changes=[unsteady]), "compute-slower") is None


def test_a_sweep_is_not_timed_in_turn(tmp_path: Path) -> None:
    """Its blocks share numbers by chance: no rule pairs them."""
    wrapped, crowded = MadeCell("ddp", 1, step_s=0.6), MadeCell("ddp", 2, step_s=0.9, shares=SHARES, rank_spread=0)
    cells, paired = [SINGLE, wrapped, crowded, FASTER], {"strategy-choice", "wrapper-overhead", "compute-slower"}
    cells[-1] = replace(FASTER, strategy="all-reduce")
    assert paired <= set(codes(study(tmp_path / "grid", cells)))
    assert not paired & set(codes(study(tmp_path / "sweep", cells, sweep=True)))


class TestDoesNotPay:
    def test_one_worker_that_is_faster(self, tmp_path: Path) -> None:
        advice = found(study(tmp_path, [SINGLE, exchanging(exposed=0.6, step_s=1.25)]), "scaling-does-not-pay")
        assert advice is not None
        assert evidence(advice) == {"Speed-up over single-w1-b32": "0.800 [0.800, 0.800]"}
        assert gain(advice) == "1.25 [1.25, 1.25] times the samples/s"
        assert advice.command == "worldsize train --strategy single --world-size 1 --batch-size 32"

    def test_a_bound_says_what_it_takes_to_equal_one_worker(self, tmp_path: Path) -> None:
        slower = found(
            study(tmp_path / "slower", [SINGLE, exchanging(exposed=0.6, step_s=1.25)]), "communication-bound"
        )
        assert slower is not None
        assert basis(slower).endswith("To equal single-w1-b32 it takes 1.25 [1.25, 1.25] times.")
        faster = found(study(tmp_path / "faster", [SINGLE, exchanging(exposed=0.2, step_s=0.6)]), "communication-bound")
        assert faster is not None
        assert "To equal" not in basis(faster)

    def test_silent_where_it_may_pay(self, tmp_path: Path) -> None:
        cell = exchanging(exposed=0.5, step_s=1.05)
        unsteady = steps(cell, longer("exposed_sync_s", (0.6, 1.1)))
        assert found(study(tmp_path, [SINGLE, cell], changes=[unsteady]), "scaling-does-not-pay") is None
