"""How far off is `worldsize predict`? Cells over links, batches and buckets that the run it predicts from never saw.

Of each model one study is known: two hosts, 300 Mbit/s, two local batches. The others are measured afterwards, over
100 Mbit/s, 300 Mbit/s with other buckets, and 1 Gbit/s, at batches between. Asked: median error at most 3 %, largest
8 %; 85 to 95 % of steps in the band; the order of strategies right in 95 % of pairs.

The machine drifts by tens of percent meanwhile. So each study is measured in a few sessions (ROUNDS), and the studies
take turns: those of one round in the order of `studies`, those of the next one backwards, so that what drifts evenly is
the same in all. Of what is left: beside the steps of two workers both do a short computation, the same in all studies;
by how many times as long as in the known run it takes, computing and the latency of messages are taken to have drifted
(`drift`). It is no part of a forecast, so it hides no error of one; but it varies as well. Beside that error stand the
one with the drift, and those by what one worker, and two while nothing travels, compute longer than forecast.

$PREDICT_MODELS names some of MODELS; the others stay as they were kept. $PREDICT_FOLDER keeps the run folders, and does
not measure again what is there.
"""

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy import stats

import worldsize
from common import RESULTS, keep, say
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.predict.baselines import Formulas
from worldsize.analysis.predict.doubts import doubt_of, of_step
from worldsize.analysis.predict.forecast import Inputs, Predicted, Target, inputs_of, simulated
from worldsize.analysis.predict.held_out import held_out
from worldsize.analysis.predict.model import Model
from worldsize.analysis.predict.observed import Compute
from worldsize.analysis.statistics import LEVEL
from worldsize.analysis.study import StudyAnalysis
from worldsize.launch.warm import WARM
from worldsize.results.folder import load_run

HERE = Path(__file__).parent
STRATEGIES = ("ddp", "bucketed", "all-reduce", "gather-scatter")
MODELS = {
    "convolutions": f"{HERE / 'predict_models.py'}:convolutions",
    "small_layers": f"{HERE / 'predict_models.py'}:small_layers",
    "resnet18": "resnet18",
    "vgg11": "vgg11",
}
LARGE = ("resnet18", "vgg11")
"""Models whose steps take seconds over 100 Mbit/s."""
LARGE_ROUNDS, ROUNDS = 2, 4
"""Of large models, whose sessions are long, and of the others. With two rounds of 2.5 minutes the machine drifted by a
quarter between studies of small layers, and their largest error was 13.9 %."""
INTERVAL = 0.001
"""Nobody knows a ratio as well as that: time alone ends a study, so that it has blocks in all rounds."""
MIN_BLOCKS = 3
MEASURES = ("error", "error_with_drift", "error_by_one", "error_by_two", "amdahl_error", "power_error")


class Measured(NamedTuple):
    """A study that is measured."""

    link: str
    batch_sizes: tuple[int, ...]
    budget_s: int
    strategies: tuple[str, ...] = STRATEGIES
    bucket_mb: float | None = None


class Known(NamedTuple):
    """What forecasts are made from."""

    model: Model
    formulas: Formulas
    errors: list[float]
    """Of its own cells, each held out."""
    link: str


def studies(name: str) -> tuple[Measured, list[Measured]]:
    """The one that is known, and those that are held out."""
    times, low, middle, high = (4, 8, 16, 32) if name in LARGE else (2, 16, 32, 64)
    known = Measured("300mbit", (low, high), 90 * times)
    buckets = [Measured("300mbit", (middle,), 35 * times, ("ddp", "bucketed"), size) for size in (1.0, 10.0)]
    return known, [
        *buckets,
        Measured("100mbit", (middle,), 60 * times),
        Measured("1gbit", (middle,), 45 * times),
        Measured("1gbit", (high,), 40 * times, ("ddp", "bucketed", "all-reduce"), 3.0),
    ]


