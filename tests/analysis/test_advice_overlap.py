"""How much of the communication hides behind computing: too little, as much as can be, and all that matters."""

from pathlib import Path

import pytest

from advised import SINGLE, Messages, evidence, exchanging, found, gain, link, longer, messages, moved, steps, study
from made_runs import MadeCell
from worldsize.analysis.study import StudyAnalysis

FULL = link(1e-5, 1.1e8)
SENT = Messages(payload_bytes=6 * 10**6, transfer_s=0.12)


def analysed(
    folder: Path, cell: MadeCell, sent: Messages = SENT, *changes: object, **settings: object
) -> StudyAnalysis:
    return study(folder, [SINGLE, cell], changes=[messages(cell, sent), FULL, *changes], **settings)


class TestIncomplete:
    def test_says_what_the_best_overlap_would_take(self, tmp_path: Path) -> None:
        advice = found(analysed(tmp_path, exchanging(exposed=0.2, hidden_s=0.02)), "overlap-incomplete")
        assert advice is not None
        assert "hides 16.7 [16.7, 16.7] % of its communication" in advice.finding  # 20 of 120 ms
        # Computing takes 400 ms, 240 of them backward: 120 ms of bytes fit beside it.
        assert evidence(advice)["Step with the best overlap"].startswith("400 ")
        assert gain(advice) == "at most 1.25 [1.25, 1.25] times the samples/s"
        assert "--strategies single,ddp,bucketed" in str(advice.command)
        assert "--bucket-mb auto" in str(advice.command)

    def test_bytes_that_take_longer_than_backward_bound_the_gain(self, tmp_path: Path) -> None:
        cell = exchanging(exposed=0.6, hidden_s=0.02)  # 200 ms of computing, 120 of them backward
        sent = Messages(payload_bytes=16 * 10**6, transfer_s=0.32)
        advice = found(analysed(tmp_path, cell, sent), "overlap-incomplete")
        assert advice is not None
        # 500 − 300 exposed − 120 backward + 320 transfer
        assert evidence(advice)["Step with the best overlap"].startswith("400 ")
        assert gain(advice) == "at most 1.25 [1.25, 1.25] times the samples/s"

    def test_a_blocking_strategy_is_to_be_replaced(self, tmp_path: Path) -> None:
        advice = found(analysed(tmp_path, exchanging("all-reduce", exposed=0.2)), "overlap-incomplete")
        assert advice is not None
        assert "hides nothing of its communication" in advice.finding
        assert "--strategies single,all-reduce,ddp,bucketed" in str(advice.command)

    def test_planned_buckets_are_the_best_plan_there_is(self, tmp_path: Path) -> None:
        assert found(analysed(tmp_path, exchanging(exposed=0.2), bucket_mb="auto"), "overlap-incomplete") is None

    def test_silent_where_all_that_fits_is_hidden(self, tmp_path: Path) -> None:
        """10 ms less are all that the best overlap would save."""
        cell = exchanging(exposed=0.6, hidden_s=0.11)
        sent = Messages(payload_bytes=20 * 10**6, transfer_s=0.41)
        assert found(analysed(tmp_path, cell, sent), "overlap-incomplete") is None

    def test_silent_where_the_gain_is_not_sure(self, tmp_path: Path) -> None:
        cell = exchanging(exposed=0.1)
        unsteady = steps(cell, longer("exposed_sync_s", (0.1, 2.5)))
        assert found(analysed(tmp_path, cell, SENT, unsteady), "overlap-incomplete") is None


class TestAlready:
    def test_more_bandwidth_will_not_help(self, tmp_path: Path) -> None:
        advice = found(analysed(tmp_path, exchanging(exposed=0.02, hidden_s=0.11)), "overlapped-already")
        assert advice is not None
        assert "hides 91.7 [91.7, 91.7] % of its communication behind computing: more bandwidth will not help" in (
            advice.finding
        )
        assert gain(advice) == "at most 1.02 [1.02, 1.02] times the samples/s from any faster link"

    @pytest.mark.parametrize(
        ("exposed", "hidden_s"), [(0.1, 0.11), (0.02, 0.0)], ids=["much is exposed", "little is sent"]
    )
    def test_silent_where_it_would_help_and_where_there_is_nothing_to_hide(
        self, tmp_path: Path, exposed: float, hidden_s: float
    ) -> None:
        analysis = analysed(tmp_path, exchanging(exposed=exposed, hidden_s=hidden_s))
        assert found(analysis, "overlapped-already") is None

    def test_silent_where_the_exposed_part_may_be_notable(self, tmp_path: Path) -> None:
        cell = exchanging(exposed=0.02, hidden_s=0.11)
        unsteady = steps(cell, moved("forward_s", "exposed_sync_s", (0.0, 0.04)))
        assert found(analysed(tmp_path, cell, SENT, unsteady), "overlapped-already") is None
