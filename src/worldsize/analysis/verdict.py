"""The verdict of a study in one or two sentences, made from its numbers and honest about what they do not say."""

from collections.abc import Sequence
from math import isfinite

from worldsize.analysis.advice import Advice, advise
from worldsize.analysis.advice.noise import HIDES_THE_LIMIT
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.decision import Decision, decision, noise_text
from worldsize.analysis.headline import Headline, cell_name, fastest_worker, headline, rate, wrapped_worker
from worldsize.analysis.losses import LossCause, Losses
from worldsize.analysis.numbers import estimate_text, number_text, percent_text
from worldsize.analysis.pays import Gain, Pay, Workers
from worldsize.analysis.rung_words import beside_text, lead_text
from worldsize.analysis.rungs import fastest_lossy, rung_of
from worldsize.analysis.scaling import Kind, ScalingRow
from worldsize.analysis.statistics import half_width, includes
from worldsize.analysis.study import StudyAnalysis, once
from worldsize.analysis.sweep import sweep_text
from worldsize.results.records import Estimate

NOTABLE_LOSS = 0.02
"""Share of a step below which a loss is not worth naming: about what two medians of a quiet machine differ by."""

BOTTLENECK = 0.10
"""Share of a step below which what is lost most is no bottleneck: to mend it changes no decision."""

NAMES: dict[Kind, str] = {
    "weak": "a scaled speed-up",
    "strong": "a speed-up",
}
KEPT: dict[Kind, str] = {"weak": "", "strong": " at the same global batch"}

CAUSES: dict[LossCause, str] = {
    "exposed_sync": "exposed communication",
    "data_wait": "waiting for data",
    "compute": "slower compute (forward, backward and optimizer together)",
    "copy_and_other": "copies to the device and work outside the named parts",
    "beside": "what the loop does beside training (evaluation, checkpoints, loaders that begin anew, logging, garbage)",
    "wrapper": "the overhead of the strategy itself, which one worker in it has as well",
    "cores": "fewer cores, which one worker with as many has as well",
}

CAUSE_OF_CODE: dict[str, LossCause] = {
    "bandwidth-bound": "exposed_sync",
    "latency-bound": "exposed_sync",
    "root-bound": "exposed_sync",
    "straggler-bound": "exposed_sync",
    "communication-bound": "exposed_sync",
    "synced-too-often": "exposed_sync",
    "own-collectives": "exposed_sync",
    "overlap-incomplete": "exposed_sync",
    "input-bound": "data_wait",
    "copy-bound": "copy_and_other",
    "other-work": "copy_and_other",
    "compute-slower": "compute",
    "wrapper-overhead": "wrapper",
}
"""Advice on the headline that names a loss: the verdict must not name another one."""
NAMED = ("slow-rank", "periodic-stall")
"""Advice that names a rank, or some steps, in whichever part they lose time."""


@once
def verdict(analysis: StudyAnalysis) -> str:
    """Three answers, each by itself: whether several workers pay, which strategy is fastest, and what limits it."""
    return f"Rehearsed, not measured: {_found(analysis)}" if analysis.record.rehearses else _found(analysis)


def _found(analysis: StudyAnalysis) -> str:
    if analysis.sweeps:
        return " ".join([*map(sweep_text, analysis.sweeps), *_doubt(analysis)])
    found = headline(analysis)
    if len(analysis.cells) == 1 and analysis.cells[0].summary is not None:
        only = analysis.cells[0]
        return f"{cell_name(only)}: {number_text(rate(only))} samples/s. It was run alone, so nothing is compared."
    if found is None:
        return _without_headline(analysis)
    answer = decision(analysis)
    about = _about(analysis, found)
    price, beside = _price(analysis, found)
    limit = _named(about) or _cause(found, about)
    if answer is not None and answer.workers == "open":
        limit = " ".join(filter(None, [_named(about), noise_text(analysis, found)]))
    said = [price, _whether_it_pays(found.pay), _finding(found, answer), _per_core(analysis, found), beside, limit]
    return " ".join(filter(None, said))