def run(data_dir: str | None) -> None:
    """Measure, predict, print and keep, model by model."""
    chosen = os.environ.get("PREDICT_MODELS", ",".join(MODELS)).split(",")
    kept = RESULTS / "predict.json"
    before = json.loads(kept.read_text()) if kept.exists() else {"cells": {}, "commits": {}}
    cells: dict[str, list[dict[str, Any]]] = before["cells"]
    commits: dict[str, str] = before["commits"]
    with tempfile.TemporaryDirectory() as scratch, WARM.held():
        folder = Path(os.environ.get("PREDICT_FOLDER", scratch))
        for name in chosen:
            cells[name] = list(_held_against(name, folder / name))
            commits[name] = worldsize.load_run(folder / name / "known").analysis.record.provenance.commit or "unknown"
            keep("predict", {"summary": _summary(cells), "commits": commits, "cells": cells})
    for key, value in _summary(cells).items():
        print(f"  {key}: {value}")


def _held_against(name: str, folder: Path) -> Iterator[dict[str, Any]]:
    known, held = studies(name)
    places = {folder / "known": known, **{folder / str(number): each for number, each in enumerate(held)}}
    for number in range(_rounds(name)):
        for place in (list(places), list(reversed(places)))[number % 2]:
            _measure(name, places[place], place, number)
    model = Model(_whole(folder / "known", known))
    told = Known(model, Formulas(model), [each.error for each in held_out(model.analysis)], known.link)
    for number, each in enumerate(held):
        analysis = _whole(folder / str(number), each)
        for cell in analysis.cells:
            if cell.world_size > 1 and cell.summary is not None:
                yield _row(told, analysis, cell, each)


def _row(known: Known, analysis: StudyAnalysis, cell: CellAnalysis, held: Measured) -> dict[str, Any]:
    model, other_link = known.model, held.link != known.link
    target = Target(cell.strategy, 2, cell.batch_size, held.bucket_mb, analysis.run.comm[2].hosts)
    inputs = inputs_of(model, target)
    assert inputs is not None, "all of it can be predicted"
    here = Model(analysis)
    drift = _short_s(here) / _short_s(model)
    drift_of_one, drift_of_two = (each(here, cell) / each(model, cell) for each in (_alone_s, _together_s))
    found, plain, by_one, by_two = (_drifted(inputs, each) for each in (drift, 1.0, drift_of_one, drift_of_two))
    assert cell.summary is not None, "it was looked at"
    latency_share = found.latency_share * other_link
    doubt = doubt_of(known.errors, source=of_step(model, target), other_link=other_link, latency_share=latency_share)
    steps, (low, high) = np.concatenate(list(cell.blocks.values())), found.band_s(doubt)
    measured = cell.summary.step_s.value
    row = {
        "strategy": cell.strategy,
        "b": cell.batch_size,
        "link": held.link,
        "bucket_mb": held.bucket_mb,
        "measured_s": measured,
        "measured_interval_s": [cell.summary.step_s.low, cell.summary.step_s.high],
        "steps": len(steps),
        "blocks_s": {f"{session}.{block}": float(np.mean(of)) for (session, block), of in cell.blocks.items()},
        "predicted_s": found.step_s,
        "band_s": [low, high],
        "doubt": doubt,
        "error": found.step_s / measured - 1,
        "error_with_drift": plain.step_s / measured - 1,
        "drift": drift,
        "error_by_one": by_one.step_s / measured - 1,
        "drift_of_one": drift_of_one,
        "error_by_two": by_two.step_s / measured - 1,
        "drift_of_two": drift_of_two,
        "steps_in_band": int(((steps >= low) & (steps <= high)).sum()),
        "amdahl_error": _error(known.formulas.amdahl_s(target), measured),
        "power_error": _error(known.formulas.power_s(target), measured),
    }
    say(f"  {held.link} {cell.strategy} b{cell.batch_size} buckets {held.bucket_mb}: {row['error']:+.1%}")
    return row


def _drifted(inputs: Inputs, drift: float) -> Predicted:
    """On a machine that takes so many times as long to compute, and to handle a message."""
    each = Compute(drift, drift, drift)
    slower = replace(inputs, compute=inputs.compute.times(each), work=inputs.work.times(each))
    return simulated(replace(slower, wire=inputs.wire.changed(latency=drift) if inputs.wire else None))


