from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_runs import MadeCell, make_run, usual_cells
from worldsize.analysis.scaling import (
    ScalingRow,
    amdahl_fraction,
    epoch_time_ratio,
    gustafson_fraction,
    karp_flatt,
    karp_flatt_estimate,
    serial_fractions,
)
from worldsize.analysis.statistics import half_width, includes
from worldsize.analysis.study import analyse
from worldsize.results.folder import load_run
from worldsize.results.records import ErrorRecord, Estimate


def rows(folder: Path, cells: Sequence[MadeCell], **options: object) -> dict[tuple[str, str], ScalingRow]:
    analysis = analyse(load_run(make_run(folder, cells, **options)))  # type: ignore[arg-type]
    return {(row.kind, row.cell.id): row for row in analysis.scaling}


def speedup(row: ScalingRow) -> float:
    assert row.speedup is not None
    return row.speedup.estimate.value


def test_known_speed_up_is_found_exactly_without_noise(tmp_path: Path) -> None:
    row = rows(tmp_path, usual_cells(noise=0))["weak", "ddp-w2-b32"]
    assert row.baseline is not None
    assert row.baseline.id == "single-w1-b32"
    assert speedup(row) == pytest.approx(1.8)
    assert row.efficiency is not None
    assert row.efficiency.estimate.value == pytest.approx(0.9)
    assert row.karp_flatt is None, "the work grows with the workers: Karp and Flatt's fraction is of the same work"


def test_known_speed_up_is_found_through_noise_and_drift(tmp_path: Path) -> None:
    # The machine slows to a half over the study; taken block by block that is in neither value nor interval.
    found = rows(tmp_path, usual_cells(noise=0.01, blocks=12), drift=lambda turn: 1 + turn / 12)
    row = found["weak", "ddp-w2-b32"]
    assert row.speedup is not None
    assert row.speedup.paired
    assert (half_width(row.speedup.estimate) or 1) < 0.05
    # Between the first and the last cell of a turn the machine slows on; this much of the drift is left.
    assert speedup(row) == pytest.approx(1.8, rel=0.07)


def test_cells_that_were_not_timed_in_turn_are_compared_and_marked(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1, noise=0.01), MadeCell("ddp", 2, step_s=0.5 * 2 / 1.8, noise=0.01, session=1)]
    row = rows(tmp_path, cells)["weak", "ddp-w2-b32"]
    assert row.speedup is not None
    assert not row.speedup.paired
    assert includes(row.speedup.estimate, 1.8)


def test_strong_scaling_compares_the_same_global_batch(tmp_path: Path) -> None:
    cells = [
        MadeCell("single", 1, 32, step_s=0.5),
        MadeCell("single", 1, 64, step_s=0.9),
        MadeCell("ddp", 2, 32, step_s=0.6),
    ]
    found = rows(tmp_path, cells)
    strong = found["strong", "ddp-w2-b32"]
    assert strong.baseline is not None
    assert strong.baseline.id == "single-w1-b64"
    assert speedup(strong) == pytest.approx(0.9 / 0.6)
    assert strong.efficiency is not None
    assert strong.efficiency.estimate.value == pytest.approx(0.75)
    assert strong.epoch_time_ratio == pytest.approx(0.9 / 0.6)
    assert speedup(found["weak", "ddp-w2-b32"]) == pytest.approx(2 * 0.5 / 0.6)
    assert ("strong", "single-w1-b64") not in found


def test_the_serial_fraction_of_a_point_has_the_interval_of_its_speed_up(tmp_path: Path) -> None:
    """A speed-up of 1.5 at two workers is a serial fraction of 1/3; the fastest end is the least serial."""
    cells = [MadeCell("single", 1, 64, step_s=0.9, noise=0.02), MadeCell("ddp", 2, 32, step_s=0.6, noise=0.02)]
    row = rows(tmp_path, cells)["strong", "ddp-w2-b32"]
    assert row.speedup is not None
    assert row.karp_flatt is not None
    found, of = row.karp_flatt, row.speedup.estimate
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high
    assert includes(found, 1 / 3)
    assert of.low is not None
    assert of.high is not None
    assert (found.low, found.high) == pytest.approx((karp_flatt(of.high, 2), karp_flatt(of.low, 2)))
    assert found.samples == of.samples