def _whether_it_pays(pay: Pay | None) -> str:
    """The first sentence: how many times as fast several workers are as one; empty where they were compared with none.

    One worker with all cores is what a person has without the others; else it is one with as many as each of them.
    """
    if pay is None:
        return ""
    ratio, baseline = pay.fastest.ratio, pay.fastest.baseline
    workers, one = f"{pay.fastest.cell.world_size} workers", f"one{_its_cores(baseline)}"
    if ratio.low is None and pay.workers != "several":
        return f"Whether {workers} are faster than {one} is not known: they were measured in one block."
    if pay.workers != "several":
        said: dict[Workers, str] = {
            "even": f"{workers} are about as fast as {one}",
            "one": f"One worker{_its_cores(baseline)} is faster than {workers}",
            "open": f"Whether {workers} are faster than {one} is open",
        }
        return f"{said[pay.workers]}: they are {estimate_text(ratio)} times as fast{_by_one_launch(pay.fastest)}."
    least, by = number_text(pay.surest.at_least), _by_one_launch(pay.surest)
    if pay.surest.cell is pay.fastest.cell:
        return f"{workers} are {number_text(ratio.value)} times as fast as {one} (at least {least}{by})."
    sure = f"{pay.surest.cell.world_size} workers"
    return f"{sure} are at least {least} times as fast as {one} ({pay.surest.cell.id}{by})."


def _its_cores(one: CellAnalysis) -> str:
    """What must be said of a worker that several are held against: where cores count, with how many it computes."""
    placement = one.record.placement if one.record else None
    if one.alone:
        return f" with {one.threads_per_worker or 'all'} cores"
    settings = one.record.settings if one.record else None
    if placement is None or placement.device != "cpu" or settings is None:
        return ""
    shares = settings.emulated is None and settings.program is None  # a command has what its launcher gives it
    return " with as many cores as each of them" if shares else ""


def _by_one_launch(gain: Gain) -> str:
    """What must be said where no interval knows how launches differ."""
    return ", by one launch" if gain.cell.launched == gain.baseline.launched == 1 else ""


def _per_core(analysis: StudyAnalysis, found: Headline) -> str:
    """What the same workers gain over one that has as many cores as each of them; empty where that was not measured.

    A script by itself has all cores of the machine. Where each worker brings its own, as a GPU does, this is the
    speed-up (method.md §6).
    """
    baseline, cell = found.scaling.baseline, found.fastest
    if baseline is None or not baseline.alone:
        return ""
    one = wrapped_worker(analysis, cell, baseline)
    if one is None or one.level is None or cell.level is None:
        return ""
    gain = one.step_ratio(cell).scaled(cell.samples_per_step / one.samples_per_step).estimate
    return (
        f"Per core, against one worker with as many cores as each of these has ({one.id}), it is {estimate_text(gain)} "
        "times as fast."
    )


def _price(analysis: StudyAnalysis, found: Headline) -> tuple[str, str]:
    """What stands before the finding, and after it, where strategies are not all exact; empty where they are.

    A lossy one is never named as the fastest without its price, which comes first where it is significant.
    """
    rung = rung_of(analysis, found.fastest)
    if rung is None:
        return "", ""
    if rung.lossy:
        return lead_text(rung), beside_text(analysis, rung)
    other = fastest_lossy(analysis, found.fastest)
    if other is None or other.speed is None:
        return "", ""
    times = estimate_text(other.speed.estimate)
    return "", f"{other.cell.strategy}, the fastest lossy strategy there, has {times} times its samples/s."


def _finding(found: Headline, answer: Decision | None) -> str:
    cell, row = found.fastest, found.scaling
    text = f"The fastest multi-worker configuration is {cell_name(cell)}: {number_text(rate(cell))} samples/s"
    if row.speedup is None or row.efficiency is None or row.baseline is None:
        text += f", without a speed-up ({row.withheld})"
    else:
        speedup, efficiency = row.speedup.estimate, percent_text(row.efficiency.estimate.value)
        per_core = " with as many cores as each of them" if _has_fewer_cores(found) else ""
        text += (
            f", {NAMES[row.kind]} of {estimate_text(speedup)} over {row.baseline.id}{per_core}{KEPT[row.kind]} "
            f"(efficiency {efficiency}{_against_one(speedup)})"
        )
    return f"{text}{_rival(answer)}."


