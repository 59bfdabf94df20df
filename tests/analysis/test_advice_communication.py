"""What exposed communication is due to: each cause with a link and messages made for it, and its neighbours."""

import json
from pathlib import Path
from typing import Any

import pytest

from advised import (
    SINGLE,
    Messages,
    codes,
    evidence,
    exchanging,
    found,
    gain,
    link,
    messages,
    moved,
    steps,
    study,
)
from worldsize.analysis.advice import Advice
from worldsize.analysis.advice.rule import Seen
from worldsize.analysis.study import StudyAnalysis
from worldsize.results.files import cell_folder

EXPOSED = exchanging(exposed=0.2, hidden_s=0.02)
"""Of 500 ms, 100 are exposed and 20 more are hidden."""
CAUSES = {"bandwidth-bound", "latency-bound", "root-bound", "straggler-bound", "communication-bound"}
MEGABIT = 10**6


def exchange(
    folder: Path, sent: Messages, *changes: object, cell: object = EXPOSED, **settings: object
) -> StudyAnalysis:
    return study(folder, [SINGLE, cell], changes=[messages(cell, sent), *changes], **settings)  # type: ignore[list-item, arg-type]


def only(analysis: StudyAnalysis, code: str) -> Advice:
    """The advice of this cause; no other cause may be named for the same cell."""
    assert set(codes(analysis)) & CAUSES == {code}
    advice = found(analysis, code)
    assert advice is not None
    return advice


class TestBandwidth:
    # 2 messages of 3 MB in 60 ms: 0.1 GB/s at N = 2.
    SENT = Messages(payload_bytes=3 * 10**6, transfer_s=0.06)

    def test_messages_at_the_peak_of_their_link(self, tmp_path: Path) -> None:
        advice = only(exchange(tmp_path, self.SENT, link(1e-5, 1.1e8)), "bandwidth-bound")
        assert advice.cell_id == EXPOSED.id
        # 6 MB / 60 ms ÷ (110 MB/s less the latency in it)
        assert "spends 20.0 [20.0, 20.0] % of its step on exposed communication" in advice.finding
        assert "its messages use 9" in advice.finding
        assert "measured peak of the link" in advice.finding
        assert evidence(advice)["Bus bandwidth of the messages"].startswith("0.100 ")
        assert evidence(advice)["Exposed communication per step"].startswith("100 ")
        assert evidence(advice)["Overlapped with computing per step"].startswith("20.0 ")
        # Twice the samples with the same 100 ms: 1000 / 900; without any: 500 / 400.
        assert gain(advice) == (
            "1.11 [1.11, 1.11] times the samples/s if as many ms stay exposed, at most 1.25 [1.25, 1.25] times the "
            "samples/s if nothing is exposed"
        )
        assert advice.command is not None
        assert "--batch-sizes 64" in advice.command

    def test_a_peak_that_messages_exceed_says_nothing_of_the_link(self, tmp_path: Path) -> None:
        """Something else used the machine while the link was measured."""
        advice = only(exchange(tmp_path, self.SENT, link(1e-5, 6e7)), "communication-bound")
        assert "of the measured peak of the link, which is too low" in advice.finding
        assert str(advice.command).startswith("worldsize comm")

    def test_the_rated_payload_goes_before_the_peak(self, tmp_path: Path) -> None:
        rated = link(1e-5, 5e8, rate_bits_per_s=900 * MEGABIT)  # 107.6 MB/s of payload
        advice = only(exchange(tmp_path, self.SENT, rated), "bandwidth-bound")
        assert "92.9 [92.9, 92.9] % of the payload rate" in advice.finding

    def test_a_global_batch_is_doubled_as_a_whole(self, tmp_path: Path) -> None:
        advice = only(exchange(tmp_path, self.SENT, link(1e-5, 1.1e8), global_batch=64), "bandwidth-bound")
        assert "--global-batch 128" in str(advice.command)

    def test_no_larger_batch_than_the_data_is_recommended(self, tmp_path: Path) -> None:
        large = exchanging(exposed=0.2, batch_size=512)  # of 1,536 samples two workers have 768 each
        advice = only(exchange(tmp_path, self.SENT, link(1e-5, 1.1e8), cell=large), "bandwidth-bound")
        assert advice.command is None

    def test_a_link_that_is_not_full_is_not_named(self, tmp_path: Path) -> None:
        advice = only(exchange(tmp_path, self.SENT, link(1e-5, 4e8)), "communication-bound")
        assert "use only 25" in advice.finding
        assert "--bucket-mb auto" in str(advice.command)

    def test_where_the_buckets_are_planned_nothing_is_left_to_try(self, tmp_path: Path) -> None:
        advice = only(exchange(tmp_path, self.SENT, link(1e-5, 4e8), bucket_mb="auto"), "communication-bound")
        assert "no flag changes more" in advice.next_step
        assert advice.command is None


