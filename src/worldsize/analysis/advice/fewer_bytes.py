"""A rung that sends less: where a step waits for the link, what it would gain, and how to see what it costs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from worldsize.analysis.advice.finding import Advice, Evidence, cell_name, measured, megabytes, ratio_of_two, share
from worldsize.analysis.advice.forecasts import STEPS, faster, model_of
from worldsize.analysis.advice.gains import NOTABLE
from worldsize.analysis.advice.gradient_sync import GradientSync
from worldsize.analysis.advice.rule import Candidate, Seen, candidate
from worldsize.analysis.advice.strategy import IN_THIS_STUDY, WORTH_A_CHANGE
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.collective_cost import bus_factor
from worldsize.analysis.commands import focused, train_command
from worldsize.analysis.headline import rate
from worldsize.analysis.numbers import estimate_text, number_text
from worldsize.analysis.predict.forecast import Target, predicted, sent_over
from worldsize.analysis.predict.model import Model
from worldsize.analysis.rung_words import cost_text
from worldsize.analysis.rungs import Rung, rungs
from worldsize.results.records import Estimate
from worldsize.traits import TRAITS

LOSSY = tuple(name for name, traits in TRAITS.items() if not traits.exact and traits.sends is not None)
"""Those whose messages are known by rule, so that they can be predicted."""
SHOWN = 3
"""Forecasts of so many strategies are named: most differ little."""
EPOCHS, SEEDS = 5, 3
"""Of the trainings that tell the price: an interval needs several seeds, and losses to fall."""
CHANGES = "It changes the training: what its ranks apply is not the mean of all gradients of each step."


@dataclass(frozen=True)
class Proposed:
    """A lossy strategy that was not measured, by forecast."""

    strategy: str
    ratio: Estimate
    """Samples/s ÷ those of the cell, with the band of the forecast."""
    bytes_sent: float
    """Of its messages through a rank, per step."""


def fewer_bytes(seen: Seen) -> Iterator[Candidate]:
    """Of each N and b the lossy strategy that gains most: as measured here, else by forecast where the link is full."""
    if seen.settings.sweep:
        return
    groups: dict[tuple[int, int, str], list[CellAnalysis]] = {}
    for cell in seen.several:
        groups.setdefault((cell.world_size, cell.batch_size, cell.label), []).append(cell)
    for cells in groups.values():
        exact = max((cell for cell in cells if cell.traits.exact), key=rate, default=None)
        if exact is None or not _limited(seen, exact):
            continue
        sync, best = seen.gradient_sync(exact), _measured(seen, exact)
        if best is not None:
            yield _as_measured(seen, sync, best)
        elif sync.limit == "bandwidth" and (found := _proposed(seen, exact, cells)):
            yield _by_forecast(seen, sync, found)


def _limited(seen: Seen, cell: CellAnalysis) -> bool:
    """Whether its exposed communication is notable, and not waiting for a rank alone."""
    return seen.gradient_sync(cell).limit not in (None, "stragglers") and not seen.waits_only(cell)


def _measured(seen: Seen, exact: CellAnalysis) -> Rung | None:
    """The fastest rung that is significantly faster than the exact cell; never one that is not."""
    found = [
        each
        for each in rungs(seen.analysis)
        if each.lossy and each.exact is exact and each.faster and each.speed is not None
        if each.speed.estimate.value >= WORTH_A_CHANGE
    ]
    return max(found, key=lambda each: rate(each.cell), default=None)


def _as_measured(seen: Seen, sync: GradientSync, best: Rung) -> Candidate:
    exact, name = sync.cell, best.cell.strategy
    assert best.speed is not None, "only one that is faster is advised"
    assert sync.exposed is not None, "only of a cell that is limited by it"
    price = "" if best.cost is None else f" Here {cost_text(best.cost, exact.strategy)}."
    next_step, command = _see_the_price(seen, sync.cell, best)
    return candidate(
        "fewer-bytes",
        best.cell,
        finding=f"With {exact.world_size} workers and b = {exact.batch_size}, {name} is "
        f"{estimate_text(best.speed.estimate)} times as fast as {exact.strategy}, the fastest exact strategy, which "
        f"spends {share(sync.exposed.share)} of its step on exposed communication.",
        evidence=_evidence(best),
        cause=f"Fewer bytes travel, and the link is what a step waits for. {CHANGES}{price}",
        next_step=next_step,
        command=command,
        gain=measured(best.speed.estimate, IN_THIS_STUDY, of=f" of {exact.strategy}, at that price"),
        follows=True,
    )


def _evidence(best: Rung) -> Iterator[Evidence]:
    assert best.speed is not None, "only one that is faster is advised"
    assert best.exact is not None, "it is faster than one"
    yield ratio_of_two(f"Samples/s, {best.cell.strategy} ÷ {best.exact.strategy}", best.speed.estimate)
    if best.bytes_sent is not None:
        yield Evidence(
            f"{best.cell.strategy} sends through a rank, per step", megabytes(best.bytes_sent), best.bytes_sent, "bytes"
        )
    if best.of_fp32 is not None:
        yield Evidence("÷ an all-reduce in fp32", number_text(best.of_fp32), best.of_fp32, "ratio")


def _see_the_price(seen: Seen, exact: CellAnalysis, best: Rung) -> tuple[str, str | None]:
    """What to do before it is taken: know its price, or weigh it."""
    name, cost = best.cell.strategy, best.cost
    if cost is not None and cost.has_interval:
        known = "Weigh that price against the time" if cost.significant else "Use it, if that is enough to you"
        more = f"see more of it with more --epochs and --seeds than the {cost.seeds} of this study"
        return f"{known}; {more}.", train_command(seen.settings, best.cell)
    command = _trainings(seen, exact, name)
    how = f" (--epochs {EPOCHS} --seeds {SEEDS})" if seen.analysis.record.train_samples is not None else ""
    return f"See by how much before you use {name}: train it beside {exact.strategy}{how}.", command


def _trainings(seen: Seen, exact: CellAnalysis, name: str) -> str | None:
    """Both, trained for whole epochs with several seeds; by steps where the length of an epoch is unknown."""
    if seen.analysis.record.train_samples is None:
        return focused(seen.settings, exact, exact.strategy, name)
    whole = {"epochs": EPOCHS, "seeds": SEEDS, "steps": None, "budget": None}
    return focused(seen.settings, exact, exact.strategy, name, **whole)


def _proposed(seen: Seen, exact: CellAnalysis, cells: list[CellAnalysis]) -> list[Proposed]:
    """Lossy strategies that were not measured in the group and are faster by forecast; the one to take first."""
    model, here = model_of(seen.analysis), {cell.strategy for cell in cells}
    if not seen.trains or model.gradients is None or not model.known(exact.strategy).together:
        return []
    now = predicted(model, Target.of(exact), STEPS)
    found = []
    for name in LOSSY:
        target = Target.of(exact)._replace(strategy=name)
        then = None if name in here else predicted(model, target, STEPS)
        if now is None or then is None:
            continue
        ratio = faster(now, then)
        if ratio.value >= 1 + NOTABLE and ratio.low is not None and ratio.low > 1:
            found.append(Proposed(name, ratio, _bytes(model, target)))
    found.sort(key=lambda each: each.ratio.value, reverse=True)
    alike = [each for each in found if each.ratio.value * WORTH_A_CHANGE > found[0].ratio.value]
    return sorted(alike, key=_step_error) + found[len(alike) :]


def _step_error(each: Proposed) -> float:
    """How far off a step may be; of those that gain alike the one that errs least is named."""
    error = TRAITS[each.strategy].step_error
    return math.inf if error is None else error


def _bytes(model: Model, target: Target) -> float:
    """Bytes of its messages through a rank, per step."""
    sending = sent_over(model, target)
    assert sending is not None, "what was predicted is known to send"
    return sum(bus_factor(each.collective, target.world_size) * each.size_bytes for each in sending[1])


def _by_forecast(seen: Seen, sync: GradientSync, found: list[Proposed]) -> Candidate:
    exact, best = sync.cell, found[0]
    assert sync.exposed is not None, "only of a cell that is limited by it"
    now = _bytes(model_of(seen.analysis), Target.of(exact))
    how = f" with --epochs {EPOCHS} --seeds {SEEDS}" if seen.analysis.record.train_samples is not None else ""
    made = candidate(
        "fewer-bytes",
        exact,
        finding=f"{cell_name(exact)} spends {share(sync.exposed.share)} of its step on exposed communication, and the "
        f"link is full; {best.strategy}, which was not measured, sends {number_text(best.bytes_sent / now)} of its "
        "bytes.",
        evidence=[
            Evidence(f"{exact.strategy} sends through a rank, per step", megabytes(now), now, "bytes"),
            Evidence(f"{best.strategy} sends", megabytes(best.bytes_sent), best.bytes_sent, "bytes"),
            *(ratio_of_two(f"Forecast, samples/s, {each.strategy} ÷ {exact.strategy}", each.ratio) for each in found),
        ][: 2 + SHOWN],
        cause=f"The link carries each byte at its rate, so fewer of them take less time. {CHANGES}",
        next_step=f"Measure {best.strategy} beside {exact.strategy}, and see by how much it changes the training: the "
        f"same command{how}, in place of the time or the steps.",
        command=focused(seen.settings, exact, exact.strategy, best.strategy),
        gain=measured(
            best.ratio,
            "By forecast, with its band (method §14): from the bytes of its messages and the "
            "measured link; what packing them costs the cores is not in it.",
        ),
        follows=True,
    )
    assert made.advice.gain is not None, "it was given"
    gain = replace(
        made.advice.gain,
        text=f"a forecast of {made.advice.gain.text} with {best.strategy}",
        ratio=None,
        expected=best.ratio,
        forecast=best.ratio,
    )
    return replace(made, advice=replace(made.advice, gain=gain))


def beside_more_samples(advice: Advice, others: tuple[Advice, ...]) -> Advice:
    """The same advice; where it says that the link is full, with the rung that would pay by forecast."""
    rung = next((each for each in others if each.code == "fewer-bytes"), None)
    if advice.code != "bandwidth-bound" or rung is None or rung.cell_id != advice.cell_id:
        return advice
    if rung.gain is None or rung.gain.forecast is None:  # of one that was measured the cell is that of the rung
        return advice
    return replace(advice, next_step=f"{advice.next_step} Or send fewer bytes, at a price: {rung.gain.text}.")
