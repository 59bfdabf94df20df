"""What a strategy of the user's own says of itself reaches the links that are measured, and the analysis."""

from pathlib import Path

import pytest

import worldsize
from tiny import MODEL
from worldsize.analysis.bandwidth import collectives_of
from worldsize.analysis.study import analyse

pytestmark = pytest.mark.usefixtures("clean_imports")

OWN = """
from worldsize.strategies.gather_scatter import GatherScatter

class Mine(GatherScatter):
    pass
"""


def test_its_traits_are_recorded_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "tiny_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)

    run = worldsize.study(
        out=tmp_path / "run",
        model="tiny_model.py:net",
        data="digits",
        strategies=("own.py:Mine",),
        world_sizes=(2,),
        batch_sizes=(8,),
        threads_per_worker=1,
        steps=2,
        warmup_steps=1,
        report=False,
    )

    [cell] = analyse(run).cells
    assert cell.record is not None
    assert cell.record.own_traits is not None
    assert cell.traits.collectives == ("gather", "scatter")
    assert cell.traits.rooted
    assert collectives_of(run.comm[2]) == ["gather", "scatter"]