class TestLatency:
    # 40 messages of 10 kB: by the model 40 · 2 · 0.5 ms of latency, and 4 ms of bytes.
    SENT = Messages(count=40, payload_bytes=10**4, transfer_s=0.06)

    def test_many_small_messages(self, tmp_path: Path) -> None:
        per_tensor = exchanging("all-reduce", exposed=0.2)
        advice = only(exchange(tmp_path, self.SENT, link(5e-4, 1e8), cell=per_tensor), "latency-bound")
        assert "its 40.0 messages per step" in advice.finding
        assert evidence(advice)["Cost model, latency of all messages of a step"] == "40.0 ms"
        assert evidence(advice)["Cost model, their bytes"] == "4.00 ms"
        assert gain(advice) == (  # 500 / (500 − 40), 500 / (500 − 100)
            "1.09 [1.09, 1.09] times the samples/s without the latency that the link's cost model gives them, at most "
            "1.25 [1.25, 1.25] times the samples/s if nothing is exposed"
        )
        assert "--strategies single,all-reduce,ddp,bucketed" in str(advice.command)

    def test_each_message_has_the_latency_of_its_own_size(self, tmp_path: Path) -> None:
        """39 of 1 kB take 1 ms each, one of 2 MB its bytes alone, 20 ms: by their mean 40 would hide half of it."""
        sent = Messages(count=40, payload_bytes=10**3, last_bytes=2 * 10**6, transfer_s=0.06)
        per_tensor = exchanging("all-reduce", exposed=0.2)
        advice = only(exchange(tmp_path, sent, link(5e-4, 1e8, exponent=8), cell=per_tensor), "latency-bound")
        assert evidence(advice)["Cost model, latency of all messages of a step"] == "38.6 ms"
        assert evidence(advice)["Cost model, their bytes"] == "20.4 ms"

    def test_buckets_that_are_too_small_are_made_larger(self, tmp_path: Path) -> None:
        advice = only(exchange(tmp_path, self.SENT, link(5e-4, 1e8), bucket_mb=0.5), "latency-bound")
        assert "--bucket-mb 2" in str(advice.command)

    @pytest.mark.parametrize(
        "sent",
        [
            Messages(count=4, payload_bytes=10**4, transfer_s=0.06),
            Messages(count=40, payload_bytes=10**5, transfer_s=0.08),
        ],
        ids=["few", "large"],
    )
    def test_few_messages_or_large_ones_are_not_latency(self, tmp_path: Path, sent: Messages) -> None:
        only(exchange(tmp_path, sent, link(1e-4, 1e8)), "communication-bound")


