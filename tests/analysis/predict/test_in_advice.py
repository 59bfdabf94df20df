"""Advice that proposes another strategy says what a forecast gives it, beside its bound."""

from pathlib import Path

import pytest

from made_forecasts import Truth, made_forecast_run
from worldsize.analysis.advice.finding import Advice, at_most
from worldsize.analysis.advice.forecasts import with_forecast
from worldsize.analysis.advice.rule import Seen
from worldsize.analysis.study import analyse
from worldsize.results.folder import load_run, write_cell
from worldsize.results.records import Estimate
from worldsize.results.training_records import GradientTimes

CELLS = (("single", 1, 32), ("all-reduce", 2, 32))
TRUTH = Truth(spread=0.0, shared=0.0, compute_s=0.09, bytes_per_s=100e6, hosts=None, gradient_bytes=10**7)
"""Of 60 ms of backward and a message of 100 ms."""


def seen(folder: Path, ready_share: tuple[float, ...]) -> Seen:
    run = made_forecast_run(folder / "run", TRUTH, CELLS)
    for cell in load_run(run).cells.values():
        sizes = (10**7 // len(ready_share),) * len(ready_share)
        cell.record.gradients = GradientTimes(sizes_bytes=sizes, ready_share=ready_share, steps=5)
        write_cell(run, cell.record)
    return Seen(analyse(load_run(run)))


BOTH = "worldsize study --strategies single,all-reduce,bucketed,ddp --world-sizes 1,2 --bucket-mb auto"


def advice(code: str, command: str | None = BOTH) -> Advice:
    gain = at_most(Estimate(value=1.44, samples=20), "Step ÷ (step − exposed communication).")
    return Advice(code, "all-reduce-w2-b32", "", (), "", "", command, gain)


def test_a_strategy_that_overlaps(tmp_path: Path) -> None:
    """Buckets of 6 and 4 MB, ready at half and at the end of backward: 30 of 100 ms are hidden."""
    found = with_forecast(advice("overlap-incomplete"), seen(tmp_path, (1.0, 1.0, 0.5, 0.5, 0.5)))
    assert found is not None
    assert found.gain is not None
    assert found.gain.forecast is not None
    assert "times with bucketed" in found.gain.text
    assert "at most 1.44 times" in found.gain.text
    assert found.gain.forecast.value == pytest.approx(190 / 160, rel=0.02)
    assert found.gain.ratio == Estimate(value=1.44, samples=20), "the bound stays what it was"


@pytest.mark.parametrize(
    ("command", "forecast"),
    [
        (
            "worldsize train --strategy bucketed --world-size 2 --bucket-mb 6",
            "times with bucketed and buckets of 6 MB;",
        ),
        ("worldsize study --strategies all-reduce,bucketed", "times with bucketed;"),
        ("worldsize study --strategies bucketed --bucket-mb auto", "times with bucketed and planned buckets;"),
        ("worldsize study --strategies single,all-reduce --world-sizes 1,2", ""),
        ("worldsize train --strategy ddp --world-size 2", ""),  # which broadcasts as well: that was not measured here
        (None, ""),
    ],
)
def test_it_is_of_what_the_command_runs(tmp_path: Path, command: str | None, forecast: str) -> None:
    found = with_forecast(advice("root-bound", command), seen(tmp_path, (1.0, 1.0, 0.5, 0.5, 0.5)))
    assert found is not None
    gain = found.gain
    assert gain is not None
    assert forecast in gain.text
    assert (gain.forecast is not None) is bool(forecast)


def test_none_where_nothing_is_proposed(tmp_path: Path) -> None:
    given = advice("bandwidth-bound")
    assert with_forecast(given, seen(tmp_path, (1.0, 0.5))) == given


def test_what_is_forecast_to_gain_nothing_is_not_advised(tmp_path: Path) -> None:
    """All gradients are ready when backward ends: no bucket of them can travel beside it."""
    known = seen(tmp_path, (1.0,))
    assert with_forecast(advice("overlap-incomplete"), known) is None
    other = with_forecast(advice("communication-bound"), known)
    assert other is not None
    assert other.next_step.startswith("Double the local batch (b = 64,")
    assert other.command is not None
    assert "--strategies single,all-reduce " in other.command
    assert "--bucket-mb" not in other.command
