"""Whether all samples that a cell had are still there: what was lost must not change a number unseen."""

import polars as pl

from worldsize.analysis.steps import timed_steps
from worldsize.errors import OutputError
from worldsize.results.folder import Cell

AGAIN = "Remove its folder, and --resume measures it again."


def check_samples(cell: Cell) -> None:
    """Raise OutputError where samples of a cell cannot be read, or some that it had are gone.

    Steps that are there and hold what cannot be are left out with a warning (results/samples.py): nobody lost those.
    """
    counts = dict(cell.collect(cell.scan_steps().group_by("rank").agg(pl.col("timed").sum())).iter_rows())
    cell.collect(cell.scan_spans().select(pl.len()))
    record = cell.record
    left_out = any(warning.code == "damaged-samples" for warning in cell.warnings)
    if record.placement is None or record.summary is None or record.state == "failed" or left_out:
        return
    ranks = range(record.placement.processes)
    missing = [rank for rank in ranks if rank not in counts]
    if missing:
        more = f" and {len(missing) - 1} more ranks" if len(missing) > 1 else ""
        raise OutputError(f"no sample of rank {missing[0]}{more} is left in {cell.folder}\n{AGAIN}")
    # Which steps are disturbed is found anew: without those that are lost it may be others.
    wanted = record.summary.timed_steps + record.summary.disturbed_steps
    found = timed_steps(cell).height + cell.left_out.height
    if found < wanted:
        shortest = min(ranks, key=lambda rank: counts[rank])
        raise OutputError(
            f"{wanted - found} of its {wanted} timed steps are gone from {cell.folder}: "
            f"rank {shortest} has {counts[shortest]}\n{AGAIN}"
        )
