"""Forecasts of 4 to 32 hosts beside rehearsals of as many: one run of two hosts is known to both, and nothing else.

Both take the computing of that run for granted; what differs is the communication: simulated from a benchmark of two
workers in one, sent by the real collectives of so many in the other. The error is predicted ÷ rehearsed step − 1.
A rehearsal that does not keep its times, or whose links carry less than their rate, has no number, and says why.
"""

import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import worldsize
from common import keep, say
from worldsize.analysis.steps import timed_steps
from worldsize.api.run import Run
from worldsize.config import CommSettings
from worldsize.results.forecast_records import Forecast
from worldsize.study.comm import check_hosts

HERE = Path(__file__).parent
MODELS = {name: f"{HERE / 'predict_models.py'}:{name}" for name in ("convolutions", "small_layers")}
STRATEGIES = ("ddp", "bucketed", "all-reduce")
LINK, BATCH, BUDGET = "50mbit", 256, "180s"
"""A rate at which two cores carry the messages of 32 hosts, and a batch whose waits are long: with one of 32, those of
16 hosts took 4 % longer than they were to."""
WORLD_SIZES = (4, 8, 16, 32)
STEPS = 6
CODES = ("link-not-carried", "link-bursts", "queued-for-cores")
"""Warnings with which a rehearsal is longer than the world that it stands for: its error is listed apart."""


def run(data_dir: str | None) -> None:
    """Measure, rehearse, predict, print and keep. Raises UsageError where hosts cannot be emulated."""
    check_hosts(CommSettings(hosts=2), 2)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        known = {name: _known(model, Path(place) / name) for name, model in MODELS.items()}
        for hosts, name in product(WORLD_SIZES, MODELS):  # many hosts last: they take longest
            say(f"  {name}: rehearsing {hosts} hosts")
            run, forecasts = known[name]
            out = Path(place) / f"{name}-{hosts}"
            found = worldsize.rehearse(
                run.folder, hosts=hosts, link=LINK, steps=STEPS, out=out, report=False, progress=False
            )
            several = (cell for cell, each in found.cells.items() if each.record.world_size > 1)
            rows += [_row(name, hosts, found, cell, forecasts) for cell in several]
            keep("predict-rehearsed", {"summary": _summary(rows), "cells": rows})
    for row in rows:
        told = f", {', '.join(row['warnings'])}" if row["warnings"] else ""
        error = row["refused"] or f"{row['error']:+.1%}, {row['in_band']:.0%} of {row['steps']} steps in the band{told}"
        print(f"{row['model']:<13} {row['strategy']:<11} N = {row['world_size']:<3} {error}")
    print(_summary(rows))


def _known(model: str, out: Path) -> tuple[Run, dict[tuple[str, int], Forecast]]:
    """A run of two hosts, and what it lets predict of each strategy and number of hosts."""
    run = worldsize.study(
        model=model,
        data="synthetic:3x32x32:10:4096",
        strategies=("single", *STRATEGIES),
        world_sizes=(1, 2),
        batch_sizes=BATCH,
        baseline="single",
        hosts=2,
        link=LINK,
        budget=BUDGET,
        evaluate="never",
        out=out,
        report=False,
        progress=False,
    )
    told = worldsize.predict(run.folder, world_sizes=WORLD_SIZES)
    return run, {(each.strategy, each.world_size): each for each in told.rows}


def _row(model: str, hosts: int, found: Run, cell: str, forecasts: dict[tuple[str, int], Forecast]) -> dict[str, Any]:
    record = found.cells[cell].record
    forecast = forecasts[record.strategy, hosts]
    low, high = forecast.step_s.low, forecast.step_s.high
    told: dict[str, Any] = {
        "model": model,
        "strategy": record.strategy,
        "world_size": hosts,
        "predicted_s": forecast.step_s.value,
        "band_s": [low, high],
        "fidelity": record.replayed.fidelity if record.replayed else None,
        "queued_share": record.replayed.queued_share if record.replayed else None,
        "warnings": sorted({each.code for where, each in found.warnings if where in {"study", cell}} & set(CODES)),
    }
    if record.state != "complete":
        return {**told, "refused": record.error.message if record.error else record.state, "error": None}
    steps_s = timed_steps(found.cells[cell])["world_s"].to_numpy()
    return {
        **told,
        "refused": None,
        "rehearsed_s": float(steps_s.mean()),
        "steps": len(steps_s),
        "in_band": float(np.mean((steps_s >= low) & (steps_s <= high))),
        "error": forecast.step_s.value / float(steps_s.mean()) - 1,
    }


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all that have a number, and of those whose rehearsal warns of nothing."""
    held = [row for row in rows if row["error"] is not None]
    sound = [row for row in held if not row["warnings"]]
    return {"cells": len(rows), "refused": len(rows) - len(held), **_errors(held), "without warnings": _errors(sound)}


def _errors(held: list[dict[str, Any]]) -> dict[str, Any]:
    if not held:
        return {"with a number": 0}
    sizes = [abs(row["error"]) for row in held]
    steps = sum(row["steps"] for row in held)
    return {
        "with a number": len(held),
        "median error": round(float(np.median(sizes)), 4),
        "largest error": round(max(sizes), 4),
        "steps in the band": round(sum(row["in_band"] * row["steps"] for row in held) / steps, 3),
    }
