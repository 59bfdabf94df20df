"""Which steps count, by the short computation beside them: the same on the lines and in the schedule (method.md §8)."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from made_runs import SHARES
from worldsize.analysis.cells import analyse_cell
from worldsize.analysis.compare.sides import reference_means
from worldsize.analysis.drift import disturbed_warning
from worldsize.analysis.lost_samples import check_samples
from worldsize.analysis.summary import summarise
from worldsize.config import CellSettings
from worldsize.errors import OutputError
from worldsize.launch.placement import place
from worldsize.ranks.turns import Reply
from worldsize.results.folder import Cell
from worldsize.results.records import STEP_PARTS, CellRecord, Placement
from worldsize.results.samples import TakenApartStep
from worldsize.results.undisturbed import SLOW
from worldsize.study.blocks import loader_processes, reference_every
from worldsize.study.counted import Counted
from worldsize.study.plan import PlannedCell

USUAL_S = 0.004


def written(folder: Path, references: list[list[list[float | None]]], alone: int = -1) -> Cell:
    """A cell with blocks of ranks of times of the computation; of each block the first step is a warm-up step.

    Step k of a block takes k + 1 seconds. The block `alone` is of steps without synchronisation.
    """
    folder.mkdir()
    for rank in range(len(references[0])):
        lines, number = [], 0
        for block, ranks in enumerate(references):
            for position, reference_s in enumerate(ranks[rank]):
                step_s = position + 1.0
                parts: dict[str, Any] = {part: SHARES.get(part, 0.0) * step_s for part in STEP_PARTS}
                record = TakenApartStep(
                    session=0,
                    block=block,
                    step=number,
                    epoch=0,
                    timed=position > 0 and block != alone,
                    samples=4,
                    loss=1.0,
                    start_ns=round(1e12 * block + 1e9 * step_s * position),
                    step_s=step_s,
                    **parts,
                    comm_s=0.0,
                    overlapped_s=0.0,
                    synchronised=block != alone,
                    reference_s=reference_s,
                )
                lines.append(record.model_dump_json() + "\n")
                number += 1
        (folder / f"rank{rank}.jsonl").write_text("".join(lines))
    settings = CellSettings(strategy="ddp", world_size=len(references[0]), batch_size=4)
    return Cell(folder, CellRecord.of(settings, id="cell", state="complete"))


def counted(cell: Cell) -> list[list[float]]:
    """The steps that count, block by block, of rank 0."""
    steps = cell.steps.filter((pl.col("rank") == 0) & pl.col("timed"))
    return [steps.filter(pl.col("block") == block)["step_s"].to_list() for block in sorted(set(cell.steps["block"]))]


def scheduled(references: list[list[list[float | None]]]) -> list[list[float]]:
    """The same as the schedule finds it from replies."""
    counted, found = Counted(), dict[tuple[int, int], Any]()
    for block, ranks in enumerate(references):
        steps_s = np.arange(2.0, len(ranks[0]) + 1)
        found = counted.add(found, "cell", (0, block), steps_s, [Reply(reference_s=each) for each in ranks])
    return [found.get((0, block), np.zeros(0)).tolist() for block in range(len(references))]


SLOW_S = 1.7 * USUAL_S
CASES: dict[str, tuple[list[list[list[float | None]]], list[list[float]]]] = {
    # Slow after step 2: that step and the next, whose begin it was, are disturbed.
    "one": ([[[USUAL_S, SLOW_S, *[USUAL_S] * 6]]], [[4.0, 5.0, 6.0, 7.0, 8.0]]),
    "on one rank of two": (
        [[[USUAL_S] * 8, [USUAL_S, SLOW_S, *[USUAL_S] * 6]]],
        [[4.0, 5.0, 6.0, 7.0, 8.0]],
    ),
    # After the warm-up step: the first timed step began in it.
    "before the first": ([[[SLOW_S, *[USUAL_S] * 7]]], [[3.0, 4.0, 5.0, 6.0, 7.0, 8.0]]),
    # Of three steps that share one computation all are disturbed; a block does not see that of another.
    "every third step": (
        [[[USUAL_S, None, None, USUAL_S, None, None, SLOW_S]], [[USUAL_S, None, None, USUAL_S, None, None, USUAL_S]]],
        [[2.0, 3.0, 4.0], [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]],
    ),
    "a whole block": ([[[SLOW_S] * 4], [[USUAL_S] * 4], [[USUAL_S] * 4]], [[], [2.0, 3.0, 4.0], [2.0, 3.0, 4.0]]),
    "none was timed": ([[[None] * 4]], [[2.0, 3.0, 4.0]]),
    "a machine of other speed": ([[[SLOW_S] * 5]], [[2.0, 3.0, 4.0, 5.0]]),
    # For most of the time is no reason to count them; for more than three quarters it is what the machine gives.
    "most of them": ([[[USUAL_S, USUAL_S, *[SLOW_S] * 4]], [[USUAL_S, USUAL_S, SLOW_S]]], [[2.0], [2.0]]),
    "nearly all": ([[[USUAL_S, *[SLOW_S] * 7]]], [[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]]),
    # Each rank is as usual for half of the time, the machine never: without a step that counts there is no number.
    "always one of two": (
        [[[*[USUAL_S] * 4, *[SLOW_S] * 4], [*[SLOW_S] * 4, *[USUAL_S] * 4]]],
        [[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]],
    ),
    # Of few times the quartile lies between two, and a rank that is slower by itself is judged by its own.
    "few and unlike": ([[[0.003, 0.0055, 0.0055], [0.00105, 0.001, 0.002]]], [[2.0]]),
    "none on one rank": ([[[USUAL_S, SLOW_S, *[USUAL_S] * 3], [None] * 5]], [[4.0, 5.0]]),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_count_by_the_computation_beside_them(name: str, tmp_path: Path) -> None:
    references, expected = CASES[name]

    cell = written(tmp_path / "cell", references)

    assert counted(cell) == expected
    assert scheduled(references) == expected
    everything = sum(len(ranks[0]) - 1 for ranks in references)
    assert cell.left_out.height == everything - sum(len(block) for block in expected)


def test_every_step_counts_where_so_many_were_asked_for(tmp_path: Path) -> None:
    references, _ = CASES["one"]
    found = written(tmp_path / "cell", references)
    assert found.record.settings is not None
    settings = found.record.settings.model_copy(update={"steps": 7})

    cell = Cell(found.folder, found.record.model_copy(update={"settings": settings}))

    assert counted(cell) == [[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]]
    assert cell.left_out.is_empty()
    replies = [Reply(reference_s=each) for each in references[0]]
    schedule = Counted(all_count=True)
    assert schedule.add({}, "cell", (0, 0), np.arange(7.0), replies)[0, 0].size == 7
    assert schedule.extra("cell", np.arange(7.0), replies).size == 7


def test_a_turn_is_held_against_the_computation_before_and_after_the_steps_that_count(tmp_path: Path) -> None:
    # Slow before and after step 3, so neither counts; the slower rank of two is the one that the others wait for.
    ranks: list[list[float | None]] = [
        [0.004, None, 0.004, SLOW_S, 0.004, None, 0.005],
        [0.004, None, 0.0045, 0.004, 0.004, None, 0.004],
    ]

    found = reference_means(written(tmp_path / "cell", [ranks]))

    assert found.rows() == [(0, 0, pytest.approx((0.004 + 0.0045 + 0.004 + 0.005) / 4))]


def test_a_slow_step_counts_while_the_computation_is_as_usual(tmp_path: Path) -> None:
    # Step 8 of a block is four times as long as step 2: that is no reason to leave it out.
    references: list[list[list[float | None]]] = [[[USUAL_S * (1 + 0.2 * (k % 2)) for k in range(8)]]]

    assert SLOW > 1.2
    assert counted(written(tmp_path / "cell", references)) == [[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]]


def test_steps_that_count_though_disturbed_are_told(tmp_path: Path) -> None:
    references, _ = CASES["always one of two"]

    warning = disturbed_warning([analyse_cell(written(tmp_path / "cell", references))])

    assert warning is not None
    assert "7 such steps of cell count all the same: too few others would be left" in warning.message


def test_the_disturbed_half_of_a_pair_is_left_out(tmp_path: Path) -> None:
    # In rolled-back steps, the computation was slow most of the time: what is usual is what it takes in training.
    references: list[list[list[float | None]]] = [[[USUAL_S] * 4], [[*[USUAL_S] * 3, *[SLOW_S] * 6]]]

    cell = written(tmp_path / "cell", references, alone=1)

    assert cell.unsynchronised["step_s"].to_list() == [1.0, 2.0, 3.0]


def test_lost_steps_are_missed_although_others_count_without_them(tmp_path: Path) -> None:
    references: list[list[list[float | None]]] = [[[*[USUAL_S] * 6, *[SLOW_S] * 4]]]
    whole = written(tmp_path / "whole", references)
    settings = whole.record.settings
    assert settings is not None
    record = whole.record.model_copy(update={"summary": summarise(whole), "placement": placed(settings)})
    check_samples(Cell(whole.folder, record))
    assert record.summary is not None
    assert (record.summary.timed_steps, record.summary.disturbed_steps) == (5, 4)
    lines = (whole.folder / "rank0.jsonl").read_text().splitlines(keepends=True)

    (whole.folder / "rank0.jsonl").write_text("".join(lines[:1] + lines[5:]))

    with pytest.raises(OutputError, match="4 of its 9 timed steps are gone"):
        check_samples(Cell(whole.folder, record))


def placed(settings: CellSettings, *, workers: int = 1) -> Placement:
    cores = tuple(range(workers))
    return place(
        world_size=settings.world_size,
        processes=settings.world_size,
        threads_per_worker=1,
        cores=cores,
        gpus=0,
        backend="gloo",
    )


@pytest.mark.parametrize(
    ("given", "every"),
    [
        ({}, 5),
        ({"loader": "per-sample", "loader_workers": 0}, 5),
        ({"loader": "per-sample", "loader_workers": 1}, 0),
        ({"data": "mine.py:data", "loader_workers": 1}, 0),
        ({"strategy": "mine.py:Mine"}, 0),
        ({"steps": 20}, 5),
    ],
)
def test_nothing_of_the_training_may_disturb_the_computation(given: dict[str, Any], every: int) -> None:
    settings = CellSettings(**{"strategy": "single", "world_size": 1, "batch_size": 4, **given})
    cell = PlannedCell(settings, placed(settings))
    assert reference_every(cell, 0.05, loader_processes(settings)) == every


def test_more_workers_than_cores_disturb_each_other() -> None:
    settings = CellSettings(strategy="ddp", world_size=2, batch_size=4)
    assert reference_every(PlannedCell(settings, placed(settings, workers=1)), 0.05, 0) == 0
    assert reference_every(PlannedCell(settings, placed(settings, workers=2)), 0.05, 0) == 5
