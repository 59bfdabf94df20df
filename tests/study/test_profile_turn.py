"""The profile of a cell: one turn after all others, which may fail without any harm."""

from pathlib import Path
from typing import Any

import pytest

from fake_cells import FakeExecutor, made_rank
from fake_study import STUDY, Study, grid
from worldsize.ranks.turns import Turn
from worldsize.results.files import cell_folder, read_record
from worldsize.results.records import CellRecord
from worldsize.results.traces import profile_folder, read_profile
from worldsize.study.blocks import BLOCK_WARMUP, PROFILED_STEPS

PROFILED = STUDY.model_copy(update={"profile": True})
DDP = "ddp-w2-b4"


def ran(tmp_path: Path, **executor: Any) -> Study:
    return Study(tmp_path, grid("single", "ddp"), FakeExecutor(tmp_path, 0, **executor), PROFILED).run()


def record(tmp_path: Path, cell: str) -> CellRecord:
    return read_record(CellRecord, cell_folder(tmp_path, cell) / "cell.json")


def codes(tmp_path: Path, cell: str) -> list[str]:
    return [warning.code for warning in record(tmp_path, cell).warnings]


def test_each_cell_is_profiled_once_after_its_last_block(tmp_path: Path) -> None:
    study = ran(tmp_path)
    assert study.turns("profile") == [("single-w1-b4", 0), (DDP, 0)]
    for name in ("single-w1-b4", DDP):
        own = [op for cell, op, _ in study.executor.log if cell == name]
        assert own[-1] == "profile"
        assert read_profile(cell_folder(tmp_path, name)) is not None
        assert codes(tmp_path, name) == []
    turn = next(turn for _, turn in study.executor.turns if turn.op == "profile")
    assert turn == Turn(op="profile", count=PROFILED_STEPS, warmup=BLOCK_WARMUP)
    assert study.executor.ended == ["single-w1-b4", DDP]


def test_without_the_setting_there_is_no_such_turn(tmp_path: Path) -> None:
    assert Study(tmp_path, grid("ddp"), FakeExecutor(tmp_path, 0)).run().turns("profile") == []


def test_a_cell_that_failed_is_not_profiled(tmp_path: Path) -> None:
    assert ran(tmp_path, fails={(DDP, "steps"): 2}).turns("profile") == [("single-w1-b4", 0)]


def test_workers_that_end_in_the_profile_lose_nothing(tmp_path: Path) -> None:
    study = ran(tmp_path, fails={(DDP, "profile"): 1})
    found = record(tmp_path, DDP)
    assert (found.state, found.error) == ("complete", None)
    assert found.summary is not None
    assert codes(tmp_path, DDP) == ["no-profile"]
    assert "told to fail" in found.warnings[0].message
    assert study.heard.endings == {"single-w1-b4": "precision", DDP: "precision"}


@pytest.mark.parametrize("working", [0, 1])
def test_one_rank_without_a_trace_is_a_warning_and_the_other_one_is_kept(tmp_path: Path, working: int) -> None:
    def profile(rank: int) -> dict[str, Any]:
        if rank == working:
            return {"profile": made_rank(rank), "profile_problem": None}
        return {"profile": None, "profile_problem": "OSError: no space left on device"}

    study = ran(tmp_path, profile=profile)
    assert codes(tmp_path, DDP) == ["no-profile"]
    assert "no space left" in study.heard.records[-1].warnings[0].message
    kept = read_profile(cell_folder(tmp_path, DDP))
    assert kept is not None
    assert [rank.rank for rank in kept.ranks] == [working]


def test_a_record_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    place = profile_folder(cell_folder(tmp_path, DDP))
    place.parent.mkdir(parents=True)
    place.write_text("in the way")
    ran(tmp_path)
    assert codes(tmp_path, DDP) == ["no-profile"]
    assert record(tmp_path, DDP).state == "complete"