class TestRoot:
    SENT = Messages(kind="gather", payload_bytes=3 * 10**6, transfer_s=0.06)

    def test_gradients_through_one_rank(self, tmp_path: Path) -> None:
        cell = exchanging("gather-scatter", exposed=0.2, world_size=4)
        advice = only(exchange(tmp_path, self.SENT, link(1e-5, 1.1e8, world_size=4), cell=cell), "root-bound")
        assert "all of it passes through rank 0" in advice.finding
        assert evidence(advice)["Bytes through rank 0 per step, each way"] == "67.0 MB"
        assert "Rate of the root's link" in evidence(advice), "busbw is no word for a root (method.md §5)"
        assert "--strategies single,gather-scatter,ddp" in str(advice.command)

    def test_of_two_ranks_none_is_a_root(self, tmp_path: Path) -> None:
        """Each sends and takes as much as the other: what costs is that nothing else is done meanwhile."""
        cell = exchanging("gather-scatter", exposed=0.2)
        advice = only(exchange(tmp_path, self.SENT, link(1e-5, 1.1e9), cell=cell), "communication-bound")
        assert "Nothing is computed while it synchronises" in advice.cause
        assert "--strategies single,gather-scatter,ddp" in str(advice.command)

    def test_ddp_that_was_measured_beside_it_is_not_measured_again(self, tmp_path: Path) -> None:
        cells = [SINGLE, exchanging("gather-scatter", exposed=0.3, world_size=4), exchanging("ddp", world_size=4)]
        sent = [messages(cells[1], self.SENT), messages(cells[2], Messages()), link(1e-5, 1.1e8, world_size=4)]
        advice = found(study(tmp_path, cells, changes=sent), "root-bound")
        assert advice is not None
        assert str(advice.command).startswith("worldsize train --strategy ddp --world-size 4 ")

    def test_a_few_bytes_through_a_root_are_not_it(self, tmp_path: Path) -> None:
        """DDP broadcasts its buffers from rank 0 in each forward."""
        sent = Messages(kind="broadcast", payload_bytes=10**4)
        assert found(exchange(tmp_path, sent, link(1e-5, 1.1e8)), "root-bound") is None


class TestStragglers:
    LATE = Messages(transfer_s=0.02, late_s=0.06)

    def test_names_the_rank_that_the_others_wait_for(self, tmp_path: Path) -> None:
        advice = only(exchange(tmp_path, self.LATE, link(1e-5, 1e8)), "straggler-bound")
        # Rank 0 waits 60 of its 80 ms, rank 1 none of its 20: on average 30 of 50.
        assert "60.0 [60.0, 60.0] % of its communication is waiting, for rank 1" in advice.finding
        assert evidence(advice)["Wait per step, mean over ranks"].startswith("30.0 ")
        assert evidence(advice)["Of the waiting, for rank 1"] == "100 [100, 100] %"
        assert "computes no longer than the others" in advice.cause
        assert evidence(advice)["Wait per step of the rank that waits longest"].startswith("60.0 ")
        assert gain(advice) == "at most 1.14 [1.14, 1.14] times the samples/s"  # 500 / (500 − 60)
        assert "--profile" in str(advice.command)

    def test_ranks_that_are_late_in_turn_are_not_accused(self, tmp_path: Path) -> None:
        def in_turn(folder: Path) -> None:
            """In odd steps rank 0 is the late one."""
            paths = [folder / "cells" / EXPOSED.id / f"rank{rank}.spans.jsonl" for rank in (0, 1)]
            lines = [path.read_text().splitlines() for path in paths]
            for rank, path in enumerate(paths):
                mixed = [lines[(rank + step) % 2][step] for step in range(len(lines[0]))]
                path.write_text("".join(f"{line}\n" for line in mixed))

        advice = only(exchange(tmp_path, self.LATE, in_turn), "straggler-bound")
        assert "waiting, for ranks that come late in turn" in advice.finding
        assert "No rank is late more than the others" in advice.cause

    @pytest.mark.parametrize(("error_s", "named"), [(0.0, True), (0.059, True), (0.061, False)])
    def test_no_wait_is_shorter_than_the_error_of_the_clocks(self, tmp_path: Path, error_s: float, named: bool) -> None:
        """Rank 1 is 60 ms late, or its clock is."""

        def vague(rank: int, record: dict[str, Any]) -> None:
            record["clock_error_ns"] = rank * round(1e9 * error_s)

        analysis = exchange(tmp_path, self.LATE, steps(EXPOSED, vague), link(1e-5, 1e8))
        sent = next(cell.communication for cell in analysis.cells if cell.id == EXPOSED.id)
        assert sent is not None
        assert sent.wait_s == pytest.approx(0.03 if named else 0.0)
        assert (found(analysis, "straggler-bound") is not None) is named
        assert (1 in set(sent.messages["last_rank"])) is named

    def test_little_waiting_is_not_it(self, tmp_path: Path) -> None:
        only(exchange(tmp_path, Messages(transfer_s=0.06, late_s=0.02), link(1e-5, 1e8)), "communication-bound")


