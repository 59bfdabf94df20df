"""Wait and transfer, and exposed communication both ways, on steps with known truth."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from worldsize.analysis.communication import communication, exposed, observing, observing_text
from worldsize.analysis.messages import messages
from worldsize.config import CellSettings
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord, Placement
from worldsize.results.samples import TakenApartStep
from worldsize.results.step_records import SpanRecord, UnobservedBlock

PARTS: dict[str, Any] = {
    "data_wait_s": 0.0,
    "copy_s": 0.0,
    "forward_s": 0.1,
    "backward_s": 0.2,
    "optimizer_s": 0.0,
    "other_s": 0.0,
    "overlapped_s": 0.0,
}


def a_cell(
    folder: Path,
    late_s: float = 0.0,
    shift_ns: int = 0,
    pairs: bool = True,
    world_size: int = 2,
    early_s: float = 0.0,
) -> Cell:
    """Two ranks, three blocks of one step; two messages of 1 MB that transfer 20 ms each.

    Rank 1 issues the first of them `late_s` after rank 0; its clock runs `shift_ns` ahead, and is aligned. It is
    done with the second one `early_s` before rank 0, as a sender is that only hands its bytes over.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rank in (0, 1):
        steps, spans = [], []
        for block in range(3):
            start_ns = 10**9 * (block + 1)
            issued = late_s if rank else 0.0
            done = late_s + 0.02
            times: dict[str, Any] = {"step_s": 0.34 + late_s, "exposed_sync_s": done - issued + 0.02, "comm_s": 0.04}
            common: dict[str, Any] = {"session": 0, "block": block, "step": block, "epoch": 0, "samples": 8, "loss": 1}
            clock: dict[str, Any] = {
                "start_ns": start_ns + rank * shift_ns,
                "clock_offset_ns": -rank * shift_ns,
                "clock_error_ns": 50,
            }
            steps.append(TakenApartStep(**common, **clock, **times, **PARTS, timed=True))
            spans.append(
                SpanRecord(
                    session=0,
                    step=block,
                    kind=["all_reduce"] * 2,
                    payload_bytes=[10**6] * 2,
                    issued_s=[issued, done],
                    done_s=[done, done + 0.02 - (early_s if rank else 0)],
                )
            )
            if pairs:
                alone = {**times, "step_s": 0.3 - 0.001 * block, "exposed_sync_s": 0.0, "comm_s": 0.0}
                steps.append(TakenApartStep(**common, **clock, **alone, **PARTS, timed=False, synchronised=False))
        (folder / f"rank{rank}.jsonl").write_text("".join(f"{s.model_dump_json()}\n" for s in steps))
        (folder / f"rank{rank}.spans.jsonl").write_text("".join(f"{s.model_dump_json()}\n" for s in spans))
    placement = Placement(
        processes=2, threads_per_worker=1, cores=(), oversubscribed=False, device="cpu", backend="gloo"
    )
    settings = CellSettings(strategy="all-reduce", world_size=world_size)
    return Cell(folder, CellRecord.of(settings, id="c", state="complete", placement=placement))


def test_waiting_for_a_late_rank_is_wait_and_leaves_transfer_and_bandwidth_alone(tmp_path: Path) -> None:
    even, late = communication(a_cell(tmp_path / "even")), communication(a_cell(tmp_path / "late", late_s=0.05))
    assert even is not None
    assert late is not None
    assert even.wait_s == pytest.approx(0, abs=1e-9)
    assert late.wait_s == pytest.approx(0.025)  # 50 ms on one of two ranks
    assert late.transfer_s == pytest.approx(even.transfer_s)
    assert late.transfer_s == pytest.approx(0.04)
    assert late.busbw_bytes_per_s == pytest.approx(even.busbw_bytes_per_s)
    assert late.busbw_bytes_per_s == pytest.approx(2e6 / 0.04)  # 2 MB, factor 1 at N = 2


def test_a_sender_that_is_done_early_makes_the_link_no_faster(tmp_path: Path) -> None:
    found = communication(a_cell(tmp_path, early_s=0.015))
    assert found is not None
    assert found.transfer_s == pytest.approx((0.04 + 0.025) / 2), "the mean over ranks"
    assert found.busbw_bytes_per_s == pytest.approx(2e6 / 0.04)


def test_a_shifted_clock_gives_the_same_aligned_timeline(tmp_path: Path) -> None:
    plain, shifted = a_cell(tmp_path / "a", 0.05), a_cell(tmp_path / "b", 0.05, shift_ns=2 * 10**9)
    points = ["issued_ns", "started_ns", "done_ns"]
    assert messages(shifted).select(points).equals(messages(plain).select(points))
    assert communication(shifted) == communication(plain)


