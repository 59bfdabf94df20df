"""Upper bounds that hold: what one rank does and the others wait for, and what only one way of measuring sees."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from advised import SINGLE, Change, Messages, codes, exchanging, found, gain, messages, steps, study
from made_runs import MadeCell
from worldsize.analysis.advice.gradient_sync import GradientSync
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.communication import Exposed
from worldsize.analysis.steps import block_means
from worldsize.results.folder import load_run
from worldsize.results.records import Estimate

BLAMED = {"bandwidth-bound", "latency-bound", "root-bound", "straggler-bound", "communication-bound"}
WORK = {"forward_s": 0.15, "backward_s": 0.3, "other_s": 0.05}
CELL = MadeCell("ddp", 2, step_s=0.5, rank_spread=0, shares={**WORK, "data_wait_s": 0.5})
"""Half of the step is to be given to another part by rank."""
ALONE = replace(SINGLE, step_s=0.25, shares={"forward_s": 0.3, "backward_s": 0.6, "other_s": 0.1})


def half(*parts: str) -> Change:
    """Give the half that is open to these parts, by rank."""

    def change(rank: int, record: dict[str, Any]) -> None:
        seconds, record["data_wait_s"] = record["data_wait_s"], 0.0
        record[parts[rank]] += seconds
        if parts[rank] == "exposed_sync_s":
            record["comm_s"] += seconds

    return change


class TestOneRank:
    LATE = Messages(count=1, transfer_s=0.001, late_rank=0, late_s=0.25)

    @pytest.mark.parametrize("sent", [(), (messages(CELL, LATE),)], ids=["no messages", "messages"])
    def test_waits_for_data_and_the_other_one_for_it(self, tmp_path: Path, sent: tuple[Any, ...]) -> None:
        changes = [steps(CELL, half("data_wait_s", "exposed_sync_s")), *sent]
        analysis = study(tmp_path, [ALONE, CELL], changes=changes)
        advice = found(analysis, "slow-rank")
        assert advice is not None
        assert "Rank 0 of ddp with 2 workers at b = 32 takes 250 [250, 250] ms longer per step" in advice.finding
        assert "250 [250, 250] ms of it in data wait" in advice.finding
        assert gain(advice) == "at most 2.00 [2.00, 2.00] times the samples/s"
        assert not {*BLAMED, "input-bound"} & set(codes(analysis)), "the link and the loader have no part in it"

    def test_computes_longer_and_the_other_one_waits(self, tmp_path: Path) -> None:
        changes = [steps(CELL, half("backward_s", "exposed_sync_s")), messages(CELL, self.LATE)]
        analysis = study(tmp_path, [ALONE, CELL], changes=changes)
        late = found(analysis, "slow-rank")
        assert late is not None
        assert gain(late) == "at most 2.00 [2.00, 2.00] times the samples/s"
        assert found(analysis, "compute-slower") is None, "the other rank computes as long as one worker"
        assert found(analysis, "straggler-bound") is None, "it would say the same in other words"

    def test_the_most_is_of_each_step(self, tmp_path: Path) -> None:
        """Ranks that have it in turn have half of it each in the mean, and all of it in every step."""

        def in_turn(rank: int, record: dict[str, Any]) -> None:
            if rank == record["step"] % 2:
                half("exposed_sync_s", "exposed_sync_s")(rank, record)

        study(tmp_path, [ALONE, CELL], changes=[steps(CELL, in_turn)])
        means = block_means(load_run(tmp_path).cells[CELL.id])
        assert means["data_wait_s"].to_list() == pytest.approx([0.125] * means.height)
        assert means["data_wait_most_s"].to_list() == pytest.approx([0.25] * means.height)
        assert means["compute_most_s"].to_list() == pytest.approx([0.225] * means.height)


def both_ways(cell: CellAnalysis, pairing_s: float, *, disagree: bool) -> CellAnalysis:
    def sure(value: float) -> Estimate:
        return Estimate(value=value, low=value, high=value, samples=6)

    off = pairing_s - 0.1
    width = 0.0 if disagree else 2 * abs(off)
    difference = Estimate(value=off, low=off - width, high=off + width, samples=6)
    return replace(cell, exposed=Exposed(timeline=sure(0.1), pairing=sure(pairing_s), difference=difference))


@pytest.mark.parametrize(
    ("pairing_s", "disagree", "most_s"),
    [(0.15, True, 0.15), (0.15, False, 0.1), (0.05, True, 0.1)],
    ids=["pairing finds more", "not surely", "pairing finds less"],
)
def test_the_bound_is_by_the_way_that_finds_more(
    tmp_path: Path, pairing_s: float, disagree: bool, most_s: float
) -> None:
    cell = study(tmp_path, [SINGLE, exchanging(exposed=0.2)]).cells[1]
    exchange = GradientSync(both_ways(cell, pairing_s, disagree=disagree), cell.block_means, None)
    seconds = cell.block_means.select(exchange.exposed_at_most.alias("most"))["most"]
    assert seconds.to_list() == pytest.approx([most_s] * seconds.len())
    assert isinstance(exchange.exposed_at_most, pl.Expr)
