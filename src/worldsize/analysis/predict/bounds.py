"""What a forecast must not do without having been measured, and what it takes for granted (method.md §14)."""

from collections.abc import Iterator, Sequence

from worldsize.analysis.commands import study_command
from worldsize.analysis.predict.forecast import Target
from worldsize.analysis.predict.model import Model
from worldsize.config import Hosts, PredictSettings
from worldsize.errors import UsageError
from worldsize.traits import BASELINE_STRATEGY, TRAITS

VOID = {"provenance-changed": "its sessions ran on different machines"}
"""Warnings with which the cells of a run are not of one machine, and why nothing is predicted from them."""
DRIFT = "drift"


def check_asked(model: Model, settings: PredictSettings) -> Hosts | None:
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
    if settings.link is None and settings.link_latency is None:
        return None
    if own is None:
        flag = "--link-latency" if settings.link is None else "--link"
        where = (
            "the rate of the link between these nodes is not known"
            if _nodes(model) > 1
            else "no worker of this run was on a host of its own"
        )
        raise UsageError(
            f"{flag} was given, and {where}: what a link of another rate or latency does was not measured\n"
            f"Measure one on emulated hosts: worldsize study --hosts 2 --link {settings.link or '1gbit'}"
        )
    rate, latency = settings.rate_bits_per_s, settings.latency_s
    wanted = own.model_copy(
        update={
            "rate_bits_per_s": own.rate_bits_per_s if rate is None else round(rate),
            "latency_s": own.latency_s if latency is None else latency or None,
        }
    )
    return None if wanted == own else wanted


def _check_run(model: Model) -> None:
    analysis = model.analysis
    for _, warning in analysis.warnings:
        if warning.code in VOID:
            why = VOID[warning.code]
            raise UsageError(f"nothing is predicted from this run: {why}\nMeasure it again on one machine.")
    if analysis.record.rehearses:
        raise UsageError("this run is a rehearsal: its computing was replayed\nGive the run that it replays.")
    if not any(cell.summary for cell in analysis.cells):
        raise UsageError("no cell of this run has numbers: measure it first, or go on with --resume")
    if (accumulate := analysis.record.asked.accumulate) > 1:
        raise UsageError(
            f"nothing is predicted from this run: it has {accumulate} micro-batches in a step (--accumulate), of which "
            "only the last communicates\nMeasure it without --accumulate."
        )
    if not model.cells:
        raise UsageError(
            "the steps of this run have no marks, so how long they compute is unknown\n"
            "A run of `worldsize study`, or of a loop whose backward was metered, has them."
        )
    if not model.several:
        crowded = any(cell.oversubscribed for cell in model.cells)
        threads = any(cell.world_size > 1 for cell in model.cells)
        alone = "its workers are threads of one process" if threads else "it has one worker alone"
        why = "its workers have more threads than cores" if crowded else alone
        raise UsageError(
            f"nothing is predicted from this run: {why}, so what messages cost and how workers differ is not known\n"
            "Measure two on cores of their own: worldsize study --world-sizes 1,2"
        )
    if not all(model.known(cell.strategy).together for cell in model.several):
        raise UsageError(
            "how long a worker of this run computes by itself was not measured: it has neither one worker nor steps "
            "without synchronisation\nMeasure it: worldsize study --world-sizes 1,2"
        )


def _check_strategies(model: Model, settings: PredictSettings) -> None:
    if settings.strategies is None and settings.bucket_mb is None:
        return
    if not model.analysis.record.trains:
        raise UsageError(
            "a script synchronises in its own way: --strategy and --bucket-mb cannot change that\nLeave them out."
        )
    measured = {cell.strategy for cell in model.analysis.cells}
    as_measured = settings.bucket_mb is None and {*(settings.strategies or ())} <= {c.strategy for c in model.several}
    for name in settings.strategies or ():
        if name not in TRAITS and name not in measured:
            raise UsageError(f"--strategy: {name!r} was given; known: {', '.join(TRAITS)}")
        if name == BASELINE_STRATEGY:
            raise UsageError(f"--strategy: {name} was given, which is one worker: several need one that synchronises")
    if model.gradients is None and not as_measured:
        raise UsageError(
            "when backward has each gradient was not recorded in this run, as by an older version: other strategies "
            "and buckets cannot be predicted\nMeasure it again with this version of worldsize."
        )


def strategies_of(model: Model, settings: PredictSettings) -> Sequence[str]:
    """Those that were asked for, else those measured with several workers."""
    return settings.strategies or tuple(dict.fromkeys(cell.strategy for cell in model.several))


