"""Batches that are too small, memory that is left, and the knee of a sweep."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from advised import evidence, found, gain, longer, records, steps, study
from made_runs import MadeCell
from worldsize.analysis.study import StudyAnalysis
from worldsize.results.folder import load_run, write_study
from worldsize.results.records import CellRecord, ErrorRecord

SMALL = MadeCell("single", 1, 32, step_s=0.5)
LARGE = MadeCell("single", 1, 64, step_s=0.8)
"""64 and 80 samples/s; by the line through both, 106.7 for ever larger batches."""
FLAT = MadeCell("single", 1, 64, step_s=0.99)
MEMORY = ErrorRecord(kind="OutOfMemory", message="can't allocate memory", rank=0)
GIB = 2**30


def using(cell: MadeCell, peak_bytes: int) -> Callable[[Path], None]:
    def set_peak(record: CellRecord) -> None:
        record.peak_memory_bytes = peak_bytes

    return records(cell, set_peak)


def computing(cell: MadeCell, matmul_flops_per_s: float) -> Callable[[Path], None]:
    def set_rate(record: CellRecord) -> None:
        record.matmul_flops_per_s = matmul_flops_per_s

    return records(cell, set_rate)


class TestTooSmall:
    def test_throughput_that_still_rises(self, tmp_path: Path) -> None:
        advice = found(study(tmp_path, [SMALL, LARGE]), "batch-too-small")
        assert advice is not None
        assert "b = 64 has 1.25 [1.25, 1.25] times the samples/s of b = 32" in advice.finding
        assert gain(advice) == "at most 1.33 [1.33, 1.33] times the samples/s"
        assert "b = 128" in advice.next_step
        assert advice.command == ("worldsize study --strategies single --world-sizes 1 --batch-sizes 64,128 --steps 18")

    def test_silent_past_the_knee_and_where_it_may_not_rise(self, tmp_path: Path) -> None:
        assert found(study(tmp_path / "flat", [SMALL, FLAT]), "batch-too-small") is None
        unsteady = steps(LARGE, longer("backward_s", (0.8, 1.6)))
        assert found(study(tmp_path / "unsure", [SMALL, LARGE], changes=[unsteady]), "batch-too-small") is None

    def test_no_batch_larger_than_the_data(self, tmp_path: Path) -> None:
        cells = [replace(SMALL, batch_size=768), replace(LARGE, batch_size=1536)]
        assert found(study(tmp_path, cells), "batch-too-small") is None

    def test_a_device_that_is_hardly_busy(self, tmp_path: Path) -> None:
        # 1e9 operations per sample are asked for below: 32e9 in 450 ms of forward and backward are 71.1e9 per second.
        busy = computing(SMALL, 7.11e11)
        advice = found(with_flops(tmp_path / "little", busy), "batch-too-small")
        assert advice is not None
        assert (
            "runs forward and backward at 10.0 [10.0, 10.0] % of the matrix-multiply rate of its cores."
            in advice.finding
        )
        assert "--batch-sizes 32,64,128" in str(advice.command)
        assert advice.gain is None
        assert found(with_flops(tmp_path / "much", computing(SMALL, 1e11)), "batch-too-small") is None

    def test_the_optimizer_is_no_idle_device(self, tmp_path: Path) -> None:
        """32e9 operations in 150 ms are 32 % of the rate; with the 300 ms of the optimizer they would be 11 %."""
        heavy = replace(SMALL, shares={"forward_s": 0.1, "backward_s": 0.2, "optimizer_s": 0.6, "other_s": 0.1})
        rate = computing(SMALL, 6.67e11)
        assert found(with_flops(tmp_path, rate, cell=heavy), "batch-too-small") is None

    def test_silent_where_the_data_has_no_larger_batch(self, tmp_path: Path) -> None:
        assert found(with_flops(tmp_path, computing(SMALL, 7.11e11), samples=40), "batch-too-small") is None


def with_flops(
    folder: Path, *changes: Callable[[Path], None], cell: MadeCell = SMALL, samples: int = 1536
) -> StudyAnalysis:
    def set_flops(place: Path) -> None:
        record = load_run(place).study
        model = record.training[2].model_copy(update={"flops_per_sample": 10**9})
        data = record.training[1].model_copy(update={"train_samples": samples})
        write_study(place, record.model_copy(update={"model": model, "data": data}))

    return study(folder, [cell], changes=[*changes, set_flops])


class TestHeadroom:
    def test_memory_for_larger_batches_that_are_faster(self, tmp_path: Path) -> None:
        advice = found(study(tmp_path, [SMALL, LARGE], changes=[using(LARGE, 2 * GIB)]), "memory-headroom")
        assert advice is not None
        assert "uses 2.00 GiB of the 8.00 GiB" in advice.finding
        assert advice.command == "worldsize sweep --strategy single --world-size 1 --batch-size 64 --steps 18"
        assert gain(advice) == "at most 1.33 [1.33, 1.33] times the samples/s"

    @pytest.mark.parametrize("gib", [4.1, None], ids=["not enough", "unknown"])
    def test_silent_without_room_for_twice_the_batch(self, tmp_path: Path, gib: float | None) -> None:
        changes = [using(LARGE, int(gib * GIB))] if gib else []
        assert found(study(tmp_path, [SMALL, LARGE], changes=changes), "memory-headroom") is None

    def test_silent_where_larger_is_not_faster_and_under_a_limit(self, tmp_path: Path) -> None:
        flat = study(tmp_path / "flat", [SMALL, FLAT], changes=[using(FLAT, GIB)])
        assert found(flat, "memory-headroom") is None
        limited = study(tmp_path / "limit", [SMALL, LARGE], changes=[using(LARGE, GIB)], memory_limit="1.5GiB")
        assert found(limited, "memory-headroom") is None

    def test_silent_where_a_sweep_has_found_the_end(self, tmp_path: Path) -> None:
        beyond = MadeCell("single", 1, 128, state="failed", error=MEMORY)
        analysis = study(tmp_path, [SMALL, LARGE, beyond], changes=[using(LARGE, GIB)], sweep=True)
        assert found(analysis, "memory-headroom") is None
        assert found(analysis, "batch-too-small") is None

    def test_a_sweep_that_was_asked_to_end_may_go_on(self, tmp_path: Path) -> None:
        analysis = study(tmp_path, [SMALL, LARGE], changes=[using(LARGE, GIB)], sweep=True, largest_batch=64)
        for code in ("memory-headroom", "batch-too-small"):
            advice = found(analysis, code)
            assert advice is not None
            assert advice.command == "worldsize sweep --strategy single --world-size 1 --batch-size 64 --steps 18"


class TestKnee:
    def test_the_smallest_batch_that_is_as_fast_as_any(self, tmp_path: Path) -> None:
        largest = MadeCell("single", 1, 128, step_s=1.59)  # 80.5 samples/s
        changes = [using(LARGE, GIB), using(largest, 3 * GIB)]
        advice = found(study(tmp_path, [SMALL, LARGE, largest], changes=changes, sweep=True), "batch-knee")
        assert advice is not None
        assert advice.cell_id == LARGE.id
        assert gain(advice) == "1.25 [1.25, 1.25] times the samples/s of b = 32"
        assert evidence(advice)["Samples/s, b = 128 ÷ b = 64"] == "1.01 [1.01, 1.01]"
        assert evidence(advice)["Peak memory at b = 128"] == "3.00 GiB"
        assert advice.command == "worldsize train --strategy single --world-size 1 --batch-size 64"

    def test_a_first_batch_that_is_as_fast_as_any(self, tmp_path: Path) -> None:
        advice = found(study(tmp_path, [SMALL, FLAT], sweep=True), "batch-knee")
        assert advice is not None
        assert advice.cell_id == SMALL.id
        assert advice.gain is None

    def test_silent_where_batches_are_not_told_apart(self, tmp_path: Path) -> None:
        cells = [replace(SMALL, noise=0.3), replace(LARGE, noise=0.3)]
        assert found(study(tmp_path, cells, sweep=True), "batch-knee") is None

    def test_silent_outside_of_a_sweep(self, tmp_path: Path) -> None:
        assert found(study(tmp_path, [SMALL, FLAT]), "batch-knee") is None
