"""Lossy strategies beside exact ones: what they gain and what they cost, with both planted."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from advised import SINGLE, link, records, study
from made_runs import MadeCell
from made_trainings import Course, make_trainings
from worldsize.analysis.decision import is_decided
from worldsize.analysis.equal_samples import training_losses
from worldsize.analysis.rungs import Rung, fastest_lossy, judged, rung_of, rungs
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.verdict import verdict
from worldsize.report.key_numbers import key_numbers
from worldsize.results.files import cell_folder
from worldsize.results.folder import load_run, write_cell
from worldsize.results.records import CellRecord, Estimate
from worldsize.traits import TRAITS

LOSSY = "ddp-bf16"
STEADY = (0.5, 0.6, 0.7, 0.8)
EXACT = MadeCell("ddp", 2, step_s=0.6, rank_spread=0)
RUNG = MadeCell(LOSSY, 2, step_s=0.3, rank_spread=0)


def usual(step: int) -> float:
    return 2.3 / (1 + 0.05 * step)


def trained(
    folder: Path,
    above: Sequence[float],
    *,
    accuracies: Sequence[Sequence[float]] | None = None,
    step_s: float = 0.05,
    **settings: object,
) -> StudyAnalysis:
    """Two workers, exact and lossy, with a seed for each number: by so much the lossy one's loss is above."""
    exact = Course(2, 16, [STEADY] * len(above), step_s=0.1)
    lossy = Course(2, 16, accuracies or [STEADY] * len(above), step_s=step_s, strategy=LOSSY, loss_above=above)
    return analyse(load_run(make_trainings(folder, [exact, lossy], seeds=len(above), **settings)))


def lossy_one(analysis: StudyAnalysis) -> Rung:
    return next(each for each in rungs(analysis) if each.lossy)


class TestPrice:
    def test_a_planted_loss_over_three_seeds_is_its_price_and_is_said_first(self, tmp_path: Path) -> None:
        analysis = trained(tmp_path, (0.045, 0.05, 0.055))
        found = lossy_one(analysis)
        assert found.speed is not None
        assert found.speed.estimate.value == pytest.approx(2.0)
        assert found.cost is not None
        assert found.cost.loss is not None
        assert found.cost.loss.samples == 1024  # four epochs of 256
        loss = found.cost.loss.estimate
        assert loss is not None
        assert loss.value == pytest.approx(0.05)
        assert loss.high is not None
        assert loss.high - loss.value == pytest.approx(4.303 * 0.005 / 3**0.5, rel=1e-3)  # Student, 2 degrees
        assert found.cost.significant
        text = verdict(analysis)
        assert text.startswith(
            "At a price: with ddp-bf16 the training loss after 1,024 samples is higher by 0.0500 [0.0376, 0.0624] than "
            "that of ddp (3 seeds)"
        )
        assert "ddp-bf16 has 2.00 [2.00, 2.00] times the samples/s" in text
        assert text.index("At a price") < text.index("The fastest multi-worker configuration is ddp-bf16")
        assert text.count("training loss") == 1

    def test_what_may_be_chance_is_no_price(self, tmp_path: Path) -> None:
        analysis = trained(tmp_path, (-0.05, 0.06, 0.01))
        found = lossy_one(analysis)
        assert found.cost is not None
        assert (found.cost.loss_is, found.cost.accuracy_is) == ("indistinguishable", "indistinguishable")
        assert not found.cost.significant
        text = verdict(analysis)
        assert "At a price" not in text
        assert "is indistinguishable from that of ddp (+0.00667 [" in text
        assert "higher" not in text

    def test_one_seed_has_no_interval_and_is_never_called_a_price(self, tmp_path: Path) -> None:
        analysis = trained(tmp_path, (0.5,))
        found = lossy_one(analysis)
        assert found.cost is not None
        assert found.cost.loss is not None
        assert found.cost.loss.estimate is not None
        assert found.cost.loss.estimate.value == pytest.approx(0.5)
        assert found.cost.loss.estimate.low is None
        assert found.cost.loss_is == "one seed"
        assert not found.cost.significant
        text = verdict(analysis)
        assert (
            "the training loss after 1,024 samples differs by +0.500 from that of ddp (one seed; no interval)" in text
        )
        assert "At a price" not in text

    def test_an_accuracy_that_falls_with_each_seed_is_a_price(self, tmp_path: Path) -> None:
        worse = [[*STEADY[:3], 0.78], [*STEADY[:3], 0.781], [*STEADY[:3], 0.779]]
        analysis = trained(tmp_path, (0.0, 0.0, 0.0), accuracies=worse)
        found = lossy_one(analysis)
        assert found.cost is not None
        assert found.cost.accuracy is not None
        assert found.cost.accuracy.epochs == 4
        assert found.cost.accuracy_is == "lower"
        assert "the test accuracy after 4 epochs is lower by 2.00 [1.75, 2.25] points than that of ddp" in verdict(
            analysis
        )

    def test_a_loss_that_is_no_longer_finite_is_a_price_without_an_interval(self, tmp_path: Path) -> None:
        broken = replace(RUNG, losses=lambda step: None if step > 5 else usual(step))
        text = verdict(study(tmp_path, [SINGLE, EXACT, broken]))
        assert text.startswith("At a price: with ddp-bf16 the training loss within 1,280 samples is no longer finite")

    def test_a_seed_that_failed_leaves_no_difference_of_the_others(self, tmp_path: Path) -> None:
        trained(tmp_path, (0.05, 0.05, 0.05))
        part = tmp_path / "parts" / "seed1"
        record = load_run(part).cells[f"{LOSSY}-w2-b16"].record
        record.state = "failed"
        write_cell(part, record)
        found = lossy_one(analyse(load_run(tmp_path)))
        assert found.cost is None
        assert found.remark == "not trained to an end with each seed"

    def test_a_target_is_reached_in_less_time_for_its_speed_and_more_for_its_samples(self, tmp_path: Path) -> None:
        slower = [(0.4, 0.5, 0.6, 0.7)] * 2  # an epoch later
        analysis = trained(tmp_path, (0.0, 0.0), accuracies=slower, target_accuracy=0.65)
        found = lossy_one(analysis).to_target
        assert found is not None
        assert found.statistical is not None
        assert found.statistical.value == pytest.approx(2.5 / 3.5)
        assert found.remark == "the epochs of trainings are not timed in turn: no throughput ratio"