@pytest.mark.parametrize(("speedup_s", "world_size"), [(3.0, 4), (7.9, 8), (2.2, 2)])
def test_a_speed_up_from_one_block_gives_a_serial_fraction_without_interval(speedup_s: float, world_size: int) -> None:
    found = karp_flatt_estimate(Estimate(value=speedup_s, samples=1), world_size)
    assert found.value == pytest.approx(karp_flatt(speedup_s, world_size))
    assert (found.low, found.high) == (None, None)


def test_strong_rows_exist_only_for_pairs_in_the_grid(tmp_path: Path) -> None:
    assert not [kind for kind, _ in rows(tmp_path, usual_cells()) if kind == "strong"]


def test_one_worker_in_a_wrapper_is_compared_with_one_without(tmp_path: Path) -> None:
    row = rows(tmp_path, usual_cells(noise=0))["weak", "ddp-w1-b32"]
    assert speedup(row) == pytest.approx(0.5 / 0.51)
    assert row.karp_flatt is None


def test_without_single_the_strategys_own_world_of_one_is_the_baseline(tmp_path: Path) -> None:
    found = rows(tmp_path, [MadeCell("ddp", 1, step_s=0.5), MadeCell("ddp", 2, step_s=0.625)])
    assert list(found) == [("weak", "ddp-w2-b32")]
    row = found["weak", "ddp-w2-b32"]
    assert row.baseline is not None
    assert row.baseline.id == "ddp-w1-b32"
    assert speedup(row) == pytest.approx(1.6)


def test_a_failed_baseline_gives_way_to_one_with_numbers(tmp_path: Path) -> None:
    failed = MadeCell("single", 1, state="failed", error=ErrorRecord(kind="MemoryError", message="too big"))
    found = rows(tmp_path, [failed, MadeCell("ddp", 1), MadeCell("ddp", 2), MadeCell("all-reduce", 2)])
    assert found["weak", "ddp-w2-b32"].baseline is not None
    assert found["weak", "ddp-w2-b32"].speedup is not None
    assert "no baseline: single-w1-b32" in (found["weak", "all-reduce-w2-b32"].withheld or "")
    assert "too big" in (found["weak", "all-reduce-w2-b32"].withheld or "")


def test_a_different_local_batch_is_no_baseline(tmp_path: Path) -> None:
    row = rows(tmp_path, [MadeCell("single", 1, 64), MadeCell("ddp", 4, 32)])["weak", "ddp-w4-b32"]
    assert row.baseline is None
    assert row.speedup is None
    assert "no baseline" in (row.withheld or "")


def test_oversubscribed_speed_ups_are_withheld_unless_asked_for(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1), MadeCell("ddp", 4, oversubscribed=True)]
    row = rows(tmp_path / "strict", cells)["weak", "ddp-w4-b32"]
    assert row.speedup is None
    assert "more threads than cores" in (row.withheld or "")
    allowed = rows(tmp_path / "allowed", cells, allow_oversubscribed=True)["weak", "ddp-w4-b32"]
    assert speedup(allowed) == pytest.approx(4)


def test_a_baseline_with_other_threads_is_none(tmp_path: Path) -> None:
    row = rows(tmp_path, [MadeCell("single", 1, threads=2), MadeCell("ddp", 2, threads=1)])["weak", "ddp-w2-b32"]
    assert row.speedup is None
    assert "threads per worker" in (row.withheld or "")


