import pytest

from worldsize.analysis.breakdown import breakdown, epoch_split, losses
from worldsize.results.records import PARTS, CellSummary, Estimate


def summary(
    step_s: float, parts: dict[str, float], comm_s: float | None = None, hidden: float | None = None
) -> CellSummary:
    """A summary whose mean step is its median step, `other` taking what the parts leave."""
    parts_s = {part: parts.get(part, 0.0) for part in PARTS}
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


def test_a_loss_shows_in_the_parts_that_both_cells_have() -> None:
    seen = {"data_wait_s": 0.1, "forward_s": 0.2, "exposed_sync_s": 0.05, "other_s": 0.05}
    base, cell = (
        summary(0.4, {}).model_copy(update={"parts_s": parts}) for parts in (seen, {**seen, "exposed_sync_s": 0.15})
    )
    assert losses(cell, base, None) == pytest.approx(
        {"exposed_sync": 0.1, "data_wait": 0.0, "compute": 0.0, "copy_and_other": 0.0}
    )
    assert losses(cell, base.model_copy(update={"parts_s": {}}), None) == {}


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


def test_causes_add_up_to_what_the_step_lost() -> None:
    baseline = summary(0.4, {"forward_s": 0.1, "backward_s": 0.2, "data_wait_s": 0.01})
    cell = summary(0.6, {"forward_s": 0.15, "backward_s": 0.22, "data_wait_s": 0.02, "exposed_sync_s": 0.08})
    found = losses(cell, baseline, wrapped=None)
    assert sum(found.values()) == pytest.approx(0.2)
    assert found["exposed_sync"] == pytest.approx(0.08)
    assert found["compute"] == pytest.approx(0.07)
    assert found["data_wait"] == pytest.approx(0.01)
    assert "wrapper" not in found


def test_what_one_worker_in_the_wrapper_loses_is_the_wrappers() -> None:
    baseline, wrapped = summary(0.4, {"forward_s": 0.1}), summary(0.45, {"forward_s": 0.12})
    found = losses(summary(0.6, {"forward_s": 0.15, "exposed_sync_s": 0.08}), baseline, wrapped)
    assert found["wrapper"] == pytest.approx(0.05)
    assert found["compute"] == pytest.approx(0.03)
    assert sum(found.values()) == pytest.approx(0.2)
