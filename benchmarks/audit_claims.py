"""Planted sentences that the table contradicts, and bold cells that are not the best."""

import random

from audit_formats import BOLD_FORMATS
from audit_kind import Kind
from audit_more_families import accuracies
from audit_studies import scaling
from audit_truth import Study


def _strong(rng: random.Random) -> Study:
    return scaling(rng, rng.choice(("epoch", "epoch", "speedup")), "epoch", mode=rng.choice(("batch", "data")))


def _words(study: Study) -> tuple[str, str, float, int]:
    """The workers, the base, the last speed-up and the last N."""
    setting = study.facts["setting"]
    base = setting.ladder[0]
    many, one = setting.nouns
    return many, f"{base} {many if base > 1 else one}", study.facts["speedup"][-1], setting.ladder[-1]


def _faster(study: Study, rng: random.Random) -> bool:
    many, base, true, last = _words(study)
    wrong = true * rng.choice((rng.uniform(1.25, 1.6), rng.uniform(0.55, 0.75)))
    sentences = (
        f"Training is {wrong:.1f}x faster on {last} {many} than on {base}.",
        f"We get a {wrong:.1f}× speed-up on {last} {many}.",
        f"With {last} {many}, an epoch is {wrong:.1f} times as fast as with {base}.",
    )
    study.after = [rng.choice(sentences)]
    return bool(true > 1.5 and study.facts["setting"].ladder[0] == 1)


def _efficiency(study: Study, rng: random.Random) -> bool:
    many, _, true, last = _words(study)
    share = 100 * true / last
    wrong = share + rng.uniform(12, 25) if share < 75 else share - rng.uniform(12, 25)
    sentences = (
        f"On {last} {many} we reach a scaling efficiency of {wrong:.0f} %.",
        f"We see {wrong:.0f}% efficiency on {last} {many}.",
    )
    study.after = [rng.choice(sentences)]
    return bool(study.facts["setting"].ladder[0] == 1)


def _less_time(study: Study, rng: random.Random) -> bool:
    many, base, true, last = _words(study)
    saved = 100 * (1 - 1 / true)
    wrong = saved - rng.uniform(12, 25)
    study.after = [
        rng.choice(
            (
                f"With {last} {many} an epoch takes {wrong:.0f} % less time than with {base}.",
                f"Going from {base} to {last} {many} reduces the epoch time by {wrong:.0f}%.",
            )
        )
    ]
    return wrong > 10


def _linear(study: Study, rng: random.Random) -> bool:
    many, _, true, last = _words(study)
    sentences = (
        f"Training scales linearly up to {last} {many}.",
        "The training scales linearly with the number of GPUs.",
    )
    study.after = [rng.choice(sentences).replace("GPUs", many)]
    return bool(true * study.facts["setting"].ladder[0] / last < 0.7)


def _bold(study: Study, rng: random.Random) -> bool:
    grid = study.table
    if not grid.bold:
        return False
    values = grid.column("accuracy").values
    worst = values.index(min(values))
    grid.bold = {(worst, "accuracy")}
    return bool(max(values) - min(values) > 0.004)


CLAIMS: tuple[Kind, ...] = (
    Kind("claim: times faster", _strong, _faster, "claim", claims=True),
    Kind("claim: efficiency", _strong, _efficiency, "claim", claims=True),
    Kind("claim: less time", _strong, _less_time, "claim", claims=True),
    Kind("claim: linear", _strong, _linear, "claim", claims=True),
    Kind("bold is not the best", accuracies, _bold, "bold", formats=BOLD_FORMATS),
)
