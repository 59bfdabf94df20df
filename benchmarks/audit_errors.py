"""Planted errors: each kind takes a sound study, and makes one thing in it wrong, by enough to change a conclusion."""

import random
from dataclasses import dataclass

from audit_claims import CLAIMS
from audit_families import batches
from audit_kind import FORMATS_ALL, Kind, cell, factor, redrawn
from audit_more_errors import MORE
from audit_numbers import Style
from audit_studies import scaling
from audit_truth import Setting, Study, Truth


@dataclass(frozen=True)
class Planted:
    """A study with one error."""

    study: Study
    kind: Kind


def plant(kind: Kind, rng: random.Random) -> Planted:
    """A study with an error of that kind; drawn again until the kind can be planted in it."""
    return Planted(redrawn(kind, rng), kind)


def _speedup_study(rng: random.Random) -> Study:
    return scaling(rng, "speedup", rng.choice(("epoch", "rate")), mode=rng.choice(("batch", "data")))


def _any_speedup(rng: random.Random) -> Study:
    return scaling(rng, "speedup", rng.choice(("step", "rate")))


def _efficiencies(rng: random.Random) -> Study:
    return scaling(rng, "speedup", "efficiency", "epoch", mode=rng.choice(("batch", "data")))


def _speedup_cell(study: Study, rng: random.Random) -> bool:
    cell(study.table, "speedup", rng)
    return True


def _n_twice(study: Study, rng: random.Random) -> bool:
    column, N = study.table.column("speedup"), study.facts["setting"].ladder
    column.values = [value * n / N[0] for value, n in zip(column.values, N, strict=True)]
    study.table.drop("efficiency")
    return True


def _inverted(study: Study, rng: random.Random) -> bool:
    column = study.table.column("speedup")
    column.values = [1 / value for value in column.values]
    column.style = Style(rng.randint(2, 4))
    study.table.drop("efficiency")
    return True


def _other_row(study: Study, rng: random.Random) -> bool:
    column = study.table.column("speedup")
    column.values = [*column.values[:2], *(value / column.values[1] for value in column.values[2:])]
    study.table.drop("efficiency")
    return True


def _other_batch(study: Study, rng: random.Random) -> bool:
    speeds = [column for column in study.table.columns if column.key.startswith("speedup:")]
    bases = [column for column in study.table.columns if column.key.startswith("epoch:")]
    ratio = bases[0].values[0] / bases[-1].values[0]
    if ratio < 1.1:
        return False
    speeds[-1].values = [value * ratio for value in speeds[-1].values]
    return bool(speeds[-1].width() < 0.02)


def _not_divided(study: Study, rng: random.Random) -> bool:
    grid = study.table
    grid.column("efficiency").values = list(study.facts["speedup"])
    return True


def _efficiency_cell(study: Study, rng: random.Random) -> bool:
    cell(study.table, "efficiency", rng)
    return True


def _saved(study: Study, rng: random.Random) -> bool:
    column = study.table.column("efficiency")
    column.values = [1 - 1 / value for value in study.facts["speedup"]]
    return True


def _rate_total(study: Study, rng: random.Random) -> bool:
    study.table.drop("step", "epoch", "compute", "comm", "speedup", "efficiency")
    cell(study.table, "rate1", rng)
    return True


def _per_worker(study: Study, rng: random.Random) -> bool:
    grid, truth, data = study.table, study.facts["truth"], study.facts["setting"].data
    grid.drop("speedup", "efficiency", "rate1", "epoch", "steps")
    column = grid.column("rate")
    column.values = [b * data.length / step for b, step in zip(truth.b, truth.step, strict=True)]
    column.head = f"Total throughput ({data.item}/s)"
    column.style = Style(1)
    return grid.column("step").width() < 0.03


def _rate_cell(study: Study, rng: random.Random) -> bool:
    study.table.drop("speedup", "efficiency", "rate1", "epoch")
    cell(study.table, "rate", rng, study.table.column("step"))
    return True


def _steps_alone(study: Study) -> None:
    study.table.columns = [each for each in study.table.columns if each.key in ("n", "b", "B", "steps", "step", "loss")]


