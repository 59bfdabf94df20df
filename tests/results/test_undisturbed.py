"""Which steps count, by the short computation beside them: the same on the lines and in the schedule (method.md §8)."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from made_runs import SHARES
from worldsize.config import CellSettings
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS, CellRecord, StepRecord
from worldsize.results.undisturbed import SLOW, undisturbed_blocks

USUAL_S = 0.004


def written(folder: Path, references: list[list[list[float | None]]], *, synchronised: bool = True) -> Cell:
    """A cell with blocks of ranks of times of the computation; of each block the first step is a lead one.

    Step k of a block takes k + 1 seconds.
    """
    folder.mkdir()
    for rank in range(len(references[0])):
        lines, number = [], 0
        for block, ranks in enumerate(references):
            for position, reference_s in enumerate(ranks[rank]):
                step_s = position + 1.0
                parts: dict[str, Any] = {part: SHARES.get(part, 0.0) * step_s for part in PARTS}
                record = StepRecord(
                    session=0,
                    block=block,
                    step=number,
                    epoch=0,
                    timed=position > 0 and synchronised,
                    samples=4,
                    loss=1.0,
                    start_ns=round(1e12 * block + 1e9 * step_s * position),
                    step_s=step_s,
                    **parts,
                    comm_s=0.0,
                    overlapped_s=0.0,
                    synchronised=synchronised,
                    reference_s=reference_s,
                )
                lines.append(record.model_dump_json() + "\n")
                number += 1
        (folder / f"rank{rank}.jsonl").write_text("".join(lines))
    settings = CellSettings(strategy="ddp", world_size=len(references[0]), batch_size=4)
    return Cell(folder, CellRecord(id="cell", settings=settings, state="complete"))


def counted(cell: Cell) -> list[list[float]]:
    """The steps that count, block by block, of rank 0."""
    steps = cell.steps.filter((pl.col("rank") == 0) & pl.col("timed"))
    return [steps.filter(pl.col("block") == block)["step_s"].to_list() for block in sorted(set(cell.steps["block"]))]


def scheduled(references: list[list[list[float | None]]]) -> list[list[float]]:
    """The same as the schedule finds it from replies."""
    blocks = []
    for ranks in references:
        times = np.array(ranks, dtype=float)
        blocks.append((np.arange(2.0, times.shape[1] + 1), times))
    return [each.tolist() for each in undisturbed_blocks(blocks)]


SLOW_S = 1.7 * USUAL_S
CASES: dict[str, tuple[list[list[list[float | None]]], list[list[float]]]] = {
    # Slow after step 2: that step and the next, whose begin it was, are disturbed.
    "one": ([[[USUAL_S, SLOW_S, *[USUAL_S] * 6]]], [[4.0, 5.0, 6.0, 7.0, 8.0]]),
    "on one rank of two": (
        [[[USUAL_S] * 8, [USUAL_S, SLOW_S, *[USUAL_S] * 6]]],
        [[4.0, 5.0, 6.0, 7.0, 8.0]],
    ),
    # After the lead step: the first timed step began in it.
    "before the first": ([[[SLOW_S, *[USUAL_S] * 7]]], [[3.0, 4.0, 5.0, 6.0, 7.0, 8.0]]),
    # Of three steps that share one computation all are disturbed; a block does not see that of another.
    "every third step": (
        [[[USUAL_S, None, None, USUAL_S, None, None, SLOW_S]], [[USUAL_S, None, None, USUAL_S, None, None, USUAL_S]]],
        [[2.0, 3.0, 4.0], [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]],
    ),
    "a whole block": ([[[SLOW_S] * 4], [[USUAL_S] * 4], [[USUAL_S] * 4]], [[], [2.0, 3.0, 4.0], [2.0, 3.0, 4.0]]),
    "none was timed": ([[[None] * 4]], [[2.0, 3.0, 4.0]]),
    "a machine of other speed": ([[[SLOW_S] * 5]], [[2.0, 3.0, 4.0, 5.0]]),
    # If it is like that most of the time, then that is what the machine gives.
    "most of them": ([[[USUAL_S, USUAL_S, SLOW_S, SLOW_S, SLOW_S, SLOW_S, USUAL_S]]], [[2.0, 3.0, 4.0, 5.0, 6.0, 7.0]]),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_count_by_the_computation_beside_them(name: str, tmp_path: Path) -> None:
    references, expected = CASES[name]

    cell = written(tmp_path / "cell", references)

    assert counted(cell) == expected
    assert scheduled(references) == expected
    everything = sum(len(ranks[0]) - 1 for ranks in references)
    assert cell.disturbed_steps == everything - sum(len(block) for block in expected)


def test_a_slow_step_counts_while_the_computation_is_as_usual(tmp_path: Path) -> None:
    # Step 8 of a block is four times as long as step 2: that is no reason to leave it out.
    references: list[list[list[float | None]]] = [[[USUAL_S * (1 + 0.2 * (k % 2)) for k in range(8)]]]

    assert SLOW > 1.2
    assert counted(written(tmp_path / "cell", references)) == [[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]]


def test_the_disturbed_half_of_a_pair_is_left_out(tmp_path: Path) -> None:
    cell = written(tmp_path / "cell", [[[USUAL_S, USUAL_S, USUAL_S, USUAL_S, SLOW_S]]], synchronised=False)

    assert cell.unsynchronised["step_s"].to_list() == [1.0, 2.0, 3.0, 4.0]
