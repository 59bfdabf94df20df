"""Advice: what limits the configurations of a study, and what to change."""

from dataclasses import replace

from worldsize.analysis.advice.baseline import baseline_not_comparable
from worldsize.analysis.advice.batch import batch_knee, batch_too_small, memory_headroom
from worldsize.analysis.advice.communication import bandwidth_bound, communication_bound, latency_bound, root_bound
from worldsize.analysis.advice.computing import compute_slower
from worldsize.analysis.advice.fewer_bytes import beside_more_samples, fewer_bytes
from worldsize.analysis.advice.finding import NO_COMMAND as NO_COMMAND
from worldsize.analysis.advice.finding import Advice as Advice
from worldsize.analysis.advice.finding import Evidence as Evidence
from worldsize.analysis.advice.finding import Gain as Gain
from worldsize.analysis.advice.forecasts import with_forecast
from worldsize.analysis.advice.input import copy_bound, input_bound, other_work
from worldsize.analysis.advice.noise import too_noisy
from worldsize.analysis.advice.overlap import overlap_incomplete, overlapped_already
from worldsize.analysis.advice.own_loops import own_collectives, synced_too_often
from worldsize.analysis.advice.placement import oversubscribed
from worldsize.analysis.advice.price import takes_s
from worldsize.analysis.advice.rule import Seen, in_order
from worldsize.analysis.advice.slow_ranks import slow_rank
from worldsize.analysis.advice.stalls import periodic_stall
from worldsize.analysis.advice.stragglers import straggler_bound
from worldsize.analysis.advice.strategy import (
    beside_one_worker,
    scaling_does_not_pay,
    strategy_choice,
    wrapper_overhead,
)
from worldsize.analysis.commands import launched_as, of_script
from worldsize.analysis.study import StudyAnalysis, once

RULES = (
    oversubscribed,
    baseline_not_comparable,
    too_noisy,
    input_bound,
    copy_bound,
    other_work,
    periodic_stall,
    synced_too_often,
    own_collectives,
    bandwidth_bound,
    latency_bound,
    root_bound,
    slow_rank,
    straggler_bound,
    communication_bound,
    overlap_incomplete,
    overlapped_already,
    compute_slower,
    wrapper_overhead,
    scaling_does_not_pay,
    strategy_choice,
    fewer_bytes,
    batch_too_small,
    memory_headroom,
    batch_knee,
)
"""All rules; of equal worth, the advice of the first one stands first."""


@once
def advise(analysis: StudyAnalysis) -> tuple[Advice, ...]:
    """What the numbers of a study say should be changed, the most worthwhile first; empty where they say nothing."""
    if analysis.record.rehearses:  # its computing is another run's, which has advice of its own
        return ()
    seen = Seen(analysis)
    ordered = in_order([candidate for rule in RULES for candidate in rule(seen)], seen.focus)
    told = [found for each in ordered if (found := with_forecast(each, seen)) is not None]
    ranked = [beside_one_worker(each, seen) for each in told]
    ranked = [beside_more_samples(each, ordered) for each in ranked]
    if not seen.trains:  # no command of ours changes what was only metered, but a script can be timed for longer
        kept = bool(seen.settings.script)
        ranked = [replace(each, command=each.command if kept and of_script(each.command) else None) for each in ranked]
    origin = analysis.record.provenance
    ranked = [replace(each, command=launched_as(origin.command, each.command, origin.started_by)) for each in ranked]
    return tuple(replace(each, takes_s=takes_s(each, analysis)) for each in ranked)
