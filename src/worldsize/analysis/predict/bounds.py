"""What a forecast must not do without having been measured, and what it takes for granted (method.md §14)."""

from collections.abc import Collection, Iterator, Sequence

from worldsize.analysis.predict.model import Model
from worldsize.config import Hosts, PredictSettings
from worldsize.errors import UsageError
from worldsize.traits import TRAITS

VOID = {
    "drift": "its cells drifted apart while they were timed",
    "provenance-changed": "its sessions ran on different machines",
}
"""Warnings with which the cells of a run are not of one machine, and why nothing is predicted from them."""


def check(model: Model, settings: PredictSettings) -> Hosts | None:
    """The links that were asked for, where they are not those of the run.

    Raises UsageError for a run that tells too little, and for what lies beyond what it has measured.
    """
    _check_run(model)
    measured = max((cell.world_size for cell in model.several), default=1)
    below = [size for size in settings.world_sizes or () if size < measured]
    if below:
        raise UsageError(
            f"--world-sizes: {below[0]} was given, and this run has measured {measured} workers: only as many or more "
            "are predicted"
        )
    _check_strategies(model, settings)
    own = model.wire.hosts if model.wire else None
    if settings.link is None and settings.latency is None:
        return None
    if own is None:
        raise UsageError(
            "--link was given, and no worker of this run was on a host of its own: nothing is known of a link between "
            f"hosts\nMeasure one: worldsize study --hosts 2 --link {settings.link or '1gbit'}, or on two nodes."
        )
    rate, latency = settings.rate_bits_per_s, settings.latency_s
    return Hosts(
        count=own.count,
        rate_bits_per_s=own.rate_bits_per_s if rate is None else round(rate),
        latency_s=own.latency_s if latency is None else latency or None,
    )


def _check_run(model: Model) -> None:
    analysis = model.analysis
    for _, warning in analysis.warnings:
        if warning.code in VOID:
            raise UsageError(
                f"nothing is predicted from this run: {VOID[warning.code]}\nMeasure again: {warning.message}"
            )
    if not any(cell.summary for cell in analysis.cells):
        raise UsageError("no cell of this run has numbers: measure it first, or go on with --resume")
    if not model.cells:
        raise UsageError(
            "the steps of this run have no marks, so nobody knows how long they compute\n"
            "A run of `worldsize study`, or of a loop whose backward was metered, has them."
        )
    if not model.several:
        raise UsageError(
            "this run has one worker in each process: how workers differ and what messages cost was not measured\n"
            "Measure two: worldsize study --world-sizes 1,2"
        )


def _check_strategies(model: Model, settings: PredictSettings) -> None:
    if settings.strategies is None and settings.bucket_mb is None:
        return
    if not model.analysis.record.trains:
        raise UsageError(
            "a script synchronises in its own way: --strategy and --bucket-mb cannot change that\nLeave them out."
        )
    measured = {cell.strategy for cell in model.analysis.cells}
    for name in settings.strategies or ():
        if name not in TRAITS and name not in measured:
            raise UsageError(f"--strategy: {name!r} was given; known: {', '.join(TRAITS)}")
    if model.gradients is None:
        raise UsageError(
            "when backward has each gradient was not recorded in this run, as by an older version: other strategies "
            "and buckets cannot be predicted\nMeasure it again with this version of worldsize."
        )


def strategies_of(model: Model, settings: PredictSettings) -> Sequence[str]:
    """Those that were asked for, else those measured with several workers."""
    return settings.strategies or tuple(dict.fromkeys(cell.strategy for cell in model.several))


def assumptions(
    model: Model, settings: PredictSettings, world_sizes: Sequence[int], batches: Collection[int]
) -> Iterator[str]:
    """What was not measured and is taken for granted, a sentence each."""
    hosts, largest = model.wire.hosts if model.wire else None, max(cell.world_size for cell in model.several)
    if max(world_sizes) > largest:
        if hosts is not None:
            yield f"Each further worker has a host and a link of its own, as the {largest} measured ones have."
        elif _nodes(model) > 1:
            yield "Further nodes are as those that were measured, with as many workers on each."
        else:
            yield (
                "All workers are on one host that has a core or a device for each, with memory as fast for each as "
                f"for the {largest} measured ones. Hosts with a link between them: measure two with --hosts 2."
            )
    rate = hosts.rate_bits_per_s if hosts else None
    if rate is not None and (settings.rate_bits_per_s or 0) > rate:
        yield "No link as fast was measured: what the cores themselves can carry was not seen."
    known = sorted(model.by_batch)
    for batch in sorted(set(batches) - set(known)):
        if len(known) == 1:
            yield f"Computing grows with the samples from b = {known[0]} to b = {batch}: one batch alone was measured."
        elif not known[0] < batch < known[-1]:
            yield f"b = {batch} lies outside of the measured {known[0]} to {known[-1]}: the line goes on."
    unseen = set(strategies_of(model, settings)) - {cell.strategy for cell in model.several}
    for name in sorted(unseen):
        yield f"{name} was not run: what it computes beside the messages, such as averaging, is not known and left out."


def _nodes(model: Model) -> int:
    records = [cell.record for cell in model.several if cell.record]
    return max((len({place.host for place in record.ranks}) for record in records), default=1)