def test_failed_cells_keep_their_row_and_get_no_numbers(tmp_path: Path) -> None:
    error = ErrorRecord(kind="OutOfMemoryError", message="no room", rank=1)
    cells = [MadeCell("single", 1), MadeCell("ddp", 2, state="failed", error=error)]
    row = rows(tmp_path, cells)["weak", "ddp-w2-b32"]
    assert row.cell.summary is None
    assert (row.speedup, row.efficiency, row.epoch_time_ratio, row.karp_flatt) == (None, None, None, None)
    assert row.withheld == "OutOfMemoryError (rank 1): no room"


@given(st.floats(0.1, 10), st.integers(1, 64), st.integers(1, 512), st.integers(1, 10**6))
def test_epoch_time_ratio_already_is_the_scaled_speed_up(t1: float, n: int, b: int, samples: int) -> None:
    tn = 0.7
    epoch_1, epoch_n = samples / b * t1, samples / (n * b) * tn
    assert epoch_time_ratio(t1 / tn, b, n * b) == pytest.approx(epoch_1 / epoch_n)
    assert epoch_time_ratio(t1 / tn, b, n * b) == pytest.approx(n * t1 / tn)


@given(st.floats(0, 1), st.sets(st.integers(2, 256), min_size=1, max_size=6))
def test_serial_fraction_is_found_again(fraction: float, world_sizes: set[int]) -> None:
    amdahl = [(n, 1 / (fraction + (1 - fraction) / n)) for n in world_sizes]
    gustafson = [(n, n - fraction * (n - 1)) for n in world_sizes]
    assert amdahl_fraction(amdahl) == pytest.approx(fraction, abs=1e-9)
    assert gustafson_fraction(gustafson) == pytest.approx(fraction, abs=1e-9)
    assert [karp_flatt(s, n) for n, s in amdahl] == pytest.approx([fraction] * len(amdahl), abs=1e-9)


def grid(world_sizes: Sequence[int], fraction: float) -> list[MadeCell]:
    """Weak scaling that follows Gustafson's law with this serial fraction."""
    ddp = [MadeCell("ddp", n, step_s=0.5 * n / (n - fraction * (n - 1))) for n in world_sizes]
    return [MadeCell("single", 1), *ddp]


def test_fit_needs_three_world_sizes_and_names_its_law(tmp_path: Path) -> None:
    (fit,) = analyse(load_run(make_run(tmp_path / "three", grid([2, 4], 0.1)))).serial_fractions
    assert (fit.kind, fit.strategy, fit.batch, fit.world_sizes, fit.law) == ("weak", "ddp", 32, (1, 2, 4), "Gustafson")
    assert fit.value == pytest.approx(0.1)
    assert not analyse(load_run(make_run(tmp_path / "two", grid([2], 0.1)))).serial_fractions


def test_strong_fit_is_amdahls(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1, 64, step_s=1.0)]
    cells += [MadeCell("ddp", n, 64 // n, step_s=0.2 + 0.8 / n) for n in (2, 4)]
    analysis = analyse(load_run(make_run(tmp_path, cells)))
    (fit,) = [fit for fit in serial_fractions(analysis.scaling) if fit.kind == "strong"]
    assert (fit.law, fit.batch, fit.world_sizes) == ("Amdahl", 64, (1, 2, 4))
    assert fit.value == pytest.approx(0.2)


def test_noise_of_a_real_study_keeps_the_truth_within_the_interval(tmp_path: Path) -> None:
    truths = {"data-parallel": 1.3, "gather-scatter": 1.45, "all-reduce": 1.65, "ddp": 1.8}
    cells = [replace(cell, noise=0.03) for cell in usual_cells(blocks=8)]
    hits = []
    for seed in range(5):
        found = rows(tmp_path / str(seed), cells, seed=seed, drift=lambda turn: 1 + 0.002 * np.sin(turn))
        for strategy, truth in truths.items():
            row = found["weak", f"{strategy}-w2-b32"]
            assert row.speedup is not None
            hits.append(includes(row.speedup.estimate, truth))
    assert sum(hits) >= 0.9 * len(hits)
