"""What a forecast takes for granted, a sentence each (method.md §14)."""

from collections.abc import Iterator, Sequence

from worldsize.analysis.predict.bounds import hosts_text, nodes_of, on_gpus
from worldsize.analysis.predict.forecast import Target
from worldsize.analysis.predict.model import Model
from worldsize.config import PredictSettings

DRIFT, DISTURBED = "drift", "disturbed"
NOT_ENDED = ("planned", "running", "interrupted")


def assumptions(model: Model, settings: PredictSettings, targets: Sequence[Target]) -> Iterator[str]:
    """What was not measured and is taken for granted."""
    yield from _of_run(model)
    yield from _of_workers(model, targets)
    yield from _of_links(model, settings)
    yield from dict.fromkeys(text for target in targets for text in _of_batch(model, target))
    yield from _of_strategies(model, settings, targets)


def _of_run(model: Model) -> Iterator[str]:
    """What is wrong with the run itself."""
    analysis = model.analysis
    for name, why in analysis.run.unread.items():
        yield f"{name} cannot be read and is left out: {why.splitlines()[0].rstrip('.')}."
    open_ended = [cell for cell in analysis.cells if cell.state in NOT_ENDED]
    if open_ended:
        yield f"This run has not ended: {len(open_ended)} of {len(analysis.cells)} cells had more steps to come."
    codes = {warning.code for _, warning in analysis.warnings}
    if DRIFT in codes:
        yield "The machine drifted while this run was timed: a forecast is of its mean speed, and of no other."
    if DISTURBED in codes:
        yield (
            "Something else used the cores while this run was timed. All of its steps count: steps and messages may be "
            "too long by it, and the band does not know."
        )


def _of_workers(model: Model, targets: Sequence[Target]) -> Iterator[str]:
    """Further workers, and devices."""
    hosts, largest = model.wire.hosts if model.wire else None, max(cell.world_size for cell in model.several)
    if max(target.world_size for target in targets) > largest:
        if hosts is not None:
            yield f"Each further worker has a host and a link of its own, as the {largest} measured ones have."
        elif nodes_of(model) > 1:
            yield "Further nodes are as those that were measured, with as many workers on each."
        else:
            yield (
                "All workers are on one host that has a core or a device for each, with memory as fast for each as "
                f"for the {largest} measured ones. Hosts with a link between them: measure two with --hosts 2."
            )
    if on_gpus(model):
        yield (
            "Forecasts of GPUs have not been tested on hardware: NCCL may choose other algorithms for other sizes and "
            "nodes, and messages may share the device otherwise than on a CPU."
        )


def _of_links(model: Model, settings: PredictSettings) -> Iterator[str]:
    """Links of another rate."""
    hosts = model.wire.hosts if model.wire else None
    if hosts is not None and hosts.own_rates:
        yield f"The link of {hosts_text(hosts)} stays as it was in the run (--slow-link)."
    rate = hosts.rate_bits_per_s if hosts else None
    if rate is not None and (settings.rate_bits_per_s or 0) > rate:
        yield (
            "No link as fast was measured: what the cores add to each byte is taken to be usual of gloo, and what they "
            "can carry was not seen."
        )
    if settings.rate_bits_per_s and settings.rate_bits_per_s != rate:
        yield "Messages slow computing as they usually do over a link of that rate, compared with the measured one."


def _of_strategies(model: Model, settings: PredictSettings, targets: Sequence[Target]) -> Iterator[str]:
    """Strategies that were not run, and buckets that some do not have."""
    unbucketed = sorted({each.strategy for each in targets if not model.traits(each.strategy).buckets})
    if settings.bucket_mb is not None and unbucketed:
        yield f"--bucket-mb says nothing of {', '.join(unbucketed)}: no gradients travel in buckets there."
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