class TestUnknown:
    def test_a_link_that_was_not_measured_is_measured_first(self, tmp_path: Path) -> None:
        advice = only(exchange(tmp_path, Messages(), hosts=2, link="1gbit"), "communication-bound")
        assert advice.command == "worldsize comm --world-size 2 --hosts 2 --link 1gbit"
        assert "what its link can carry is not known" in advice.finding


@pytest.mark.parametrize("moves", [(0.03,), (0.0, 0.16)], ids=["little", "not surely"])
def test_nothing_is_said_of_a_little_and_of_what_may_be_little(tmp_path: Path, moves: tuple[float, ...]) -> None:
    """The second has 8 % of exposed communication, but none in every other block."""
    cell = exchanging(exposed=0.0)
    exposing = steps(cell, moved("forward_s", "exposed_sync_s", moves))
    analysis = exchange(tmp_path, Messages(), exposing, link(1e-5, 1e8), cell=cell)
    assert not set(codes(analysis)) & CAUSES


def test_one_block_has_no_interval_and_no_cause(tmp_path: Path) -> None:
    cell = exchanging(exposed=0.5, blocks=1)
    assert not set(codes(exchange(tmp_path, Messages(), link(1e-5, 1e8), cell=cell))) & CAUSES


class TestOtherThanGradients:
    """What travels are weights, once in a period, or shards: no bucket and no other strategy sends less of them."""

    SENT = Messages(payload_bytes=3 * 10**6, transfer_s=0.06)

    @pytest.mark.parametrize("strategy", ["local-sgd", "diloco"])
    @pytest.mark.parametrize("bytes_per_s", [1.1e8, 1e9], ids=["the link is full", "it is not"])
    def test_ranks_that_meet_now_and_then_are_to_meet_less_often(
        self, tmp_path: Path, strategy: str, bytes_per_s: float
    ) -> None:
        cell = exchanging(strategy, exposed=0.2)
        analysis = exchange(tmp_path, self.SENT, link(1e-5, bytes_per_s), cell=cell, sync_every=8)
        (code,) = set(codes(analysis)) & CAUSES
        advice = found(analysis, code)
        assert advice is not None
        assert "--sync-every 16" in advice.next_step
        assert advice.command is not None
        assert "--sync-every 16" in advice.command
        assert "ddp" not in advice.command
        assert found(analysis, "overlap-incomplete") is None

    @pytest.mark.parametrize("count", [1, 2, 20])
    @pytest.mark.parametrize("bytes_per_s", [1.1e8, 1e9], ids=["the link is full", "it is not"])
    def test_shards_are_in_no_buckets(self, tmp_path: Path, count: int, bytes_per_s: float) -> None:
        cell = exchanging("fsdp", exposed=0.2, hidden_s=0.02)
        sent = Messages(count=count, payload_bytes=6 * 10**6 // count, transfer_s=0.06)
        analysis = exchange(tmp_path, sent, link(1e-3, bytes_per_s), cell=cell)
        (code,) = set(codes(analysis)) & CAUSES
        advice = found(analysis, code)
        assert advice is not None
        assert "bucket" not in advice.next_step + (advice.command or "")
        assert found(analysis, "overlap-incomplete") is None

    def test_bytes_are_per_step_also_where_few_steps_send(self, tmp_path: Path) -> None:
        cell = exchanging("local-sgd", blocks=8, block_steps=4, warmup_steps=0)

        def every_fourth(folder: Path) -> None:
            for path in cell_folder(folder, cell.id).glob("rank?.spans.jsonl"):
                lines = path.read_text().splitlines(keepends=True)
                path.write_text("".join(line for line in lines if json.loads(line)["step"] % 4 == 0))

        analysis = exchange(tmp_path, self.SENT, every_fourth, cell=cell)
        seen = Seen(analysis)
        assert seen.gradient_sync(seen.several[0]).bytes == pytest.approx(2 * 3 * 10**6 / 4)
        assert seen.gradient_sync(seen.several[0]).messages == pytest.approx(2 / 4)