def why_not(model: Model, strategy: str, settings: PredictSettings) -> str:
    """Of a strategy that has no forecast: what was not measured, and how to measure it."""
    if model.wire is None:
        return (
            "this run has timed no collective between workers, so no world of several can be predicted\n"
            "Measure one: worldsize study --world-sizes 1,2"
        )
    again = _again(model, strategy)
    if model.traits(strategy).period:
        return (
            f"{strategy} communicates once in several steps, and a forecast is of steps that are alike: only a "
            f"measurement at the world size in question tells{again}"
        )
    sent = model.sent(strategy, None, 1.0)
    if sent is None and any(cell.strategy == strategy for cell in model.several):
        return (
            f"{strategy} cannot be simulated: it sends in forward, or holds its ranks in backward\n"
            f"Measure the world itself: worldsize study --strategies {strategy} --world-sizes N"
        )
    if sent is None:
        return (
            f"{strategy} cannot be simulated: it runs in one process, was not measured here, or sends in forward or "
            f"blocks backward{again}"
        )
    missing = sorted({each.collective for each in sent} - model.wire.models.keys())
    return f"{strategy} sends by {', '.join(missing)}, which this run has not timed{again}"


def _again(model: Model, strategy: str) -> str:
    """A line with the study of this run again, of this strategy; nothing where worldsize did not train."""
    asked = model.analysis.record.asked
    baseline = (BASELINE_STRATEGY,) if BASELINE_STRATEGY in asked.strategies else ()
    command = study_command(asked, strategies=(*baseline, strategy)) if model.analysis.record.trains else None
    return f"\nMeasure it: {command}" if command else ""


def assumptions(model: Model, settings: PredictSettings, targets: Sequence[Target]) -> Iterator[str]:
    """What was not measured and is taken for granted, a sentence each."""
    unread = model.analysis.run.unread
    yield from (f"{name} cannot be read and is left out: {why.splitlines()[0]}." for name, why in unread.items())
    hosts, largest = model.wire.hosts if model.wire else None, max(cell.world_size for cell in model.several)
    if max(target.world_size for target in targets) > largest:
        if hosts is not None:
            yield f"Each further worker has a host and a link of its own, as the {largest} measured ones have."
        elif _nodes(model) > 1:
            yield "Further nodes are as those that were measured, with as many workers on each."
        else:
            yield (
                "All workers are on one host that has a core or a device for each, with memory as fast for each as "
                f"for the {largest} measured ones. Hosts with a link between them: measure two with --hosts 2."
            )
    if any(cell.record and cell.record.placement and cell.record.placement.device != "cpu" for cell in model.several):
        yield (
            "Forecasts of GPUs have not been tested on hardware: NCCL may choose other algorithms for other sizes and "
            "nodes, and messages may share the device otherwise than on a CPU."
        )
    if any(warning.code == DRIFT for _, warning in model.analysis.warnings):
        yield "The machine drifted while this run was timed: a forecast is of its mean speed, and of no other."
    rate = hosts.rate_bits_per_s if hosts else None
    if rate is not None and (settings.rate_bits_per_s or 0) > rate:
        yield "No link as fast was measured: what the cores themselves can carry was not seen."
    if settings.rate_bits_per_s and settings.rate_bits_per_s != rate:
        yield "Messages slow computing as they usually do over a link of that rate, compared with the measured one."
    yield from dict.fromkeys(text for target in targets for text in _of_batch(model, target))
    unseen = {target.strategy for target in targets} - {cell.strategy for cell in model.several}
    for name in sorted(unseen):
        yield f"{name} was not run: what it computes beside the messages, such as averaging, is not known and left out."
    overlap = any(cell.traits.overlaps for cell in model.several)
    if not overlap and any(model.traits(target.strategy).overlaps for target in targets):
        yield "No strategy that overlaps was run: messages slow computing as gloo's usually do."


def _of_batch(model: Model, target: Target) -> Iterator[str]:
    known, batch = sorted(model.known(target.strategy).together), target.batch_size
    if batch in known:
        return
    if len(known) == 1:
        yield f"Computing grows with the samples from b = {known[0]} to b = {batch}: one batch alone was measured."
    elif not known[0] < batch < known[-1]:
        yield f"b = {batch} lies outside of the measured {known[0]} to {known[-1]}: the line goes on."


def _nodes(model: Model) -> int:
    records = [cell.record for cell in model.several if cell.record]
    return max((len({place.host for place in record.ranks}) for record in records), default=1)
