"""Forecasts of 4 to 32 hosts beside rehearsals of as many: one run of two hosts is known to both, and nothing else.

Both take the computing of that run for granted; what differs is the communication: simulated from a benchmark of two
workers in one, sent by the real collectives of so many in the other. The error is predicted ÷ rehearsed step − 1.
A rehearsal that does not keep its times, or whose links carry less than their rate, has no number, and says why.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import worldsize
from common import keep, say
from worldsize.analysis.steps import timed_steps
from worldsize.config import CommSettings
from worldsize.results.forecast_records import Forecast
from worldsize.run import Run
from worldsize.study.comm import check_hosts

HERE = Path(__file__).parent
MODELS = {name: f"{HERE / 'predict_models.py'}:{name}" for name in ("convolutions", "small_layers")}
STRATEGIES = ("ddp", "bucketed", "all-reduce")
LINK, BATCH, BUDGET = "50mbit", 32, "90s"
"""A rate at which two cores carry the messages of 32 hosts."""
WORLD_SIZES = (4, 8, 16, 32)
STEPS = 8
CODES = ("link-not-carried", "link-bursts")


def run(data_dir: str | None) -> None:
    """Measure, rehearse, predict, print and keep. Raises UsageError where hosts cannot be emulated."""
    check_hosts(CommSettings(hosts=2), 2)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        for name, model in MODELS.items():
            known = worldsize.study(
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
                out=Path(place) / name,
                report=False,
                progress=False,
            )
            told = worldsize.predict(known.folder, world_sizes=WORLD_SIZES)
            forecasts = {(each.strategy, each.world_size): each for each in told.rows}
            for hosts in WORLD_SIZES:
                say(f"  {name}: rehearsing {hosts} hosts")
                out = Path(place) / f"{name}-{hosts}"
                found = worldsize.rehearse(
                    known.folder, hosts=hosts, link=LINK, steps=STEPS, out=out, report=False, progress=False
                )
                several = (cell for cell, each in found.cells.items() if each.record.world_size > 1)
                rows += [_row(name, hosts, found, cell, forecasts) for cell in several]
                keep("predict-rehearsed", {"summary": _summary(rows), "cells": rows})
    for row in rows:
        error = row["refused"] or f"{row['error']:+.1%}, {row['in_band']:.0%} of {row['steps']} steps in the band"
        print(f"{row['model']:<13} {row['strategy']:<11} N = {row['world_size']:<3} {error}")
    print(_summary(rows))


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
        "warnings": sorted({each.code for _, each in found.warnings} & set(CODES)),
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
    held = [row for row in rows if row["error"] is not None]
    if not held:
        return {"cells": len(rows), "refused": len(rows)}
    sizes = [abs(row["error"]) for row in held]
    steps = sum(row["steps"] for row in held)
    return {
        "cells": len(rows),
        "refused": len(rows) - len(held),
        "median error": round(float(np.median(sizes)), 4),
        "largest error": round(max(sizes), 4),
        "steps in the band": round(sum(row["in_band"] * row["steps"] for row in held) / steps, 3),
    }