def _short_s(model: Model) -> float:
    """The short computation beside the steps of two workers, as it usually was."""
    steps = [model.samples(cell).scan_steps().filter("timed") for cell in model.several]
    return float(pl.concat(steps).select(pl.col("reference_s").median()).collect().item())


def _together_s(model: Model, cell: CellAnalysis) -> float:
    return model.compute(cell.batch_size, cell.strategy).total_s


def _alone_s(model: Model, cell: CellAnalysis) -> float:
    return model.alone_at(cell.batch_size, cell.strategy).total_s


def _error(predicted_s: float | None, measured_s: float) -> float | None:
    return None if predicted_s is None else predicted_s / measured_s - 1


def _rounds(name: str) -> int:
    return LARGE_ROUNDS if name in LARGE else ROUNDS


def _measure(name: str, held: Measured, folder: Path, number: int) -> None:
    """The session of a study in one of the rounds, unless it was measured."""
    budget_s = held.budget_s * (number + 1) / _rounds(name)
    begun = (folder / "study.json").exists()
    if begun:
        study = load_run(folder).study
        if study.used_s is None and (study.asked.budget_s or 0.0) >= budget_s:
            return
    worldsize.study(
        model=MODELS[name],
        data="synthetic:3x32x32:10:4096",
        strategies=("single", *held.strategies),
        world_sizes=(1, 2),
        batch_sizes=held.batch_sizes,
        baseline="single",
        hosts=2,
        link=held.link,
        bucket_mb=held.bucket_mb,
        budget=f"{budget_s:g}s",
        target_interval=INTERVAL,
        evaluate="never",
        out=folder,
        resume=begun,
        report=False,
    )


def _whole(folder: Path, held: Measured) -> StudyAnalysis:
    found = worldsize.load_run(folder).analysis
    planned = len(held.batch_sizes) * (1 + len(held.strategies))
    assert [cell.state for cell in found.cells] == ["complete"] * planned, f"{folder} is no whole study: remove it"
    return found


def _summary(cells: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    rows = [row for each in cells.values() for row in each]
    errors = {name: _sizes(rows, name) for name in MEASURES}
    pairs = [pair for each in cells.values() for pair in _pairs(each)]
    known = [pair.right for pair in pairs if pair.distinguishable]
    return {
        "cells": len(rows),
        **{f"{name} median, largest": found for name, found in errors.items()},
        "steps in the band": sum(row["steps_in_band"] for row in rows) / sum(row["steps"] for row in rows),
        "pairs of strategies in the right order": f"{sum(pair.right for pair in pairs)} of {len(pairs)}",
        "of these, pairs whose order was measured": f"{sum(known)} of {len(known)}",
    }


def _sizes(rows: list[dict[str, Any]], name: str) -> list[float] | None:
    found = [abs(row[name]) for row in rows if row[name] is not None]
    return [round(float(np.median(found)), 4), round(max(found), 4)] if found else None


class Pair(NamedTuple):
    """Two strategies over one link, at one batch, with the same buckets."""

    right: bool
    """Whether the faster one is predicted to be so."""
    distinguishable: bool
    """Whether the interval of their ratio, block by block, lies on one side of 1: else it is not known which is faster.
    """


def _pairs(rows: list[dict[str, Any]]) -> Iterator[Pair]:
    for one, other in combinations(rows, 2):
        alike = all(one[key] == other[key] for key in ("b", "link", "bucket_mb"))
        if alike:
            right = (one["measured_s"] < other["measured_s"]) == (one["predicted_s"] < other["predicted_s"])
            yield Pair(right, _distinguishable(one, other))


def _distinguishable(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """By Student's interval of the mean logarithm of the ratio in blocks that were timed in turn."""
    these, those = one["blocks_s"], other["blocks_s"]
    ratios = np.log([these[block] / those[block] for block in these.keys() & those.keys()])
    if len(ratios) < MIN_BLOCKS:
        return False
    half = stats.t.ppf((1 + LEVEL) / 2, len(ratios) - 1) * ratios.std(ddof=1) / np.sqrt(len(ratios))
    return bool(abs(ratios.mean()) > half)
