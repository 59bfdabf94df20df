"""Rehearsals of a run whose computing is known: its times are in the rehearsed steps (needs root; CI has it)."""

import time
from pathlib import Path
from typing import Any

import pytest

import worldsize
from repeated import Repeated
from replayable import BACKWARD_S, COMPUTED_S, FORWARD_S, LATE_S, replayable
from rights import needs_rights
from worldsize.api.run import Run

pytestmark = needs_rights

PLANTED_S = 0.02


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return replayable(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def rehearsed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Repeated[Run]:
    def measure() -> Run:
        out = tmp_path_factory.mktemp("rehearsal") / "run"
        return worldsize.rehearse(source, hosts=3, link="1gbit", strategies="all-reduce", steps=20, out=out)

    return Repeated(measure)


def test_the_planted_computing_is_in_the_steps(rehearsed: Repeated[Run]) -> None:
    def holds(run: Run) -> None:
        alone, several = (run.cells[name].record.summary for name in ("single-w1-b32", "all-reduce-w3-b32"))
        assert alone is not None
        assert several is not None
        assert sum(alone.parts_s.values()) == pytest.approx(COMPUTED_S, rel=0.03)
        assert alone.step_s.value >= 0.99 * COMPUTED_S  # and what this machine does between two steps
        assert several.parts_s["backward_s"] == pytest.approx(BACKWARD_S, rel=0.03)
        # Rank 1 computes LATE_S longer; ranks 0 and 2 are as rank 0 was.
        assert several.parts_s["forward_s"] == pytest.approx(FORWARD_S + LATE_S / 3, rel=0.05)
        assert several.step_s.value > COMPUTED_S + LATE_S

    rehearsed.check(holds)


def test_what_it_cannot_know_is_absent(rehearsed: Repeated[Run]) -> None:
    run = rehearsed.any()
    assert run.study.rehearses
    assert run.study.data is None
    assert run.study.model is not None
    assert run.study.model.flops_per_sample is None
    for cell in run.cells.values():
        record = cell.record
        assert (record.matmul_flops_per_s, record.peak_memory_bytes, record.memory) == (None, None, None)
        assert record.verified is None
        assert record.evaluations == []
        assert record.replayed is not None
        assert record.replayed.fidelity is not None
        if Path("/proc/self/schedstat").exists():
            assert record.replayed.queued_share is not None
            assert 0 < record.replayed.queued_share < 1
        assert cell.collect(cell.scan_steps())["loss"].null_count() == cell.collect(cell.scan_steps()).height
    assert run.verdict.startswith("Rehearsed, not measured: ")
    assert run.advice == []
    page = run.page.read_text(encoding="utf-8")
    assert "rehearsal of made, not a measurement" in page
    assert run.tables["replayed"].height == 2
    assert run.tables["host-links"].height == 3


def test_ranks_keep_their_times_and_links_theirs(rehearsed: Repeated[Run]) -> None:
    def holds(run: Run) -> None:
        fidelity = [cell.record.replayed.fidelity for cell in run.cells.values() if cell.record.replayed]
        assert min(each or 0 for each in fidelity) >= 0.98
        for link in run.comm[3].links:
            assert link.payload_bytes_per_s is not None
            assert link.burst is not None
            assert link.steady_bytes_per_s == pytest.approx(link.payload_bytes_per_s, rel=0.1)
            assert link.burst <= 1.1

    rehearsed.check(holds)


def test_a_planted_straggler_costs_what_was_planted(rehearsed: Repeated[Run], source: Path, tmp_path: Path) -> None:
    first = [rehearsed.any()]

    def rehearsal(**planted: Any) -> Run:
        out = tmp_path / str(time.monotonic_ns())
        return worldsize.rehearse(
            source,
            hosts=3,
            link="1gbit",
            strategies="all-reduce",
            steps=20,
            out=out,
            report=False,
            progress=False,
            **planted,
        )

    def step_s(run: Run) -> float:
        found = run.cells["all-reduce-w3-b32"].record.summary
        assert found is not None
        return found.step_s.value

    def costs() -> float:
        usual = first.pop() if first else rehearsal()
        return step_s(rehearsal(slow_rank="1:20ms")) - step_s(usual)

    def holds(cost_s: float) -> None:
        assert cost_s == pytest.approx(PLANTED_S, abs=0.005)

    Repeated(costs).check(holds)
