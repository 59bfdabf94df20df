"""A few of the planted causes of `benchmarks/run.py diagnosis`, for real: the first advice names what was planted.

The steps sleep, so that nothing but the cause tells them apart; the whole list takes most of an hour.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from commands import worldsize
from repeated import Repeated

WORKLOAD = Path(__file__).parents[2] / "benchmarks" / "diagnosis_workload.py"
STUDY = ("--strategies", "single,ddp", "--world-sizes", "1,2", "--batch-sizes", "8", "--threads-per-worker", "1")


@pytest.mark.parametrize(
    ("planted", "code", "finding", "cause"),
    [
        ("forward:1:30", "slow-rank", "Rank 1 (", "nothing is computed there"),
        ("garbage:all:200", "periodic-stall", "in place of", "Python collects garbage"),
        ("forward:several:20", "compute-slower", "Forward, backward and optimizer", "neither compute nor wait"),
    ],
)
def test_the_first_advice_is_the_planted_cause(
    tmp_path: Path, planted: str, code: str, finding: str, cause: str
) -> None:
    def measure() -> dict[str, Any]:
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        what = ("--workload", f"{WORKLOAD}:Planted", *STUDY, "--budget", "24s", "--out", out, "--json")
        done = worldsize("study", *what, cwd=tmp_path, WORLDSIZE_PLANTED=planted)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def holds(found: dict[str, Any]) -> None:
        first = found["advice"][0]
        assert first["code"] == code, first
        assert finding in first["finding"]
        assert cause in first["cause"]

    Repeated(measure).check(holds)
