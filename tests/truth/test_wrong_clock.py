"""A rank whose clock is two seconds ahead: the aligned timeline is the one of right clocks."""

import contextlib
from pathlib import Path

import polars as pl
import pytest

from jobs import start
from known import AHEAD_NS, LATE, true_offset_ns
from tiny import tiny_settings
from worldsize.analysis.clocks import interpolated
from worldsize.analysis.communication import communication
from worldsize.analysis.messages import messages
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores
from worldsize.results.files import cell_folder
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord

STEPS = 6

RIGHT, WRONG = "worldsize.training.rank:enter", "known:enter_with_a_wrong_clock"
DRIFTING = "known:enter_with_a_drifting_clock"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cell]:
    return {entry: trained(entry, tmp_path_factory.mktemp("run")) for entry in (RIGHT, WRONG)}


def trained(entry: str, run: Path, strategy: str = "all-reduce", steps: int = STEPS) -> Cell:
    settings = tiny_settings(run, strategy=strategy, world_size=2, batch_size=8)
    placement = place(world_size=2, processes=2, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo")
    folder = cell_folder(run, settings.id)
    job = start(
        entry,
        2,
        folder / "job",
        run=str(run),
        settings=settings.model_dump(mode="json"),
        placement=placement.model_dump(mode="json"),
        session=0,
    )
    with contextlib.closing(job):
        job.receive()
        for turn in ({"op": "steps", "count": steps}, {"op": "finish"}):
            job.send(turn)
            job.receive()
    return Cell(folder, CellRecord.of(settings, placement=placement))


@pytest.mark.quiet  # the errors of offsets, which others lengthen, are held against what was planted
def test_a_clock_that_drifts_is_right_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    """Rank 1 is late in each step, for its turn to last; its clock gains 500 ppm, here about a millisecond."""
    cell = trained(DRIFTING, tmp_path, LATE, steps=40)
    raw, steps = cell.steps.filter(rank=1), interpolated(cell.steps).filter(rank=1)
    middle = (steps["start_ns"] + (steps["step_s"] * 5e8).round().cast(pl.Int64)).to_list()
    wrong, wrong_before = (
        [abs(got - true_offset_ns(at)) for got, at in zip(found["clock_offset_ns"], middle, strict=True)]
        for found in (steps, raw)
    )
    errors = steps["clock_error_ns"].to_list()
    assert all(off <= error for off, error in zip(wrong, errors, strict=True))
    assert max(wrong_before) > max(errors), "the offset of the begin alone is stale"
    none_is_done_before_the_other_begins(cell, 40)


def test_processes_of_one_boot_need_no_correction(cells: dict[str, Cell]) -> None:
    assert set(cells[RIGHT].steps.select("clock_offset_ns", "clock_error_ns").rows()) == {(0, 0)}


def test_the_clock_was_wrong(cells: dict[str, Cell]) -> None:
    def ahead_ns(cell: Cell) -> int:
        first = [cell.steps.filter(rank=rank)["start_ns"].to_list()[0] for rank in (0, 1)]
        return int(first[1] - first[0])

    assert abs(ahead_ns(cells[RIGHT])) < AHEAD_NS / 2
    assert abs(ahead_ns(cells[WRONG]) - AHEAD_NS) < AHEAD_NS / 2


@pytest.mark.parametrize(("entry", "ahead_ns"), [(RIGHT, 0), (WRONG, AHEAD_NS)])
def test_the_offset_is_known_within_its_own_error(cells: dict[str, Cell], entry: str, ahead_ns: int) -> None:
    """The ranks share one machine and so one clock: what was added to it is the truth."""
    steps = cells[entry].steps
    assert set(steps.filter(rank=0)["clock_offset_ns"]) == {0}
    for step in steps.filter(rank=1).iter_rows(named=True):
        assert abs(step["clock_offset_ns"] + ahead_ns) <= step["clock_error_ns"]


@pytest.mark.parametrize("entry", [RIGHT, WRONG])
def test_the_messages_of_both_ranks_lie_beside_each_other(cells: dict[str, Cell], entry: str) -> None:
    none_is_done_before_the_other_begins(cells[entry], STEPS)


def none_is_done_before_the_other_begins(cell: Cell, steps: int) -> None:
    """No rank has all of a sum before the other has given its part."""
    spans = messages(cell)
    both = spans.group_by("step", "number").agg(
        pl.col("issued_ns").max(), pl.col("done_ns").min(), pl.col("clock_error_ns").max()
    )
    assert both.height == steps * spans["number"].n_unique()
    assert (both["done_ns"] + both["clock_error_ns"] >= both["issued_ns"]).all()


@pytest.mark.parametrize("entry", [RIGHT, WRONG])
def test_wait_and_transfer_fit_into_the_steps(cells: dict[str, Cell], entry: str) -> None:
    found = communication(cells[entry])
    assert found is not None
    mean_step_s = float(cells[entry].steps.filter("timed")["step_s"].mean())  # type: ignore[arg-type]
    assert found.wait_s >= 0
    assert found.transfer_s > 0
    assert found.wait_s + found.transfer_s <= mean_step_s
