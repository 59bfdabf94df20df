"""Which steps were disturbed, by the short computation beside them; all of them count (method.md §8)."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from made_runs import SHARES
from worldsize.analysis.cells import analyse_cell, side_by_side
from worldsize.analysis.compare.sides import reference_means
from worldsize.analysis.drift import disturbed_warning
from worldsize.analysis.lost_samples import check_samples
from worldsize.analysis.summary import summarise
from worldsize.config import CellSettings
from worldsize.errors import OutputError
from worldsize.launch.placement import place
from worldsize.results.folder import Cell
from worldsize.results.records import STEP_PARTS, CellRecord, Placement
from worldsize.results.samples import TakenApartStep
from worldsize.study.blocks import loader_processes, reference_every
from worldsize.study.plan import PlannedCell

USUAL_S = 0.004


def written(
    folder: Path, references: list[list[list[float | None]]], *, steps_s: list[list[float]] | None = None
) -> Cell:
    """A cell with blocks of ranks of times of the computation; of each block the first step is a warm-up step.

    Step k of a block takes k + 1 seconds, or as `steps_s` says.
    """
    folder.mkdir()
    for rank in range(len(references[0])):
        lines, number = [], 0
        for block, ranks in enumerate(references):
            begin_s = 0.0
            for position, reference_s in enumerate(ranks[rank]):
                step_s = steps_s[block][position] if steps_s else position + 1.0
                parts: dict[str, Any] = {part: SHARES.get(part, 0.0) * step_s for part in STEP_PARTS}
                record = TakenApartStep(
                    session=0,
                    block=block,
                    step=number,
                    epoch=0,
                    timed=position > 0,
                    samples=4,
                    loss=1.0,
                    start_ns=round(1e12 * block + 1e9 * begin_s),
                    step_s=step_s,
                    **parts,
                    comm_s=0.0,
                    overlapped_s=0.0,
                    synchronised=True,
                    reference_s=reference_s,
                )
                lines.append(record.model_dump_json() + "\n")
                number, begin_s = number + 1, begin_s + step_s
        (folder / f"rank{rank}.jsonl").write_text("".join(lines))
    settings = CellSettings(strategy="ddp", world_size=len(references[0]), batch_size=4)
    return Cell(folder, CellRecord.of(settings, id=folder.name, state="complete"))


SLOW_S = 1.7 * USUAL_S
CASES: dict[str, tuple[list[list[list[float | None]]], list[list[int]]]] = {
    # Slow after step 1: that step and the next, whose begin it was, are disturbed.
    "one": ([[[USUAL_S, SLOW_S, *[USUAL_S] * 6]]], [[1, 2]]),
    "on one rank of two": ([[[USUAL_S] * 8, [USUAL_S, SLOW_S, *[USUAL_S] * 6]]], [[1, 2]]),
    # After the warm-up step: the first timed step began in it.
    "before the first": ([[[SLOW_S, *[USUAL_S] * 7]]], [[1]]),
    # Of three steps that share one computation all are disturbed; a block does not see that of another.
    "every third step": (
        [[[USUAL_S, None, None, USUAL_S, None, None, SLOW_S]], [[USUAL_S, None, None, USUAL_S, None, None, USUAL_S]]],
        [[4, 5, 6], []],
    ),
    "a whole block": ([[[SLOW_S] * 4], [[USUAL_S] * 4], [[USUAL_S] * 4]], [[1, 2, 3], [], []]),
    "none was timed": ([[[None] * 4]], [[]]),
    "a machine of other speed": ([[[SLOW_S] * 5]], [[]]),
    "most of them": (
        [[[USUAL_S, USUAL_S, *[SLOW_S] * 4]], [[USUAL_S, USUAL_S, SLOW_S]]],
        [[2, 3, 4, 5], [2]],
    ),
    "always one of two": (
        [[[*[USUAL_S] * 4, *[SLOW_S] * 4], [*[SLOW_S] * 4, *[USUAL_S] * 4]]],
        [[1, 2, 3, 4, 5, 6, 7]],
    ),
    # Of few times the quartile lies between two, and a rank that is slower by itself is judged by its own.
    "few and unlike": ([[[0.003, 0.0055, 0.0055], [0.00105, 0.001, 0.002]]], [[2]]),
    "none on one rank": ([[[USUAL_S, SLOW_S, *[USUAL_S] * 3], [None] * 5]], [[1, 2]]),
}


BLOCKS, STEPS = 12, 20


def planted(folder: Path, world_size: int, disturbed: Callable[[], list[bool]]) -> tuple[Cell, float]:
    """A cell of steps of one second, 1/0.6 while any of its ranks is disturbed, and its elapsed time ÷ timed steps."""
    references: list[list[list[float | None]]] = []
    steps_s = []
    for _ in range(BLOCKS):
        slow = [disturbed() for _ in range(STEPS + 1)]
        references.append([[SLOW_S if each[rank] else USUAL_S for each in slow] for rank in range(world_size)])
        steps_s.append([1 / 0.6 if any(each) else 1.0 for each in slow])
    return written(folder, references, steps_s=steps_s), sum(sum(each[1:]) for each in steps_s) / (BLOCKS * STEPS)


def printed(*cells: Cell) -> float:
    """The speed-up of the second cell over the first as it is printed."""
    one, several = side_by_side([analyse_cell(cell) for cell in cells])
    assert one.summary is not None
    assert several.summary is not None
    return several.summary.samples_per_s.value / one.summary.samples_per_s.value


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 0.9])
def test_a_slow_state_of_two_busy_cores_is_in_the_speed_up(share: float, tmp_path: Path) -> None:
    # One worker never meets it. Left out as disturbed, its steps would be gone from two workers only.
    draw = random.Random(1)
    one, one_s = planted(tmp_path / "one", 1, lambda: [False])
    two, two_s = planted(tmp_path / "two", 2, lambda: [draw.random() < share] * 2)

    assert printed(one, two) == pytest.approx(2 * one_s / two_s, rel=0.03)


@pytest.mark.parametrize("busy", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_neighbours_of_each_core_are_in_the_speed_up(world_size: int, busy: float, tmp_path: Path) -> None:
    draw = random.Random(1)
    one, one_s = planted(tmp_path / "one", 1, lambda: [draw.random() < busy])
    several, several_s = planted(tmp_path / "n", world_size, lambda: [draw.random() < busy for _ in range(world_size)])

    assert printed(one, several) == pytest.approx(world_size * one_s / several_s, rel=0.03)


@pytest.mark.parametrize("name", CASES)
def test_steps_are_disturbed_by_the_computation_beside_them_and_count(name: str, tmp_path: Path) -> None:
    references, expected = CASES[name]

    cell = written(tmp_path / "cell", references)

    found, first = cell.disturbed, 0
    for block, (ranks, places) in enumerate(zip(references, expected, strict=True)):
        assert (found.filter(pl.col("block") == block)["step"] - first).sort().to_list() == places
        first += len(ranks[0])
    everything = sum(len(ranks[0]) - 1 for ranks in references)
    summary = summarise(cell)
    assert summary is not None
    assert (summary.timed_steps, summary.disturbed_steps) == (everything, sum(map(len, expected)))


def test_a_turn_is_held_against_the_computation_before_and_after_the_steps_that_count(tmp_path: Path) -> None:
    # The slower rank of two is the one that the others wait for.
    ranks: list[list[float | None]] = [
        [0.004, None, 0.004, SLOW_S, 0.004, None, 0.005],
        [0.004, None, 0.0045, 0.004, 0.004, None, 0.004],
    ]

    found = reference_means(written(tmp_path / "cell", [ranks]))

    assert found.rows() == [(0, 0, pytest.approx((0.004 + 0.0045 + SLOW_S + 0.004 + 0.005) / 5))]


def test_the_share_of_each_cell_is_told(tmp_path: Path) -> None:
    references, _ = CASES["always one of two"]

    warning = disturbed_warning([analyse_cell(written(tmp_path / "cell", references))])

    assert warning is not None
    assert "beside 100 % of cell (shares of timed steps, which all count)" in warning.message


def test_lost_steps_are_missed(tmp_path: Path) -> None:
    references: list[list[list[float | None]]] = [[[*[USUAL_S] * 6, *[SLOW_S] * 4]]]
    whole = written(tmp_path / "whole", references)
    settings = whole.record.settings
    assert settings is not None
    record = whole.record.model_copy(update={"summary": summarise(whole), "placement": placed(settings)})
    check_samples(Cell(whole.folder, record))
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
