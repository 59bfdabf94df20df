import pytest

from worldsize.analysis.breakdown import breakdown, epoch_split
from worldsize.results.records import STEP_PARTS, CellSummary, Estimate


def summary(
    step_s: float, parts: dict[str, float], comm_s: float | None = None, hidden: float | None = None
) -> CellSummary:
    """A summary whose mean step is its median step, `other` taking what the parts leave."""
    parts_s = {part: parts.get(part, 0.0) for part in STEP_PARTS}
    parts_s["other_s"] = step_s - sum(parts_s.values())
    return CellSummary(
        step_s=Estimate(value=step_s, samples=1),
        samples_per_s=Estimate(value=32 / step_s, samples=1),
        parts_s=parts_s,
        comm_s=comm_s,
        overlapped_s=hidden,
        timed_steps=1,
        blocks=1,
    )


def test_shares_add_up_and_overlap_is_a_share_of_the_communication() -> None:
    found = breakdown(summary(0.5, {"forward_s": 0.15, "exposed_sync_s": 0.1}, comm_s=0.4, hidden=0.3))
    assert found is not None
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.shares["forward_s"] == pytest.approx(0.3)
    assert found.exposed_share == pytest.approx(0.2)
    assert found.overlapped_share == pytest.approx(0.75)


@pytest.mark.parametrize(("comm_s", "hidden"), [(None, None), (0.0, 0.0)])
def test_without_communication_nothing_is_overlapped(comm_s: float | None, hidden: float | None) -> None:
    found = breakdown(summary(0.5, {"forward_s": 0.5}, comm_s, hidden))
    assert found is not None
    assert found.overlapped_share is None


def test_a_step_without_marked_phases_has_no_shares() -> None:
    assert breakdown(summary(0.5, {}).model_copy(update={"parts_s": {}})) is None


def test_subtraction_beside_the_measured_split() -> None:
    # t_1 = 0.4 s and t_2 = 0.5 s: of an epoch of 100 steps, 40 s are T_1/2, and 10 s are blamed on the network.
    parts = {"forward_s": 0.15, "backward_s": 0.25, "optimizer_s": 0.02, "exposed_sync_s": 0.05}
    split = epoch_split(("ddp-w2-b32", summary(0.5, parts, comm_s=0.2)), "single-w1-b32", 0.8, steps_per_epoch=100)
    assert split.epoch_s == pytest.approx(50)
    assert split.inferred_compute_s == pytest.approx(40)
    assert split.inferred_comm_s == pytest.approx(10)
    assert split.measured_compute_s == pytest.approx(42)
    assert split.measured_exposed_s == pytest.approx(5)
    assert split.measured_comm_s == pytest.approx(20)
    assert split.difference_s == pytest.approx(5)