class TestEqualSamples:
    @pytest.mark.parametrize(("blocks", "samples"), [(6, 1280), (2, 512), (12, 1280)])
    def test_only_common_samples_are_compared(self, tmp_path: Path, blocks: int, samples: int) -> None:
        """Losses fall: the mean of the last quarter of unequal numbers of steps would differ by itself."""
        other = replace(RUNG, blocks=blocks, losses=lambda step: usual(step) + 0.02)
        found = lossy_one(study(tmp_path, [SINGLE, EXACT, other]))
        assert found.cost is not None
        assert found.cost.loss is not None
        assert found.cost.loss.samples == samples
        assert found.cost.loss.estimate is not None
        assert found.cost.loss.estimate.value == pytest.approx(0.02)

    def test_each_launch_begins_anew_so_the_longest_counts(self, tmp_path: Path) -> None:
        analysis = study(tmp_path, [SINGLE, EXACT, RUNG], changes=[relaunched(EXACT, 6)])
        cell = analysis.run.cells[EXACT.id]
        losses = training_losses(cell)
        assert losses["loss"].to_list() == [pytest.approx(usual(step)) for step in range(14)]
        assert losses["seen"].to_list() == [64 * (step + 1) for step in range(14)]
        found = lossy_one(analysis)
        assert found.cost is not None
        assert found.cost.loss is not None
        assert found.cost.loss.samples == 14 * 64
        assert found.cost.loss.estimate is not None
        assert found.cost.loss.estimate.value == pytest.approx(0, abs=1e-12)

    def test_the_loss_of_each_ranks_own_weights_is_not_judged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept = TRAITS[LOSSY].model_copy(update={"travels": "weights"})
        monkeypatch.setitem(TRAITS, LOSSY, kept)
        analysis = trained(tmp_path, (0.045, 0.05, 0.055))
        found = lossy_one(analysis)
        assert found.cost is not None
        assert found.cost.loss_is == "not known"
        assert not found.cost.significant
        assert "training loss" not in verdict(analysis)
        assert "the test accuracy after 4 epochs is indistinguishable from that of ddp" in verdict(analysis)
        steps = study(tmp_path / "steps", [SINGLE, EXACT, RUNG])
        assert "a step's loss is of each rank's own weights" in verdict(steps)


def relaunched(cell: MadeCell, after: int) -> Callable[[Path], None]:
    """Its steps from `after` on are of a second launch, which trains from the first step again."""

    def apply(folder: Path) -> None:
        for path in cell_folder(folder, cell.id).glob("rank?.jsonl"):
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            for row in rows[after:]:
                row |= {"launch": 1, "loss": usual(row["step"] - after)}
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    return apply