def _has_fewer_cores(found: Headline) -> bool:
    """Whether the baseline of the speed-up is another than what several workers are first held against."""
    return found.pay is not None and found.pay.fastest.baseline is not found.scaling.baseline


def _rival(answer: Decision | None) -> str:
    """The configurations that may be faster, by how much at most, and whether that matters."""
    if answer is None:
        return ""
    text = ""
    for words, cells in (("not significantly slower", answer.close), ("indistinguishable from it", answer.doubtful)):
        if cells:
            text += f"; {words}: {', '.join(f'{cell.id} ({_at_most(share)})' for cell, share in cells)}"
    return text


def _at_most(share: float) -> str:
    most = f"up to {percent_text(share)} faster" if share < 10 else "more than ten times as fast"  # else mere digits
    return f"may be {most}" if isfinite(share) else "measured in one block"


def _against_one(speedup: Estimate) -> str:
    """What must be said where several workers do not clearly beat one."""
    return "; measured in one block, hence without an interval" if speedup.low is None else ""


def _named(about: Sequence[Advice]) -> str:
    """The rank, or the steps, that the first advice on a loss names; empty where it names none, or noise hides it."""
    first = next((each for each in about if each.code in ("too-noisy", *NAMED, *CAUSE_OF_CODE)), None)
    if first is None or first.code not in NAMED:
        return ""
    return f"What limits it most: {first.finding[0].lower()}{first.finding[1:]}"


def _cause(found: Headline, about: Sequence[Advice]) -> str:
    """What limits it: the loss that the first advice on it names, else the largest one, if one is significant."""
    row, lost = found.scaling, found.losses
    if row.speedup is None or row.efficiency is None:
        return ""
    width, advised = half_width(row.speedup.estimate), _loss_of([each.code for each in about])
    if width is not None and any(each.finding.endswith(f"{HIDES_THE_LIMIT}.") for each in about):
        return f"An interval of ±{percent_text(width)} is too wide to name its bottleneck: measure for longer."
    if lost is None:  # without a common block what the machine did between the two is in each difference
        return "" if advised is None else f"What limits it most is {CAUSES[advised]}."
    copies = lost.by_cause.get("copy_and_other")
    if advised == "copy_and_other" and (copies is None or copies.value < NOTABLE_LOSS * lost.step_s):
        advised = None  # it costs one worker as much
    if row.kind == "strong" and _more_in_compute(lost, advised):
        advised = None
    if advised is None and width is not None and (row.efficiency.estimate.high or 0) >= 1:
        return "No significant loss: the interval of its efficiency reaches 100 %."
    return _bottleneck(lost, advised, _share_of_baseline(row))


def _more_in_compute(lost: Losses, advised: LossCause | None) -> bool:
    """Whether compute loses significantly more than what an advice names; none finds that with one global batch."""
    compute, named = lost.by_cause.get("compute"), lost.by_cause.get(advised) if advised else None
    return compute is not None and compute.low is not None and named is not None and compute.low > named.value


def _share_of_baseline(row: ScalingRow) -> str:
    """The part of the baseline's step that a worker's step is compared with; empty where that is all of it."""
    return "" if row.kind == "weak" or row.baseline is None else f"1/{row.cell.world_size} of {row.baseline.id}"


