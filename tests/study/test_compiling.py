"""What compiling takes of a study is noted by launch, and told where it is most of a budget."""

from pathlib import Path
from typing import Any

import pytest

from fake_cells import planned
from worldsize.config import StudySettings, validated
from worldsize.errors import UsageError
from worldsize.measure.compiler import check_cpp_compiler, find_cpp_compiler
from worldsize.ranks.turns import Facts
from worldsize.results.records import CellRecord
from worldsize.study.compiling import CODE, compiled


def facts(compile_s: float | None) -> Facts:
    return Facts(steps_per_epoch=4, matmul_flops_per_s=None, compile_s=compile_s)


def record(strategy: str, **settings: Any) -> CellRecord:
    study = StudySettings(strategies=(strategy,), **settings)
    return CellRecord.of(planned(strategy, 2, study).settings)


def test_each_launch_has_the_time_of_its_slowest_rank() -> None:
    cell = record("ddp", compile=True)
    compiled(cell, [facts(3.0), facts(5.0)], [cell])
    compiled(cell, [facts(1.0), facts(0.5)], [cell])
    assert cell.compile_s == [5.0, 1.0]
    assert cell.warnings == []


def test_nothing_is_noted_where_nothing_is_compiled() -> None:
    cell = record("ddp", budget="10s")
    compiled(cell, [facts(None), facts(None)], [cell])
    assert (cell.compile_s, cell.warnings) == ([], [])


def test_more_than_half_of_a_budget_is_told_with_a_budget_that_has_room() -> None:
    cells = [record("ddp", compile=True, budget="90s"), record("all-reduce", compile=True, budget="90s")]
    compiled(cells[0], [facts(40.0)], cells)
    assert cells[0].warnings == []
    compiled(cells[1], [facts(20.0)], cells)
    (warning,) = cells[1].warnings
    assert warning.code == CODE
    assert "60 s of the budget of 90 s" in warning.message
    assert "--budget 150s" in warning.message


def test_no_compiler_is_a_plain_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_cpp_compiler() is None
    with pytest.raises(UsageError, match=r"needs a C\+\+ compiler: .* was not found"):
        check_cpp_compiler()
    own = tmp_path / "my++"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("CXX", "my++")
    assert find_cpp_compiler() == str(own)
    check_cpp_compiler()


def test_a_script_has_nothing_to_compile() -> None:
    with pytest.raises(UsageError, match="leave out compile"):
        validated(StudySettings, {"script": "train.py", "compile": True})
