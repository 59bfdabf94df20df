"""The knee of a sweep, and how batches compare."""

from collections.abc import Iterator

from worldsize.analysis.advice.candidate import Candidate, candidate
from worldsize.analysis.advice.commands import train_command
from worldsize.analysis.advice.finding import Evidence
from worldsize.analysis.advice.gains import notable
from worldsize.analysis.advice.seen import Seen
from worldsize.analysis.advice.words import measured, memory_of, ratio_of_two
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.levels import ratio_estimate
from worldsize.analysis.numbers import estimate_text
from worldsize.analysis.sweep import KNEE, BatchSweep, interval_of, swept_ratio
from worldsize.results.records import Estimate


def batch_knee(seen: Seen) -> Iterator[Candidate]:
    """What a sweep recommends: the smallest batch that is as fast as any."""
    for sweep in seen.analysis.sweeps:
        timed = [row.cell for row in sweep.rows if row.cell.summary]
        knee = next((cell for cell in timed if cell.batch_size == sweep.knee), None)
        if knee is None or len(timed) < 2:
            continue
        first, last = timed[0], timed[-1]
        gain = None if knee is first else rate_ratio(knee, first, in_turn=False)
        beyond = None if knee is last else rate_ratio(last, knee, in_turn=False)
        if not _settled(gain, beyond):
            continue
        yield candidate(
            "batch-knee",
            knee,
            finding=f"{sweep.strategy} gains nothing worth its memory above b = {knee.batch_size:,}, the knee.",
            evidence=_knee_evidence(sweep, knee, (first, gain), (last, beyond)),
            cause="From there on the device is busy all the time; a larger batch only takes longer and more memory.",
            next_step=f"Train with b = {knee.batch_size:,}.",
            command=train_command(seen.settings, knee),
            gain=measured(
                gain,
                "Measured in this sweep; only the batches near the best were timed in turn.",
                of=f" of b = {first.batch_size:,}",
            ),
            everywhere=True,
        )


def rate_ratio(cell: CellAnalysis, other: CellAnalysis, *, in_turn: bool) -> Estimate:
    """Samples/s of a cell ÷ those of another one. Of a sweep only its last blocks are `in_turn`, and that of some."""
    if not in_turn:
        return swept_ratio(cell, other)
    return ratio_estimate(other.blocks, cell.blocks).scaled(cell.global_batch / other.global_batch).estimate


def rate_of(cell: CellAnalysis) -> Evidence:
    """The samples/s of a batch, as evidence."""
    assert cell.summary is not None
    found = cell.summary.samples_per_s
    return Evidence(f"Samples/s at b = {cell.batch_size:,}", estimate_text(found), found, "samples/s")


def compared(one: CellAnalysis, other: CellAnalysis, ratio: Estimate) -> Evidence:
    """The ratio of the samples/s of two batches, as evidence."""
    return ratio_of_two(f"Samples/s, b = {one.batch_size:,} ÷ b = {other.batch_size:,}", ratio)


def _settled(gain: Estimate | None, beyond: Estimate | None) -> bool:
    """Whether the knee is significant: it beats the first batch, and the last one beats it by no more than it allows."""
    below_is_slower = gain is None or notable(gain, 1)
    return below_is_slower and (beyond is None or (beyond.high is not None and beyond.high < 1 / KNEE))


def _knee_evidence(
    sweep: BatchSweep,
    knee: CellAnalysis,
    first: tuple[CellAnalysis, Estimate | None],
    last: tuple[CellAnalysis, Estimate | None],
) -> Iterator[Evidence]:
    yield rate_of(knee)
    yield Evidence("The knee", interval_of(sweep))
    for cell, ratio in (first, last):
        if ratio is not None:
            yield compared(knee, cell, ratio) if cell is first[0] else compared(cell, knee, ratio)
    for cell in (knee,) if knee is last[0] else (knee, last[0]):
        peak = cell.record.peak_memory_bytes if cell.record else None
        if peak is not None:
            yield memory_of(f"Peak memory at b = {cell.batch_size:,}", peak)