def _bottleneck(lost: Losses, advised: LossCause | None, share_of_baseline: str) -> str:
    """The loss that an advice names, else the largest one where its interval excludes 0."""
    largest = next(iter(lost.by_cause))
    loss = lost.by_cause[largest]
    share, significant = loss.value / lost.step_s, not includes(loss, 0)
    if advised is None and share < NOTABLE_LOSS:
        return f"No single loss was seen to be above {percent_text(NOTABLE_LOSS)} of its step."
    if advised is None and not significant:
        if loss.low is None or loss.high is None:
            return ""
        half = percent_text((loss.high - loss.low) / 2 / lost.step_s)
        return f"Its largest loss is only known to ±{half} of its step, which names no bottleneck: measure for longer."
    cause = advised or largest
    if cause != largest or share < NOTABLE_LOSS or not significant:
        return f"What limits it most is {CAUSES[cause]}."
    whole = number_text(1e3 * lost.step_s)
    beside = f", against {share_of_baseline}" if share_of_baseline else ""
    name = "bottleneck" if share >= BOTTLENECK else "largest loss"
    return (
        f"Its {name} is {CAUSES[cause]}: {number_text(1e3 * loss.value)} ms of a mean step of {whole} ms, "
        f"{percent_text(share)}{beside}."
    )


SHORT: dict[LossCause, str] = {
    "exposed_sync": "exposed communication",
    "data_wait": "data wait",
    "compute": "compute",
    "copy_and_other": "copies and other work",
    "beside": "evaluation, checkpoints and the like",
    "wrapper": "the strategy itself at N = 1",
    "cores": "fewer cores a worker",
}

MIN_TERM = 0.005
"""Share of a step below which a term is left out of the sum: what is left still adds up to about a percent."""


def step_sum(analysis: StudyAnalysis) -> str | None:
    """In a sentence, why the step of the fastest configuration is longer than one worker's; None where it is not known.

    The steps are the printed ones (method.md §2, §8); of one worker's 1/N counts where the global batch is kept.
    """
    found = headline(analysis)
    if found is None or found.losses is None:
        return None
    cell, base, lost = found.fastest, found.scaling.baseline, found.losses
    if cell.summary is None or base is None:
        return None
    terms = "".join(
        f" {'+' if loss.value >= 0 else '−'} {number_text(1e3 * abs(loss.value))} {SHORT[cause]}"
        for cause, loss in lost.by_cause.items()
        if abs(loss.value) >= MIN_TERM * lost.step_s
    )
    if not terms:
        return None
    whole = f"Mean step of {cell.id}: {number_text(1e3 * lost.step_s)} ms"
    part = _share_of_baseline(found.scaling)
    return f"{whole} ≈ {number_text(1e3 * lost.baseline_s)} {f'({part})' if part else f'of {base.id}'}{terms}."


def _about(analysis: StudyAnalysis, found: Headline) -> list[Advice]:
    """The advice on the fastest configuration, in order."""
    return [each for each in advise(analysis) if each.cell_id == found.fastest.id]


def _loss_of(codes: Sequence[str]) -> LossCause | None:
    """The loss that the first of these names; None where none names one."""
    return next((CAUSE_OF_CODE[code] for code in codes if code in CAUSE_OF_CODE), None)


def _doubt(analysis: StudyAnalysis) -> list[str]:
    """What must be said of a sweep whose batches do not differ significantly."""
    return [f"This is uncertain: {each.finding}" for each in advise(analysis) if each.code == "too-noisy"]


def _without_headline(analysis: StudyAnalysis) -> str:
    """What to say where no multi-worker configuration has numbers to show."""
    several = [cell for cell in analysis.cells if cell.world_size > 1]
    best = fastest_worker(analysis)
    if any(cell.summary is not None for cell in several):
        found = "Every multi-worker configuration had more threads than cores, so none is judged."
    elif several:
        found = f"No multi-worker configuration has numbers ({several[0].id}: {several[0].reason})."
    elif best is not None:
        found = "Only one worker was measured, so there is no scaling to judge."
    else:
        found = "Nothing was measured" + (
            f" ({analysis.cells[0].id}: {analysis.cells[0].reason})." if analysis.cells else "."
        )
    if best is None:
        return found
    return f"{found} The fastest single worker is {cell_name(best)}: {number_text(rate(best))} samples/s."
