"""What the benchmarks share: variants in turn, ratios block by block with intervals, and where results are kept."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from worldsize.analysis.levels import ratio_estimate
from worldsize.analysis.statistics import Ratio
from worldsize.measure.machine import provenance

RESULTS = Path(__file__).parent / "results"
Samples = dict[str, dict[tuple[int, int], Any]]


def in_turn(variants: Mapping[str, Callable[[], float]], blocks: int) -> Samples:
    """Run each variant once per block (A B C A B C …); a variant returns seconds per unit of its work.

    One round before the first block warms everything up and is thrown away.
    """
    samples: Samples = {name: {} for name in variants}
    for block in range(-1, blocks):
        for name, run in variants.items():
            seconds = run()
            if block >= 0:
                samples[name][0, block] = np.array([seconds])
        say(f"  block {block + 1} of {blocks}")
    return samples


def ratio(samples: Samples, slow: str, fast: str) -> Ratio:
    """How many times as fast `fast` is as `slow`."""
    return ratio_estimate(samples[slow], samples[fast])


def shown(value: Ratio) -> str:
    """A ratio with its 95 % interval."""
    e = value.estimate
    return f"{e.value:.3f} [{e.low:.3f}, {e.high:.3f}]" if e.low is not None else f"{e.value:.3f}"


def say(text: str) -> None:
    """Progress goes to stderr, results to stdout."""
    print(text, file=sys.stderr, flush=True)


def keep(name: str, content: dict[str, Any]) -> None:
    """Write a result with its provenance to benchmarks/results, for committing."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"provenance": origin(), **content}, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


@cache
def origin() -> dict[str, Any]:
    """Machine, versions, command and commit; asked once, for a file that was kept makes the commit a changed one."""
    # Of a path only the last part: where somebody keeps their data explains no number.
    arguments = [Path(argument).name for argument in sys.argv[1:]]
    found = provenance([f"benchmarks/{Path(sys.argv[0]).name}", *arguments]).model_dump(mode="json")
    # A host's name and addresses explain no number.
    found["host"] = {k: v for k, v in found["host"].items() if k not in ("hostname", "interfaces")}
    return found


def cifar10_or_synthetic(data_dir: str | None) -> dict[str, Any]:
    """Settings of real CIFAR-10 where it is given (--data-dir or $WORLDSIZE_DATA), else of synthetic images."""
    if data_dir or os.environ.get("WORLDSIZE_DATA"):
        return {"data": "cifar10", "data_dir": data_dir}
    return {"data": "synthetic:3x32x32:10:50000"}
