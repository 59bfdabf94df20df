"""Ten thousand and more inputs that are damaged or made to harm: how many were accepted, refused, crashed, hung.

    PYTHONPATH=src python benchmarks/fuzz.py [SEED [SHARE]]

It measures no time, so other work may run meanwhile. A crash or a hang is printed with its traceback, and exits with 1.
"""

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from common import keep, say
from fuzz_kinds import KINDS_OF_INPUT
from fuzzing import LIMIT_S, Found, fuzz

INPUTS = {
    "report": 60,
    "run folder": 2000,
    "cifar10": 400,
    "baseline": 1500,
    "study file": 2500,
    "checkpoint": 2500,
    "user data": 1500,
}
PIECE = 300
"""Inputs of one process: one that dies takes no others with it."""
PROCESSES = 3


def run(seed: int, share: float) -> list[str]:
    """Fuzz every kind and keep what was counted; returns the tracebacks."""
    pieces = [
        (name, min(PIECE, wanted - begin), seed + begin)
        for name, wanted in ((name, max(1, int(count * share))) for name, count in INPUTS.items())
        for begin in range(0, wanted, PIECE)
    ]
    found = {name: Found() for name in INPUTS}
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        for (name, _, _), ended in zip(pieces, pool.map(one, *zip(*pieces, strict=True)), strict=True):
            found[name].outcomes += ended.outcomes
            found[name].failures |= ended.failures
            say(f"{name}: {dict(found[name].outcomes)}" + "".join(f"\n    {line}" for line in ended.failures))
    kinds: dict[str, Any] = {name: {"outcomes": dict(sorted(ended.outcomes.items()))} for name, ended in found.items()}
    total = sum(ended.total for ended in found.values())
    keep("fuzz", {"seed": seed, "limit_s": LIMIT_S, "inputs": total, "kinds": kinds})
    return [told for ended in found.values() for told in ended.failures.values()]


def one(name: str, count: int, seed: int) -> Found:
    """Fuzz one kind in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="worldsize-fuzz-") as folder:
        make, clean = KINDS_OF_INPUT[name](Path(folder))
        return fuzz(make, count, seed, clean)


if __name__ == "__main__":
    failures = run(int(sys.argv[1]) if len(sys.argv) > 1 else 1, float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
    print("\n\n".join(failures))
    sys.exit(bool(failures))