class TestVerdict:
    def test_names_the_rung_its_gain_the_link_and_the_best_exact_one(self, tmp_path: Path) -> None:
        slow = MadeCell("all-reduce", 2, step_s=0.9, rank_spread=0)
        priced = replace(RUNG, losses=lambda step: usual(step) + 0.004)
        analysis = study(tmp_path, [SINGLE, slow, EXACT, priced], hosts=2, link="100mbit")
        assert (
            "Against ddp, the fastest exact strategy with the same N and b, ddp-bf16 has 2.00 [2.00, 2.00] times the "
            "samples/s over links of 100mbit; the training loss after 1,280 samples differs by +0.00400 from that of "
            "ddp (one seed; no interval)."
        ) in verdict(analysis)
        assert is_decided(analysis)
        assert "lossy" in key_numbers(analysis)[1].detail

    def test_a_speed_that_may_be_chance_is_not_called_a_gain(self, tmp_path: Path) -> None:
        cells = [SINGLE, replace(EXACT, noise=0.2), replace(RUNG, step_s=0.5, noise=0.2)]
        analysis = study(tmp_path, cells)
        assert not lossy_one(analysis).faster
        assert "times the samples/s, not significantly more; the training loss" in verdict(analysis)

    def test_says_that_no_exact_one_was_run_beside_it(self, tmp_path: Path) -> None:
        text = verdict(study(tmp_path, [SINGLE, replace(EXACT, world_size=4, step_s=2.0), RUNG]))
        assert (
            "ddp-bf16 is lossy, and no exact strategy with the same N and b has numbers: its price is not known" in text
        )

    def test_an_exact_one_that_is_faster_is_named_without_a_price(self, tmp_path: Path) -> None:
        slower = replace(RUNG, step_s=0.75)
        analysis = study(tmp_path, [SINGLE, EXACT, slower])
        text = verdict(analysis)
        assert "The fastest multi-worker configuration is ddp with 2 workers" in text
        assert "ddp-bf16, the fastest lossy strategy there, has 0.800 [0.800, 0.800] times its samples/s." in text
        exact = rung_of(analysis, analysis.cells[1])
        assert exact is not None
        assert exact.cost is None
        assert fastest_lossy(analysis, exact.cell) is lossy_one(analysis)

    def test_a_study_of_exact_strategies_has_no_rungs(self, tmp_path: Path) -> None:
        analysis = study(tmp_path, [SINGLE, EXACT, MadeCell("all-reduce", 2, step_s=0.9)])
        assert rungs(analysis) == ()
        assert "exact" not in verdict(analysis)


def test_bytes_stand_beside_fp32_and_the_limit_of_the_link(tmp_path: Path) -> None:
    """Of 44.7 MB a link of 100 Mbit/s carries 11.96 MB/s of payload: 3.74 s for fp32, half of it in bf16."""

    def halve(record: CellRecord) -> None:
        assert record.wire is not None
        half = {name: getattr(record.wire, name) // 2 for name in ("payload_bytes", "busiest_rank_bytes")}
        record.wire = record.wire.model_copy(update=half)

    exact, rung = replace(EXACT, step_s=4.0), replace(RUNG, step_s=2.0)
    changes = [records(rung, halve), link(1e-4, 11e6, rate_bits_per_s=100_000_000)]
    found = lossy_one(study(tmp_path, [SINGLE, exact, rung], changes=changes))
    whole_s = 44_695_848 / (100e6 / 8 * 1448 / 1514)
    assert found.of_fp32 == pytest.approx(0.5)
    assert found.link_share is not None
    assert found.link_share.value == pytest.approx(whole_s / 2 / 2.0)
    assert found.of_fp32_limit is not None
    assert found.of_fp32_limit.value == pytest.approx(2.0 / whole_s)


@pytest.mark.parametrize(
    ("estimate", "said"),
    [
        (None, "not known"),
        (Estimate(value=0.1, samples=1), "one seed"),
        (Estimate(value=0.1, low=-0.1, high=0.3, samples=3), "indistinguishable"),
        (Estimate(value=0.1, low=0.0, high=0.2, samples=3), "indistinguishable"),
        (Estimate(value=0.1, low=0.05, high=0.15, samples=3), "higher"),
        (Estimate(value=-0.1, low=-0.15, high=-0.05, samples=3), "lower"),
    ],
)
def test_a_difference_is_called_one_only_where_its_interval_excludes_0(estimate: Estimate | None, said: str) -> None:
    assert judged(estimate) == said
