"""Does the cost model of all-reduce predict sizes that it was not fitted to? (method.md §5).

Real all-reduces of gloo from 1 KiB to 64 MiB by fours, over links of known rates and on loopback. First every second
size is held out at once, then each size but the smallest and the largest by itself; beside it the errors of a model
that adds latency and bytes (p = 1). Asked: 10 %.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common import keep, say
from worldsize.analysis.bandwidth import CurvePoint, curve, fit
from worldsize.config import CommSettings
from worldsize.study.comm import check_hosts, run_comm

COLLECTIVE = "all-reduce"
TOP_BYTES = 64 * 2**20
SAMPLES = 7
BACKENDS = {"p as the times show it": "gloo", "p = 1": "nccl"}
"""By which `fit` takes each model: of another backend than gloo it adds latency and bytes."""
EVERY_SECOND, BY_ITSELF = "every second size", "each by itself"

Errors = dict[str, dict[str, list[float]]]
"""Logarithmic errors, by what is held out and by model."""


class Case(NamedTuple):
    """Workers, and the link between their emulated hosts; None is loopback."""

    world_size: int
    link: str | None = None

    @property
    def settings(self) -> CommSettings:
        """What is measured."""
        hosts = None if self.link is None else self.world_size
        return CommSettings(
            collectives=(COLLECTIVE,),
            world_size=self.world_size,
            top_bytes=TOP_BYTES,
            samples=SAMPLES,
            hosts=hosts,
            link=self.link,
        )


CASES = (
    *(Case(2, link) for link in ("1gbit", "300mbit", "100mbit")),
    *(Case(world_size, "1gbit") for world_size in (3, 4)),
    *(Case(world_size) for world_size in (2, 4, 8)),
)


def run(data_dir: str | None) -> None:
    """Measure and print. Raises UsageError where hosts cannot be emulated."""
    check_hosts(CASES[0].settings, CASES[0].world_size)
    results, found = {}, []
    for case in CASES:
        name = f"{case.world_size} workers, {case.link or 'loopback'}"
        say(f"  {name}")
        with tempfile.TemporaryDirectory() as folder:
            points = curve(run_comm(case.settings, Path(folder), ["benchmarks/run.py"]), COLLECTIVE)
        model, errors = fit(points, case.world_size), errors_of(points, case.world_size)
        assert model is not None
        found.append(errors)
        results[name] = {
            "seconds": {point.size_bytes: point.time_s.model_dump() for point in points},
            "model": {"alpha_s": model.alpha_s, "beta_bytes_per_s": model.beta_bytes_per_s, "p": model.exponent},
            "rms_error": _rms([errors]),
        }
        print(f"{name}: p = {model.exponent}; held out {_said([errors])}")
    print(f"all: held out {_said(found)}")
    keep("cost_model", {"rms_error": _rms(found), "cases": results})


def errors_of(points: Sequence[CurvePoint], world_size: int) -> Errors:
    """Errors of sizes between those that the model was fitted to."""
    errors: Errors = {}
    for model, backend in BACKENDS.items():
        second = [point for point in points[1::2] if point is not points[-1]]
        alone = [_off([each for each in points if each is not one], [one], world_size, backend) for one in points[1:-1]]
        errors.setdefault(EVERY_SECOND, {})[model] = _off(points[::2], second, world_size, backend)
        errors.setdefault(BY_ITSELF, {})[model] = [error for each in alone for error in each]
    return errors


def _off(known: Sequence[CurvePoint], held_out: Sequence[CurvePoint], world_size: int, backend: str) -> list[float]:
    model = fit(known, world_size, backend)
    assert model is not None
    return [float(np.log(model.time_s(point.size_bytes) / point.time_s.value)) for point in held_out]


def _rms(found: Sequence[Errors]) -> dict[str, dict[str, float]]:
    return {
        way: {
            model: float(np.sqrt(np.mean(np.square([error for each in found for error in each[way][model]]))))
            for model in BACKENDS
        }
        for way in (EVERY_SECOND, BY_ITSELF)
    }


def _said(found: Sequence[Errors]) -> str:
    return "; ".join(
        f"{way} " + ", ".join(f"{model} {error:.1%}" for model, error in of_way.items())
        for way, of_way in _rms(found).items()
    )
