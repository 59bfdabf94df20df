"""Exposed communication, and what it is due to: the link's rate, its latency, one rank, or something else."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl

from worldsize.analysis.advice.finding import (
    Evidence,
    Gain,
    at_most,
    cell_name,
    megabytes,
    rate_of_link,
    share,
    time_of,
)
from worldsize.analysis.advice.gains import STEP, notable, without
from worldsize.analysis.advice.gradient_sync import NEAR_PEAK, GradientSync, Limit
from worldsize.analysis.advice.rule import Candidate, Seen, candidate
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.commands import comm_command, focused, train_command, value_text
from worldsize.analysis.numbers import estimate_text, number_text
from worldsize.results.records import Estimate
from worldsize.traits import BUCKETED, OVERLAPPING
from worldsize.wire import WireBytes

ONE_MORE = 1.5
"""Messages per step below which there is one."""
BASIS = "Step ÷ (step − exposed communication); assumes that all of it can be hidden or left out."


@dataclass(frozen=True)
class Diagnosis:
    """What is said of the synchronisation of a cell."""

    code: str
    how: str
    """What follows on the share of exposed communication, in the finding."""
    cause: str
    next_step: str
    command: str | None
    evidence: tuple[Evidence, ...] = ()
    saved: pl.Expr | None = None
    """Seconds per step that may be saved; None is all exposed communication."""
    step: pl.Expr = STEP
    """The step that they are saved of."""
    basis: str = BASIS
    expected: pl.Expr | None = None
    """Seconds per step that the next step saves by itself, where that is less than all."""
    if_so: str = ""
    """On which condition."""


def limited_by(seen: Seen, limit: Limit) -> Iterator[GradientSync]:
    """Those whose exposed communication is due to this, and not all of it waiting for a slow rank, told already."""
    syncs = (sync for cell in seen.several if (sync := seen.gradient_sync(cell)).limit == limit)
    return (sync for sync in syncs if not seen.waits_only(sync.cell))


def bandwidth_bound(seen: Seen) -> Iterator[Candidate]:
    """Exposed communication whose messages fill the link."""
    for sync in limited_by(seen, "bandwidth"):
        assert sync.used is not None
        assert sync.reference is not None
        size = megabytes(sync.bytes)
        next_step, command = larger_messages(seen, sync.cell)
        yield on_sync(
            sync,
            Diagnosis(
                code="bandwidth-bound",
                how=f"and its messages use {share(sync.used)} of the {sync.reference}",
                cause=f"The link is full: the {size} of each step take as long with any batch.",
                next_step=next_step,
                command=command,
                expected=sync.exposed_at_most / 2 if command else None,  # twice the samples for each message
                if_so="if as many ms stay exposed",
            ),
        )


def latency_bound(seen: Seen) -> Iterator[Candidate]:
    """Exposed communication of many small messages, whose latency adds up."""
    for sync in limited_by(seen, "latency"):
        assert sync.modelled is not None
        latency_s, bytes_s = sync.modelled
        next_step, command = _fewer_messages(seen, sync.cell)
        yield on_sync(
            sync,
            Diagnosis(
                code="latency-bound",
                how=f"and most of the time of its {number_text(sync.messages)} messages per step is latency",
                cause="Each message pays the latency of the link, however small it is.",
                next_step=next_step,
                command=command,
                evidence=(
                    time_of("Cost model, latency of all messages of a step", latency_s),
                    time_of("Cost model, their bytes", bytes_s),
                ),
                expected=pl.min_horizontal(sync.exposed_at_most, latency_s),
                if_so="without the latency that the link's cost model gives them",
            ),
        )


def root_bound(seen: Seen) -> Iterator[Candidate]:
    """Exposed communication that passes through one rank."""
    for sync in limited_by(seen, "root"):
        cell = sync.cell
        wire = cell.record.wire if cell.record else None
        yield on_sync(
            sync,
            Diagnosis(
                code="root-bound",
                how="and all of it passes through rank 0",
                cause="Rank 0 takes and sends (N−1)·S in each step, one gradient after the other, and the others wait.",
                next_step="Use a strategy that shares the all-reduce among all ranks, and overlaps it with backward.",
                command=_with_overlap(seen, cell),
                evidence=tuple(_through_root(wire)),
            ),
        )


def _through_root(wire: WireBytes | None) -> Iterator[Evidence]:
    if wire is not None:
        size = wire.busiest_rank_bytes
        yield Evidence("Bytes through rank 0 per step, each way", megabytes(size), size, "bytes")


def communication_bound(seen: Seen) -> Iterator[Candidate]:
    """Exposed communication that neither the link, nor its latency, nor one rank explains."""
    for sync in limited_by(seen, "unknown"):
        yield on_sync(sync, _unexplained(seen, sync))


def _unexplained(seen: Seen, sync: GradientSync) -> Diagnosis:
    cell, reference = sync.cell, sync.reference
    if sync.used is None or reference is None:
        return Diagnosis(
            code="communication-bound",
            how="and what its link can carry is not known",
            cause="Without the peak of the link it cannot be told whether its rate or something else limits them.",
            next_step="Measure the link, and compare its peak with the bandwidth of the messages.",
            command=comm_command(seen.settings, cell.world_size),
        )
    if sync.above_peak:
        return Diagnosis(
            code="communication-bound",
            how=f"and its messages use {share(sync.used)} of the {reference}, which is too low",
            cause="The benchmark found less than the link carries: likely something else used the cores meanwhile.",
            next_step="Measure the link again while nothing else runs.",
            command=comm_command(seen.settings, cell.world_size),
        )
    next_step, command = _look_or_change(seen, cell)
    may_fill_it = sync.used.value >= NEAR_PEAK
    return Diagnosis(
        code="communication-bound",
        how=f"{'and' if may_fill_it else 'but'} its messages use {'' if may_fill_it else 'only '}{share(sync.used)} "
        f"of the {reference}",
        cause="Whether they fill the link is not known well enough." if may_fill_it else _not_full(sync),
        next_step=next_step,
        command=command,
    )


def _look_or_change(seen: Seen, cell: CellAnalysis) -> tuple[str, str | None]:
    """What to try where it is not known why the link is not full."""
    if cell.traits.period:
        return _less_often(seen, cell)
    if not cell.traits.overlaps:
        return "Use a strategy that synchronises during backward.", _with_overlap(seen, cell)
    if not seen.trains:
        return "Give DistributedDataParallel another bucket_cap_mb in the script, and time it again.", None
    if not cell.traits.buckets or seen.gradient_sync(cell).messages < ONE_MORE:
        return larger_messages(seen, cell)  # all gradients are one message: no other buckets make it larger
    if seen.settings.bucket_mb == "auto":
        return "Its buckets are planned already, and no flag changes more: give each worker's host more cores.", None
    return "Try buckets of another size.", focused(seen.settings, cell, bucket_mb="auto")


def _with_overlap(seen: Seen, cell: CellAnalysis) -> str | None:
    """Training with a strategy that overlaps where the study has it beside the cell, else a study of the two."""
    usual = OVERLAPPING[0]
    beside = seen.find(usual, cell.world_size, cell.batch_size)
    return train_command(seen.settings, beside) if beside else focused(seen.settings, cell, cell.strategy, usual)


def _not_full(sync: GradientSync) -> str:
    if not sync.cell.traits.overlaps:
        return "Nothing is computed while it synchronises, and the messages do not fill the link one after the other."
    if sync.hidden is None or not notable(sync.hidden):
        return "The link is not full: likely the messages are too small to fill it, or other work takes the cores."
    return "The link is not full: likely synchronisation and compute slow each other down on the same cores."


def on_sync(sync: GradientSync, found: Diagnosis) -> Candidate:
    """The advice on the synchronisation of a cell, with what is told of all of them."""
    cell, exposed = sync.cell, sync.exposed
    assert exposed is not None
    saved = sync.exposed_at_most if found.saved is None else found.saved
    basis = found.basis if found.saved is not None or not sync.more_by_pairing else _basis_by_pairing(sync)
    gain = at_most(without(sync.blocks, saved, found.step), basis)
    expected = None if found.expected is None else without(sync.blocks, found.expected, found.step)
    return candidate(
        found.code,
        cell,
        finding=f"{cell_name(cell)} spends {share(exposed.share)} of its step on exposed communication, {found.how}.",
        evidence=(*_evidence(sync), *found.evidence),
        cause=found.cause,
        next_step=found.next_step,
        command=found.command,
        gain=_expected(expected, found.if_so, gain) if expected and gain else gain,
    )


def _basis_by_pairing(sync: GradientSync) -> str:
    return (
        f"Step ÷ (step − {number_text(sync.more_of_pairs)} × exposed communication: in blocks with paired steps these "
        "find so much more); assumes that all of it can be hidden or left out."
    )


def _expected(expected: Estimate, if_so: str, gain: Gain) -> Gain:
    """What the next step brings by itself, in front of the bound."""
    text = f"{estimate_text(expected)} times the samples/s {if_so}, {gain.text} if nothing is exposed"
    return replace(gain, text=text, expected=expected)


def _evidence(sync: GradientSync) -> Iterator[Evidence]:
    assert sync.exposed is not None
    yield time_of("Exposed communication per step", sync.exposed.seconds)
    if sync.for_data is not None:
        yield time_of("Of it, for a rank that waits for data, at most", sync.for_data.seconds)
    if sync.cell.exposed is not None and sync.cell.exposed.disagree:
        yield time_of("Exposed communication in blocks with paired steps", sync.cell.exposed.timeline)
        yield time_of("In the same blocks, by steps with − without synchronisation", sync.cell.exposed.pairing)
    if sync.overlapped is not None:
        yield time_of("Overlapped with computing per step", sync.overlapped.seconds)
    if sync.busbw is not None:
        name = "Rate of the root's link" if sync.rooted else "Bus bandwidth of the messages"
        yield rate_of_link(name, sync.busbw)
    if sync.reference is not None:
        yield rate_of_link(str(sync.reference).capitalize(), sync.reference.bytes_per_s)


def larger_messages(seen: Seen, cell: CellAnalysis) -> tuple[str, str | None]:
    """A step with more samples needs no more bytes."""
    if cell.traits.period:
        return _less_often(seen, cell)
    batch, whole = 2 * cell.batch_size, 2 * cell.global_batch
    samples = seen.analysis.record.train_samples
    if samples is not None and whole > samples:
        return "Use a faster link, or fewer workers with larger batches.", None
    b = f"b = {batch:,}"
    changed = {"global_batch": whole} if seen.settings.global_batch else {"batch_sizes": (batch,)}
    return (
        f"Double the local batch ({b}, B = {whole:,}), so that each synchronisation covers twice the samples (the "
        "learning rate may have to follow); or use a faster link.",
        focused(seen.settings, cell, **changed),
    )


def _less_often(seen: Seen, cell: CellAnalysis) -> tuple[str, str | None]:
    """Ranks that meet once in a period send no less by another way of sending."""
    name = cell.traits.period
    period = 2 * int(getattr(seen.settings, name))
    return (
        f"Exchange half as often (--{name.replace('_', '-')} {period}); accuracies after whole epochs show what that "
        "does to the training.",
        focused(seen.settings, cell, **{name: period}),
    )


def _fewer_messages(seen: Seen, cell: CellAnalysis) -> tuple[str, str | None]:
    if cell.traits.period or cell.traits.travels == "shards":  # these are no gradients that buckets could hold
        return larger_messages(seen, cell)
    if not cell.traits.buckets:
        return (
            f"Send the gradients in buckets, with {' or '.join(BUCKETED)}.",
            focused(seen.settings, cell, cell.strategy, *BUCKETED),
        )
    size = seen.settings.bucket_mb
    larger = 4 * size if isinstance(size, float | int) else 100
    return f"Send larger buckets, such as {value_text(larger)} MB.", focused(seen.settings, cell, bucket_mb=larger)
