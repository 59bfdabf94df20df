"""What a step that is proposed would bring, where the run tells enough to predict it (method.md §14)."""

import shlex
from collections.abc import Iterator
from dataclasses import replace

from worldsize.analysis.advice.communication import larger_messages
from worldsize.analysis.advice.finding import Advice
from worldsize.analysis.advice.rule import Seen
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.commands import after
from worldsize.analysis.numbers import estimate_text
from worldsize.analysis.predict.forecast import Predicted, Target, predicted
from worldsize.analysis.predict.model import Model
from worldsize.analysis.study import StudyAnalysis, once
from worldsize.results.records import Estimate
from worldsize.traits import BUCKETED

PROPOSING = ("root-bound", "latency-bound", "communication-bound", "overlap-incomplete")
"""Advice that proposes another strategy, or other buckets."""
STEPS = 100
WORTH_TELLING = 1.02
"""Less is what two runs differ by anyway."""


@once
def model_of(analysis: StudyAnalysis) -> Model:
    """What the run knows, put together once."""
    return Model(analysis)


def with_forecast(advice: Advice, seen: Seen) -> Advice | None:
    """The same advice; where it proposes what can be predicted, with the best of it beside its bound.

    Where that is no faster another next step takes its place, or nothing does.
    """
    cell = next((cell for cell in seen.several if cell.id == advice.cell_id), None)
    if advice.code not in PROPOSING or advice.gain is None or cell is None or not seen.trains:
        return advice
    model = model_of(seen.analysis)
    if model.gradients is None or not model.known(cell.strategy).together:
        return advice
    now = predicted(model, Target.of(cell), STEPS)
    proposed = _proposed(cell, advice.command)
    found = [(target, step) for target in proposed if (step := predicted(model, target, STEPS)) is not None]
    if now is None or not found:
        return advice
    target, best = min(found, key=lambda each: each[1].step_s)
    ratio = faster(now, best)
    if ratio.value < WORTH_TELLING:
        return _taken_back(advice, cell, seen)
    text = f"a forecast of {estimate_text(ratio)} times with {_name(target)}; {advice.gain.text}"
    return replace(advice, gain=replace(advice.gain, text=text, forecast=ratio))


def _taken_back(advice: Advice, cell: CellAnalysis, seen: Seen) -> Advice | None:
    """What is left where nothing that was proposed is forecast to be faster: the finding, and larger messages."""
    if advice.code == "overlap-incomplete":
        return None
    next_step, command = larger_messages(seen, cell)
    return replace(advice, next_step=next_step, command=command)


def _proposed(cell: CellAnalysis, command: str | None) -> Iterator[Target]:
    """What the command of an advice changes at the world size and batch of a cell: its strategy, or its buckets."""
    words = shlex.split(command or "")
    size = after("--bucket-mb", words)
    buckets = float(size) if size not in ("", "auto") else size or None
    named = (after("--strategies", words) or after("--strategy", words) or cell.strategy).split(",")
    for name in named:
        if name in BUCKETED and (name != cell.strategy or buckets is not None):
            yield Target(name, cell.world_size, cell.batch_size, buckets)


def _name(target: Target) -> str:
    if target.bucket_mb == "auto":
        return f"{target.strategy} and planned buckets"
    return target.strategy if target.bucket_mb is None else f"{target.strategy} and buckets of {target.bucket_mb:g} MB"


def faster(now: Predicted, then: Predicted) -> Estimate:
    """Samples/s then ÷ now; from forecasts of both, so what they both get wrong cancels. The band is that of steps."""
    low, high = then.band_s()
    value = now.step_s / then.step_s
    return Estimate(value=value, low=min(value, now.step_s / high), high=max(value, now.step_s / low), samples=STEPS)
