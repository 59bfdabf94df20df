"""Steps that take longer at regular distances: something that the training does now and then."""

from collections.abc import Iterator

import polars as pl

from worldsize.analysis.advice.finding import at_most, cell_name, count_of, time_of
from worldsize.analysis.advice.gains import notable, without
from worldsize.analysis.advice.rule import Candidate, Seen, candidate
from worldsize.analysis.numbers import number_text
from worldsize.analysis.recurring import NAMES, is_long, long_steps
from worldsize.analysis.steps import BLOCK, ratio_over, timed_steps


def periodic_stall(seen: Seen) -> Iterator[Candidate]:
    """One in so many steps takes longer; not where it waits for data, which loaders give in bursts."""
    for cell in seen.cells:
        found = long_steps(seen.raw(cell), cell.summary) if cell.summary else None
        if found is None or found.every is None or found.long_s is None or found.part == "data_wait_s":
            continue
        more = pl.col("world_s") - found.typical_s
        blocks = (
            timed_steps(seen.raw(cell))
            .group_by(*BLOCK, maintain_order=True)
            .agg(
                pl.col("world_s").mean().alias("step_s"),
                (more.filter(is_long(found.typical_s)).sum() / pl.len()).alias("more_s"),
                pl.len().alias("steps"),
            )
        )
        gain = without(blocks, pl.col("more_s"))
        if gain is None or not notable(ratio_over(blocks, pl.col("more_s"), pl.col("step_s"))):
            continue
        where = f", most of it in {NAMES[found.part]}" if found.part else ""
        long_ms, typical_ms = (number_text(1e3 * each) for each in (found.long_s, found.typical_s))
        yield candidate(
            "periodic-stall",
            cell,
            finding=f"Every {found.every} steps, one of {cell_name(cell)} takes {long_ms} ms in place of "
            f"{typical_ms}{where}.",
            evidence=(
                time_of("Median step", found.typical_s),
                time_of("Mean of the long steps", found.long_s),
                count_of("Steps from one to the next", found.every),
            ),
            cause="Something that is not done in each step: a checkpoint, an evaluation, logging, garbage collection.",
            next_step=f"Look at what happens every {found.every} steps; do it less often, or beside the training.",
            command=None,
            gain=at_most(gain, "Step ÷ (step − what the long steps take more); assumes that each takes as the median."),
        )
