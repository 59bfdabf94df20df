"""How long it takes to try an advice: the time that its command spends, from the steps of this study."""

import shlex
from math import ceil

from worldsize.analysis.advice.finding import Advice
from worldsize.analysis.advice.noise import UNTIMED
from worldsize.analysis.commands import after
from worldsize.analysis.headline import fastest_worker, headline, rate
from worldsize.analysis.study import StudyAnalysis
from worldsize.config import DEFAULT_BUDGET, StudySettings
from worldsize.config.network import DEFAULT_BUDGET_S

LAUNCH_S = 3.0
"""Until the workers of a cell are there and warmed up, on two cores (benchmarks/README.md)."""


def takes_s(advice: Advice, analysis: StudyAnalysis) -> float | None:
    """Seconds that the command of an advice takes, about; None where it has none, or that cannot be told."""
    if advice.command is None:
        return None
    words = shlex.split(advice.command)
    kind = words[words.index("worldsize") + 1]
    if kind == "comm":
        return _seconds(after("--budget", words)) or DEFAULT_BUDGET_S
    if kind == "sweep":
        return None  # it ends where memory does
    if kind == "study" and (budget_s := _budget_s(words)) is not None:
        # What its run had before is used already.
        return budget_s - (analysis.run.study.asked.budget_s or 0.0) * ("--resume" in words)
    cells = _count("--strategies", words) * _count("--world-sizes", words) if kind == "study" else 1
    steps_s = _steps_s(words, analysis)
    seeds = int(after("--seeds", words) or 1)
    return None if steps_s is None else seeds * cells * sum(LAUNCH_S + UNTIMED * each_s for each_s in steps_s)


def minutes_text(seconds: float) -> str:
    """`about 40 s`, `about 3 min`."""
    return f"about {ceil(seconds)} s" if seconds < 100 else f"about {ceil(seconds / 60):,} min"


def _budget_s(words: list[str]) -> float | None:
    """The budget of a study; None where it ends after steps or epochs."""
    given = after("--budget", words)
    if given or any(after(flag, words) for flag in ("--steps", "--epochs")):
        return _seconds(given)
    return _seconds(DEFAULT_BUDGET)


def _seconds(text: str) -> float | None:
    return StudySettings(budget=text).budget_s if text else None


def _steps_s(words: list[str], analysis: StudyAnalysis) -> list[float] | None:
    """What the timed steps of a cell take at each batch, at the samples/s of the fastest cell of this study."""
    found = headline(analysis)
    cell = found.fastest if found else fastest_worker(analysis)
    if cell is None or cell.summary is None:
        return None
    given = after("--batch-sizes", words) or after("--batch-size", words)
    batches = [int(each) for each in given.split(",")] if given else [cell.batch_size]
    if steps := after("--steps", words):
        return [int(steps) * cell.summary.step_s.value * batch / cell.batch_size for batch in batches]
    samples = analysis.record.train_samples
    epochs = float(after("--epochs", words) or 1)
    return None if samples is None else [epochs * samples / rate(cell) for _ in batches]


def _count(flag: str, words: list[str]) -> int:
    return len(after(flag, words).split(",")) if after(flag, words) else 1
