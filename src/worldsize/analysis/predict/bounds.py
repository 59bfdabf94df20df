"""What a forecast must not do without having been measured (method.md §14)."""

from collections.abc import Sequence

from worldsize.analysis.commands import study_command
from worldsize.analysis.predict.model import Model
from worldsize.config import Hosts, PredictSettings
from worldsize.errors import UsageError
from worldsize.traits import BASELINE_STRATEGY, TRAITS

VOID = {"provenance-changed": "its sessions ran on different machines"}
"""Warnings with which the cells of a run are not of one machine, and why nothing is predicted from them."""


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
    flag = "--link-latency" if settings.link is None else "--link"
    if own is None:
        where = (
            "the rate of the link between these nodes is not known"
            if nodes_of(model) > 1
            else "no worker of this run was on a host of its own"
        )
        raise UsageError(
            f"{flag} was given, and {where}: what a link of another rate or latency does was not measured\n"
            f"Measure one on emulated hosts: worldsize study --hosts 2 --link {settings.link or '1gbit'}"
        )
    if own.own_rates:
        raise UsageError(
            f"{flag} was given, and {hosts_text(own)} of this run had another link (--slow-link): what hosts do "
            "whose links are all alike was not measured\nMeasure them without --slow-link."
        )
    rate, latency = settings.rate_bits_per_s, settings.latency_s
    wanted = own.model_copy(
        update={
            "rate_bits_per_s": own.rate_bits_per_s if rate is None else round(rate),
            "latency_s": own.latency_s if latency is None else latency or None,
        }
    )
    return None if wanted == own else wanted


def hosts_text(hosts: Hosts) -> str:
    """The emulated hosts that have a link of their own."""
    return f"host{'s' if len(hosts.own_rates) > 1 else ''} {', '.join(map(str, sorted(hosts.own_rates)))}"


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
    if (accumulate := analysis.accumulate) > 1:
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
        raise UsageError(
            f"nothing is predicted from this run: {_why_none(model)}, so what messages cost and how workers differ is "
            f"not known\nMeasure two on cores of their own{_two(model)}"
        )
    if not all(model.known(cell.strategy).together for cell in model.several):
        raise UsageError(
            "how long a worker of this run computes by itself was not measured: it has neither one worker nor steps "
            "without synchronisation\nMeasure it: worldsize study --world-sizes 1,2"
        )


def _why_none(model: Model) -> str:
    """Why no cell of several workers is of use."""
    several = [cell for cell in model.analysis.cells if cell.world_size > 1]
    measured = [cell for cell in several if cell in model.cells]
    if not several:
        return "it has one worker alone"
    if not measured:
        return "its cells of several workers have no numbers"
    if all(cell.oversubscribed for cell in measured):
        return "its workers have more threads than cores"
    return "its workers are threads of one process" + (
        ", or have more threads than cores" if any(cell.oversubscribed for cell in measured) else ""
    )


def _two(model: Model) -> str:
    """The command that measures two workers of the same, where there is one."""
    asked = model.analysis.record.settings
    command = None if asked is None else study_command(asked, world_sizes=(1, 2))
    return f": {command}" if command else ", one after the other or in one study."


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
        lost = [name for name in model.analysis.run.unread if name.startswith("comm/")]
        what = f"{lost[0]} of this run cannot be read" if lost else "this run has timed no collective between workers"
        return f"{what}, so no world of several can be predicted\nMeasure two workers{_two(model)}"
    if not settings_apply(model, strategy, settings):
        return (
            f"{strategy} is known by the messages that were measured, in buckets of the run: --bucket-mb cannot change "
            "them\nLeave it out, or measure the study with other buckets."
        )
    again = _again(model, strategy)
    if model.traits(strategy).period:
        return (
            f"{strategy} communicates once in several steps, and a forecast is of steps that are alike: only a "
            "measurement at the world size in question tells"
        )
    sent = model.sent(strategy, None, 1.0)
    if sent is None:
        return _why_not_sent(model, strategy, again)
    missing = sorted({each.collective for each in sent} - model.wire.models.keys())
    return f"{strategy} sends by {', '.join(missing)}, which this run has not timed often enough{again}"


def _why_not_sent(model: Model, strategy: str, again: str) -> str:
    """Why it is not known what a strategy sends."""
    if any(cell.strategy == strategy for cell in model.several):
        command = study_command(model.analysis.record.asked, strategies=(strategy,))
        return f"{strategy} cannot be simulated: it sends in forward, or holds its ranks in backward" + (
            f"\nMeasure a larger world itself, with other --world-sizes: {command}" if command else ""
        )
    run_here = any(cell.strategy == strategy for cell in model.analysis.cells)
    if model.traits(strategy).collectives and not run_here:
        return f"what {strategy} sends is known only where it was measured, and it was not measured here{again}"
    return f"{strategy} cannot be simulated: it runs in one process, or sends in forward or blocks backward{again}"


def _again(model: Model, strategy: str) -> str:
    """A line with the study of this run again, of this strategy; nothing where worldsize did not train."""
    asked = model.analysis.record.asked
    baseline = (BASELINE_STRATEGY,) if BASELINE_STRATEGY in asked.strategies else ()
    command = study_command(asked, strategies=(*baseline, strategy)) if model.analysis.record.trains else None
    return f"\nMeasure it: {command}" if command else ""


def settings_apply(model: Model, strategy: str, settings: PredictSettings) -> bool:
    """Whether the buckets that were asked for say what a strategy sends: not where only measured messages do."""
    by_rule = strategy in TRAITS and TRAITS[strategy].sends is not None
    return settings.bucket_mb is None or by_rule or not model.traits(strategy).buckets


def on_gpus(model: Model) -> bool:
    """Whether its workers train on a device of their own."""
    return any(placement.device != "cpu" for placement in model.placements)


def nodes_of(model: Model) -> int:
    """Hosts of the cells of several workers, the most of one cell."""
    records = [cell.record for cell in model.several if cell.record]
    return max((len({place.host for place in record.ranks}) for record in records), default=1)