def test_a_wait_within_the_error_of_the_clocks_is_none(tmp_path: Path) -> None:
    """Rank 1 issues its first message 50 ms later, by clocks that agree to 49 ms or to 51 ms together."""
    for each_ns, wait_s in ((24_500_000, 0.025), (25_500_000, 0.0)):
        cell = a_cell(tmp_path / f"{each_ns}", 0.05)
        for path in cell.folder.glob("rank?.jsonl"):
            path.write_text(path.read_text().replace('"clock_error_ns":50', f'"clock_error_ns":{each_ns}'))
        found = communication(cell)
        assert found is not None
        assert found.wait_s == pytest.approx(wait_s, abs=1e-9)
        assert found.wait_s + found.transfer_s == pytest.approx(0.065), "what is no wait is transfer"
        waiting = messages(cell).filter(rank=0, number=0)
        assert ((waiting["started_ns"] - waiting["issued_ns"]) / 1e9).to_list() == pytest.approx([2 * wait_s] * 3)


def test_of_ranks_that_come_last_together_none_is_named(tmp_path: Path) -> None:
    """Rank 0 waits 50 ms for two others, whose clocks do not tell which of them was the last one."""
    for error_ns, named in ((0, 2), (2_000_000, -1), (400_000, 2)):
        cell = a_cell(tmp_path / f"{error_ns}", 0.05)
        three = {kind: (cell.folder / f"rank1{kind}").read_text() for kind in (".jsonl", ".spans.jsonl")}
        for kind, text in three.items():
            (cell.folder / f"rank2{kind}").write_text(text.replace('"issued_s":[0.05,', '"issued_s":[0.051,'))
        for path in cell.folder.glob("rank?.jsonl"):
            path.write_text(path.read_text().replace('"clock_error_ns":50', f'"clock_error_ns":{error_ns}'))
        found = communication(Cell(cell.folder, cell.record))
        assert found is not None
        first = found.messages.filter(pl.col("number") == 0)
        assert set(first["last_rank"]) == {named}
        assert first["waited_ns"].min() > 10_000_000, "somebody is waited for, whoever it is"  # type: ignore[operator]


def test_overlapping_messages_count_once(tmp_path: Path) -> None:
    cell = a_cell(tmp_path)
    path = tmp_path / "rank0.spans.jsonl"
    path.write_text(path.read_text().replace('"issued_s":[0.0,0.02]', '"issued_s":[0.0,0.0]'))
    assert '"issued_s":[0.0,0.0]' in path.read_text()
    found = communication(Cell(tmp_path, cell.record))
    assert found is not None
    assert found.wait_s + found.transfer_s == pytest.approx(0.04)


def test_exposed_communication_both_ways_agrees_and_disagrees(tmp_path: Path) -> None:
    both = exposed(a_cell(tmp_path))
    assert both is not None
    assert both.timeline.value == pytest.approx(0.04)
    assert both.pairing.value == pytest.approx(0.041)
    assert both.difference.value == pytest.approx(0.001)
    assert not both.disagree
    late = exposed(a_cell(tmp_path / "late", late_s=0.05))
    assert late is not None
    assert late.timeline.value == pytest.approx(0.065)  # 90 ms and 40 ms
    assert late.pairing.value == pytest.approx(0.091)
    assert late.disagree


def test_without_pairs_there_is_no_second_way_and_a_world_of_one_has_nothing(tmp_path: Path) -> None:
    assert exposed(a_cell(tmp_path / "a", pairs=False)) is None
    assert communication(a_cell(tmp_path / "b", world_size=1)) is None


def test_unsynchronised_steps_are_not_training_steps(tmp_path: Path) -> None:
    cell = a_cell(tmp_path)
    assert cell.steps.height == cell.unsynchronised.height == 6
    assert cell.steps["step_s"].min() == pytest.approx(0.34)


def test_the_price_of_observing_pairs_a_block_with_its_own_other_half(tmp_path: Path) -> None:
    cell = a_cell(tmp_path)
    assert observing([cell]) is None
    cell.record.unobserved = [
        UnobservedBlock(session=0, block=block, step_s=[0.34 / 1.01]) for block in (0, 1, 7)
    ]  # block 7 was never run with instruments
    price = observing([cell])
    assert price is not None
    assert price.estimate.samples == 2
    assert price.estimate.value == pytest.approx(1.01)


@pytest.mark.parametrize(
    ("without_s", "said"),
    [
        ((0.34 / 1.01, 0.34 / 1.03), "Instrumentation overhead: a step with it takes 1.02 ["),
        ((0.34 / 0.97, 0.34 / 1.02), "Instrumentation overhead: a step with it takes 0.994 ["),
        ((0.34 / 0.97, 0.34 / 0.97), "0.970 [0.970, 0.970] times as long as one without it; it makes no step shorter"),
        ((0.34 / 0.97,), "Instrumentation overhead: not known"),
        ((0.34 / 1.02,), "Instrumentation overhead: a step with it takes 1.02 times as long as one without it."),
    ],
)
def test_a_price_below_nothing_is_shown_with_its_interval_alone(
    tmp_path: Path, without_s: tuple[float, ...], said: str
) -> None:
    cell = a_cell(tmp_path)
    cell.record.unobserved = [
        UnobservedBlock(session=0, block=block, step_s=[each]) for block, each in enumerate(without_s)
    ]
    price = observing([cell])
    assert price is not None
    assert said in observing_text(price)
    assert ("0.97" in observing_text(price)) <= ("[" in observing_text(price))