def _steps_whole(study: Study, rng: random.Random) -> bool:
    _steps_alone(study)
    setting = study.facts["setting"]
    steps = -(-setting.data.train // setting.b)
    study.table.column("steps").values = [steps for _ in setting.ladder]
    return True


def _steps_wrong(study: Study, rng: random.Random) -> bool:
    _steps_alone(study)
    setting, other = study.facts["setting"], rng.choice((2, 0.5, 4))
    study.table.column("steps").values = [int(setting.data.train // (setting.b * n * other)) for n in setting.ladder]
    return True


def _epoch_cell(study: Study, rng: random.Random) -> bool:
    study.table.drop("rate", "rate1", "speedup", "efficiency")
    cell(study.table, "epoch", rng, study.table.column("step"))
    return True


def _part_larger(study: Study, rng: random.Random) -> bool:
    grid = study.table
    grid.drop("comm%", "compute%")
    row = rng.randrange(1, len(grid.column("n").values))
    grid.column("comm").values[row] = grid.column("step").values[row] * rng.uniform(1.25, 1.9)
    return grid.column("step").width() < 0.02


def _superlinear(setting: Setting, truth: Truth) -> None:
    whole = truth.step[0]
    for row, n in list(enumerate(truth.N))[1:]:
        more = n / truth.N[0] if setting.mode == "batch" else 1.0
        step = whole / more / (1.18 + 0.07 * row)
        truth.compute[row], truth.comm[row] = 0.9 * step, 0.1 * step


def _other_b(setting: Setting, truth: Truth) -> None:
    for row in range(len(truth.N) // 2, len(truth.N)):
        truth.b[row] *= 2
        truth.steps[row] = -(-setting.data.train // (truth.b[row] * truth.N[row]))
        truth.compute[row] *= 1.95


def _batch_changed(study: Study, rng: random.Random) -> bool:
    study.before = [text for text in study.before if not text.startswith("The batch size is")]
    speedups, N = study.facts["speedup"], study.facts["setting"].ladder
    return all(speedup < 0.97 * n / N[0] for speedup, n in list(zip(speedups, N, strict=True))[1:])


def _base_cell(study: Study, rng: random.Random) -> bool:
    study.table.drop("efficiency")
    column = study.table.column("speedup")
    column.values[0] = factor(rng, column)
    return True


def _even(setting: Setting, truth: Truth) -> None:
    truth.compute[:] = [truth.compute[0]] * len(truth.N)
    truth.comm[:] = [0.0] * len(truth.N)


def _ramp(study: Study, rng: random.Random) -> bool:
    return len(study.facts["setting"].ladder) > 3 and study.table.column("rate").width() < 1e-3


def _no_spread(study: Study, rng: random.Random) -> bool:
    column = study.table.column("step")
    places = max(column.style.decimals(value) for value in column.values) if column.style else 0
    if not 1 <= places <= 3 or column.style is None or study.table.column("rate").style is None:
        return False
    scale = column.style.scale
    column.values = [f"{value / scale:.{places}f} ± {0:.{places}f}" for value in column.values]
    return True


KINDS: tuple[Kind, ...] = (
    Kind("speed-up: a cell", _any_speedup, _speedup_cell, "speedup"),
    Kind("speed-up: N counted twice", _speedup_study, _n_twice, "speedup"),
    Kind("speed-up: inverted", _speedup_study, _inverted, "speedup"),
    Kind("speed-up: another row's base", _any_speedup, _other_row, "speedup"),
    Kind("speed-up: another batch's base", batches, _other_batch, "speedup", ("base-not-one",)),
    Kind("efficiency: not divided by N", _efficiencies, _not_divided, "efficiency"),
    Kind("efficiency: a cell", _efficiencies, _efficiency_cell, "efficiency"),
    Kind("efficiency: time saved", _efficiencies, _saved, "efficiency"),
    Kind("rate: per worker × N is not the total", lambda rng: scaling(rng, "rate", "rate1"), _rate_total, "rate-total"),
    Kind("rate: of one worker, called total", lambda rng: scaling(rng, "rate", "step"), _per_worker, "rate-time"),
    Kind("rate: a cell", lambda rng: scaling(rng, "rate", "step"), _rate_cell, "rate-time"),
    Kind(
        "steps: not divided by N",
        lambda rng: scaling(rng, "steps", "step", mode="data"),
        _steps_whole,
        "steps-per-epoch",
    ),
    Kind(
        "steps: of a wrong batch",
        lambda rng: scaling(rng, "steps", "step", mode="data"),
        _steps_wrong,
        "steps-per-epoch",
    ),
    Kind(
        "epoch: not steps × step",
        lambda rng: scaling(rng, "steps", "step", "epoch", mode=rng.choice(("batch", "data"))),
        _epoch_cell,
        "epoch-steps",
    ),
    Kind("parts: larger than the whole", lambda rng: scaling(rng, "step", "parts"), _part_larger, "parts"),
    Kind("base: its speed-up is not 1", _speedup_study, _base_cell, "base-not-one", ("speedup",)),
    Kind(
        "more than linear, without a cause",
        lambda rng: scaling(rng, "speedup", "rate", warp=_superlinear),
        lambda study, rng: True,
        "superlinear",
    ),
    Kind(
        "rows differ: batch",
        lambda rng: scaling(rng, "b", "epoch", "speedup", mode="data", warp=_other_b),
        _batch_changed,
        "rows-differ",
    ),
    Kind("too regular: a ramp", lambda rng: scaling(rng, "rate", mode="weak", warp=_even), _ramp, "too-regular"),
    Kind("too regular: no spread", lambda rng: scaling(rng, "step", "rate", mode="batch"), _no_spread, "too-regular"),
    *MORE,
    *CLAIMS,
)

__all__ = ["FORMATS_ALL", "KINDS", "Planted", "plant"]
