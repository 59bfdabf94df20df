"""Whatever starts the workers, the numbers are the same: losses bit for bit, steps, records, tables."""

import json
from typing import Any

import pytest

from same_study import tables
from worldsize.results.folder import Cell, Run

OTHERS = ("torchrun", "nodes", "slurm", "ray")
"""Launchers that are compared with `local`; another one is a name here and its command in conftest.py."""
CELLS = ["single-w1-b8", "gather-scatter-w2-b4", "all-reduce-w2-b4", "ddp-w2-b4"]
TRAINED = ["rank", "session", "block", "step", "epoch", "timed", "synchronised", "samples", "loss", "accuracy"]
"""What a step trains, which no clock has a say in."""


@pytest.fixture(params=OTHERS)
def other(request: pytest.FixtureRequest, studies: Any) -> Run:
    """The study under another launcher."""
    run: Run = studies(request.param)
    return run


@pytest.fixture
def local(studies: Any) -> Run:
    """The study as it runs here."""
    run: Run = studies("local")
    return run


def trained(cell: Cell) -> list[dict[str, Any]]:
    return cell.step_columns(*TRAINED).sort("rank", "step", "block").to_dicts()


def test_the_cells_are_complete_and_the_losses_are_the_same_bit_for_bit(local: Run, other: Run) -> None:
    assert list(local.cells) == list(other.cells) == CELLS
    for name, cell in other.cells.items():
        assert cell.record.state == "complete"
        steps = trained(cell)
        assert {step["rank"] for step in steps} == ({0} if name.startswith("single") else {0, 1})
        assert steps == trained(local.cells[name])


def test_the_weights_are_the_same(local: Run, other: Run) -> None:
    for name, cell in other.cells.items():
        ours, theirs = local.cells[name].record, cell.record
        assert ours.verified == theirs.verified
        assert ours.verified is not None
        assert ours.evaluations == theirs.evaluations


def shape(value: Any) -> Any:
    """The keys of a record, all the way down; a list has those of its first."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__


def test_a_cells_record_has_the_same_keys(local: Run, other: Run) -> None:
    for name in CELLS:
        ours, theirs = (json.loads((run.folder / "cells" / name / "cell.json").read_text()) for run in (local, other))
        assert ours.keys() == theirs.keys()
        for key in ("placement", "wire", "summary", "verified", "evaluations", "messages"):
            assert shape(ours[key]) == shape(theirs[key]), key


def test_the_tables_have_the_same_rows_and_columns(local: Run, other: Run) -> None:
    assert tables(local) == tables(other)
