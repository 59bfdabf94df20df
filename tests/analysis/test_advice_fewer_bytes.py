"""A strategy that sends less is advised where it gains, with its price, and never where it does not."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from advised import SINGLE, Messages, codes, evidence, exchanging, found, gain, link, messages, study
from made_forecasts import Truth, made_forecast_run
from made_runs import MadeCell
from made_trainings import Course, make_trainings
from worldsize.analysis import rung_words, rungs
from worldsize.analysis.advice import Advice
from worldsize.analysis.advice.fewer_bytes import LOSSY
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.results.folder import load_run
from worldsize.traits import TRAITS

CODE = "fewer-bytes"
EXACT = exchanging("ddp", exposed=0.5, step_s=1.0)
FULL = [messages(EXACT, Messages(payload_bytes=25 * 10**6, transfer_s=0.5)), link(1e-5, 1.05e8)]
"""Its messages, 50 MB in 0.5 s, fill the link."""


def made(folder: Path, *cells: MadeCell, **settings: Any) -> StudyAnalysis:
    return study(folder, [SINGLE, EXACT, *cells], changes=FULL, **settings)


class TestMeasured:
    FASTER = exchanging("ddp-bf16", exposed=0.2, step_s=0.5)

    def test_names_what_was_gained_the_price_and_how_to_know_it(self, tmp_path: Path) -> None:
        analysis = made(tmp_path, self.FASTER, hosts=2, link="100mbit")
        advice = found(analysis, CODE)
        assert advice is not None
        assert advice.cell_id == self.FASTER.id
        assert "ddp-bf16 is 2.00 [2.00, 2.00] times as fast as ddp, the fastest exact strategy" in advice.finding
        assert "It changes the training" in advice.cause
        assert "(one seed; no interval)" in advice.cause
        assert evidence(advice)["Samples/s, ddp-bf16 ÷ ddp"] == "2.00 [2.00, 2.00]"
        assert advice.next_step == (
            "See by how much before you use ddp-bf16: train it beside ddp (--epochs 5 --seeds 3)."
        )
        assert advice.command is not None
        assert advice.command.startswith("worldsize study --strategies single,ddp,ddp-bf16 --world-sizes 1,2 ")
        assert advice.command.endswith(" --epochs 5 --seeds 3")
        assert "--link 100mbit" in advice.command
        assert "--steps" not in advice.command
        assert gain(advice) == "2.00 [2.00, 2.00] times the samples/s of ddp, at that price"
        assert advice.takes_s is not None

    def test_no_advice_calls_a_lossy_one_a_mere_choice_of_strategy(self, tmp_path: Path) -> None:
        assert "strategy-choice" not in codes(made(tmp_path, self.FASTER))

    @pytest.mark.parametrize("step_s", [1.0, 1.2])
    def test_one_that_is_not_faster_is_not_advised(self, tmp_path: Path, step_s: float) -> None:
        assert CODE not in codes(made(tmp_path, replace(self.FASTER, step_s=step_s)))

    def test_nor_one_that_may_be_faster_by_chance(self, tmp_path: Path) -> None:
        assert CODE not in codes(made(tmp_path, replace(self.FASTER, step_s=0.97, noise=0.2)))

    def test_nor_one_where_the_exact_one_waits_for_no_link(self, tmp_path: Path) -> None:
        free = exchanging("ddp", exposed=0.01, step_s=1.0)
        assert CODE not in codes(study(tmp_path, [SINGLE, free, self.FASTER]))

    def test_a_slower_lossy_one_is_left_for_the_exact_one(self, tmp_path: Path) -> None:
        advice = found(made(tmp_path, replace(self.FASTER, step_s=1.3)), "strategy-choice")
        assert advice is not None
        assert advice.next_step.startswith("Use ddp in place of ddp-bf16")
        assert "They average the same gradients" not in advice.cause


def trained(folder: Path, above: Sequence[float]) -> Advice:
    """Over several seeds, with the loss of the lossy one so much above."""
    level = [(0.5, 0.6, 0.7, 0.8)] * len(above)
    exact = Course(2, 16, level, step_s=0.1, exposed=0.5)
    lossy = Course(2, 16, level, step_s=0.05, strategy="ddp-bf16", loss_above=above)
    make_trainings(folder, [exact, lossy], seeds=len(above))
    advice = found(analyse(load_run(folder)), CODE)
    assert advice is not None
    return advice


def test_a_price_that_is_known_is_named(tmp_path: Path) -> None:
    costly = trained(tmp_path / "a", (0.049, 0.05, 0.051))
    assert "is higher by 0.0500 [" in costly.cause
    assert costly.next_step.startswith("Weigh that price against the time;")
    assert str(costly.command).startswith("worldsize train --strategy ddp-bf16 ")
    free = trained(tmp_path / "b", (-0.01, 0.01, 0.0))
    assert "is indistinguishable from that of ddp" in free.cause
    assert "higher" not in free.cause
    assert free.next_step.startswith("Use it, if that is enough to you;")


class TestForecast:
    """100 ms of a step of 190 are the bytes of 10 MB: half of them take half of that."""

    TRUTH = Truth(spread=0.0, shared=0.0, compute_s=0.09, bytes_per_s=100e6, hosts=None, gradient_bytes=10**7)

    def test_stands_where_none_was_measured(self, tmp_path: Path) -> None:
        cells = (("single", 1, 32), ("bucketed", 2, 32))
        analysis = analyse(load_run(made_forecast_run(tmp_path, self.TRUTH, cells)))
        advice = found(analysis, CODE)
        assert advice is not None
        assert advice.gain is not None
        assert advice.gain.ratio is None
        assert advice.gain.forecast is not None
        assert advice.gain.forecast.value == pytest.approx(190 / 140, rel=0.02)
        assert advice.gain.text.startswith("a forecast of 1.3")
        assert "which was not measured, sends 0.500 of its bytes" in advice.finding
        assert "It changes the training" in advice.cause
        assert "with --epochs 5 --seeds 3" in advice.next_step
        errors = {name: TRAITS[name].step_error or 1.0 for name in LOSSY}
        named = str(advice.command).split("--strategies single,bucketed,")[1].split()[0]
        alike = [name for name in LOSSY if f"Forecast, samples/s, {name} ÷ bucketed" in evidence(advice)]
        assert errors[named] == min(errors[name] for name in alike), "of equal ones that which errs least"
        assert f"--strategies single,bucketed,{named} " in str(advice.command)
        full = found(analysis, "bandwidth-bound")
        assert full is not None
        assert "Or send fewer bytes, at a price: a forecast of 1.3" in full.next_step

    def test_gives_way_to_what_was_measured(self, tmp_path: Path) -> None:
        """A lossy one that was run and was not faster is not proposed again; others still are."""
        every = (("single", 1, 32), ("bucketed", 2, 32), *((name, 2, 32) for name in LOSSY))
        analysis = analyse(load_run(made_forecast_run(tmp_path, self.TRUTH, every)))
        assert CODE not in codes(analysis)  # as slow as the exact one, as this truth knows no fewer bytes

    def test_silent_where_the_link_is_not_full(self, tmp_path: Path) -> None:
        fast = replace(self.TRUTH, bytes_per_s=5e9)
        analysis = analyse(load_run(made_forecast_run(tmp_path, fast, (("single", 1, 32), ("bucketed", 2, 32)))))
        assert CODE not in codes(analysis)


@pytest.mark.parametrize("module", [rungs, rung_words])
def test_no_rule_names_a_strategy(module: ModuleType) -> None:
    """What is lossy is a trait: a strategy that is added needs no rule."""
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert not [name for name in TRAITS if f'"{name}"' in text]


def test_one_that_was_measured_is_not_told_of_itself(tmp_path: Path) -> None:
    """Where the lossy one fills the link as well, its own advice does not propose it."""
    rung = TestMeasured.FASTER
    sent = messages(rung, Messages(payload_bytes=5 * 10**6, transfer_s=0.1))
    analysis = study(tmp_path, [SINGLE, EXACT, rung], changes=[*FULL, sent])
    full = found(analysis, "bandwidth-bound")
    assert full is not None
    assert full.cell_id == rung.id
    assert found(analysis, CODE) is not None
    assert "Or send fewer bytes" not in full.next_step
