"""Whether more workers pay: the answer that was planted, and never less or more than the intervals say."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from made_runs import SHARES, MadeCell, make_run
from worldsize.analysis.advice import advise
from worldsize.analysis.advice.rule import Seen
from worldsize.analysis.decision import is_decided
from worldsize.analysis.headline import headline
from worldsize.analysis.pays import Pay
from worldsize.analysis.replay import _is_usable
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.verdict import verdict
from worldsize.report.result_tables import compact_table
from worldsize.results.folder import load_run
from worldsize.traits import ALL_CORES

ONE = MadeCell("single", 1, 8, step_s=0.1, noise=0.01, blocks=12)
"""80 samples/s on one core."""


def all_cores(batch: int, rate: float) -> MadeCell:
    """One worker with both cores, which has so many samples/s."""
    return replace(ONE, batch_size=batch, step_s=batch / rate, threads=2, label=ALL_CORES)


def two(rate: float, strategy: str = "ddp", **options: float) -> MadeCell:
    """Two workers with a core each, which have so many samples/s."""
    made = MadeCell(strategy, 2, 8, step_s=16 / rate, shares=dict(SHARES), noise=0.01, blocks=12)
    return replace(made, **options)  # type: ignore[arg-type]


def study(folder: Path, cells: Sequence[MadeCell], **options: int) -> StudyAnalysis:
    return analyse(load_run(make_run(folder, cells, **options)))  # type: ignore[arg-type]


def pay(analysis: StudyAnalysis) -> Pay:
    found = headline(analysis)
    assert found is not None
    assert found.pay is not None
    return found.pay


@pytest.mark.parametrize(("rate", "workers"), [(150, "one"), (120, "several"), (129, "even")])
def test_workers_are_held_against_one_with_all_cores_at_its_best_batch(
    tmp_path: Path, rate: float, workers: str
) -> None:
    """Two workers have 130 samples/s, 1.63 times one with a core; with both cores it has 100 or `rate`, by batch."""
    analysis = study(tmp_path, [all_cores(8, 100), all_cores(16, rate), ONE, two(130)])
    found = pay(analysis)
    assert found.workers == workers
    assert found.fastest.baseline.id == "single-w1-b16-all-cores"
    assert found.fastest.ratio.value == pytest.approx(130 / rate, rel=0.02)
    row = analysis.scaling_of(found.fastest.cell)
    assert row is not None
    assert row.speedup is not None
    assert row.speedup.estimate.value == pytest.approx(130 / 80, rel=0.02)


def test_the_verdict_has_both_figures(tmp_path: Path) -> None:
    text = verdict(study(tmp_path, [all_cores(8, 150), ONE, two(130)]))
    assert text.startswith("One worker with 2 cores is faster than 2 workers: they are 0.8")
    assert "over single-w1-b8 with as many cores as each of them" in text
    assert "a scaled speed-up of 1.6" in text


def test_the_table_has_both(tmp_path: Path) -> None:
    table = compact_table(study(tmp_path, [all_cores(8, 150), ONE, two(130)]), 200)
    texts = [[entry.text for entry in row] for row in table.rows]
    assert texts[0][0] == "single 2 cores"
    assert any(text.startswith("0.8") for text in texts[-1])
    assert any(text.startswith("81.") for text in texts[-1])  # efficiency of 130 ÷ 80 ÷ 2


def test_another_worker_pays_as_soon_as_any_cell_says_so(tmp_path: Path) -> None:
    """The fastest is noisy and may be slower than one worker; another one surely is not."""
    cells = [ONE, two(128), two(250, "all-reduce", noise=1.0)]
    analysis = study(tmp_path, cells, seed=3)
    found = pay(analysis)
    assert found.fastest.cell.strategy == "all-reduce"
    assert found.fastest.ratio.low is not None
    assert found.fastest.ratio.low < 1
    assert found.surest.cell.strategy == "ddp"
    assert found.workers == "several"
    assert found.surest.at_least is not None
    one = "one with as many cores as each of them (ddp-w2-b8, by one launch)."
    assert f"2 workers are at least {found.surest.at_least:.2f} times as fast as {one}" in verdict(analysis)
    assert is_decided(analysis) is False  # which strategy is still open


def test_the_surest_of_several_is_held_to_more_than_one_alone(tmp_path: Path) -> None:
    found = pay(study(tmp_path, [ONE, two(128), two(126, "all-reduce"), two(125, "manual")]))
    printed = found.surest.ratio.low
    assert printed is not None
    assert found.surest.at_least is not None
    assert found.surest.cell is found.fastest.cell or found.surest.at_least < printed


def test_one_with_all_cores_is_a_yardstick_and_no_way_to_train(tmp_path: Path) -> None:
    """No advice is about it or uses it as the baseline of a strategy, and a rehearsal replays no step of it."""
    analysis = study(tmp_path, [all_cores(8, 150), all_cores(16, 160), ONE, two(130)])
    seen = Seen(analysis)
    assert {cell.id for cell in seen.cells} == {"single-w1-b8", "ddp-w2-b8"}
    assert {advice.cell_id for advice in advise(analysis)} <= {"single-w1-b8", "ddp-w2-b8", None}
    assert [cell.record.label for cell in analysis.run.cells.values() if _is_usable(cell)] == ["", ""]


@pytest.mark.parametrize("seed", range(12))
def test_no_answer_says_more_than_a_printed_interval(tmp_path: Path, seed: int) -> None:
    """Over studies of all kinds of rates and noise: what the first sentence claims, a row of the table shows."""
    draw = np.random.default_rng(seed)
    rates, noise = draw.uniform(60, 200, 3), float(draw.choice([0.01, 0.05, 0.3]))
    cells = [all_cores(8, float(draw.uniform(70, 160)))] if seed % 2 else []
    cells += [replace(ONE, noise=noise)]
    cells += [two(rate, name, noise=noise) for rate, name in zip(rates, ("ddp", "all-reduce", "bucketed"), strict=True)]
    analysis = study(tmp_path, cells, seed=seed)
    found, rows = pay(analysis), analysis.on_machine or analysis.scaling
    printed = {row.cell.id: row.speedup.estimate for row in rows if row.speedup}
    fastest, surest = printed[found.fastest.cell.id], printed[found.surest.cell.id]
    assert fastest.low is not None
    assert fastest.high is not None
    assert surest.low is not None
    assert {
        "several": surest.low > 1,
        "one": fastest.high < 1,
        "even": fastest.low >= 0.95 and fastest.high <= 1.06,
        "open": fastest.low <= 1,
    }[found.workers]
    assert found.fastest.ratio == fastest
