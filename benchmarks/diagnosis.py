"""Whether the first advice names what was planted, and whether the gain holds that it promises: a real study for each.

Each case has one cause. It is studied with the cause and without: what was gained must be at most what was promised.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import keep, say

HERE = Path(__file__).parent
BUDGET = ("--budget", "45s")
TWO = ("--strategies", "single,ddp", "--world-sizes", "1,2")
SOUND = "nothing"
AT_MOST = 1.05
"""A bound holds if no more than 5 % beyond it was gained: so much do two runs differ by."""


@dataclass(frozen=True)
class Case:
    """A cause, and which advice names it."""

    name: str
    cause: str
    """For $WORLDSIZE_PLANTED."""
    right: tuple[str, ...]
    """The codes of first advice that name it; of a sound case none."""
    flags: tuple[str, ...] = TWO
    says: str = ""
    """What its finding must say, too: the rank, or the part."""
    near: tuple[str, ...] = ()
    """Codes that are not wrong, and not the point."""
    cure: tuple[str, ...] | None = None
    """The flags without the cause, where it lies in the flags."""
    neighbour: bool = False
    """Whether another process computes on the last core meanwhile."""


HOSTS = ("--hosts", "2", "--link")
LINK = (*TWO, *HOSTS)
ONE_BY_ONE = ("--strategies", "single,all-reduce", "--world-sizes", "1,2")
CASES = (
    Case("nothing, ddp", "", ()),
    Case("nothing, all-reduce", "", (), ONE_BY_ONE),
    Case("nothing, bucketed", "", (), ("--strategies", "single,bucketed", "--world-sizes", "1,2")),
    Case("rank 1, 30 ms in forward", "forward:1:30", ("slow-rank",), says="ank 1"),
    Case("rank 0, 30 ms in forward", "forward:0:30", ("slow-rank",), says="ank 0"),
    Case("rank 1, 10 ms in forward", "forward:1:10", ("slow-rank",), says="ank 1"),
    Case("rank 0, 25 ms in backward", "backward:0:25", ("slow-rank",), says="backward"),
    Case("rank 1, 25 ms in the optimizer", "optimizer:1:25", ("slow-rank",), says="optimizer"),
    Case("rank 1, 30 ms for each batch", "data:1:30", ("slow-rank",), says="data wait", near=("input-bound",)),
    Case("rank 0, 15 ms for each batch", "data:0:15", ("slow-rank",), says="data wait", near=("input-bound",)),
    Case("all ranks, 20 ms for each batch", "data:all:20", ("input-bound",)),
    Case("all ranks, 8 ms for each batch", "data:all:8", ("input-bound",)),
    Case("a link of 100 Mbit/s", "large", ("bandwidth-bound",), (*LINK, "100mbit"), cure=TWO),
    Case("a link of 300 Mbit/s", "large", ("bandwidth-bound",), (*LINK, "300mbit"), cure=TWO),
    Case(
        "rank 1, 20 ms, over 200 Mbit/s",
        "forward:1:20",
        ("slow-rank",),
        (*LINK, "200mbit"),
        says="ank 1",
    ),
    Case(
        "200 small gradients over a link with 1 ms of delay",
        "many",
        ("latency-bound",),
        (*ONE_BY_ONE, *HOSTS, "1gbit", "--link-latency", "1ms"),
        cure=(*ONE_BY_ONE, *HOSTS, "1gbit"),
    ),
    Case(
        "many small gradients, one by one",
        "many",
        ("latency-bound", "communication-bound"),
        ONE_BY_ONE,
        cure=TWO,
    ),
    Case("buffers of 16 MB", "buffers", ("communication-bound", "bandwidth-bound"), (*LINK, "300mbit"), cure=TWO),
    Case("every 10 steps, 200 ms", "stall:all:200", ("periodic-stall",)),
    Case("every 10 steps, 200 ms on rank 0", "stall:0:200", ("periodic-stall", "slow-rank"), says="10 steps"),
    Case(
        "more threads than cores", "none", ("oversubscribed",), (*TWO, "--threads-per-worker", str(os.cpu_count() or 2))
    ),
    Case("a neighbour on the last core", "", ("slow-rank",), neighbour=True, says="ores are slower"),
)


def run(data_dir: str | None) -> None:
    """Study all cases and print which advice came first, and what the gains were."""
    say("")
    found = []
    for case in CASES:
        say(f"  {case.name} …")
        found.append(_tried(case))
    print("the first advice on a planted cause, and the gain without it")
    for each in found:
        print(f"  {each['verdict']:6} {each['case']}: {each['first']}{each['gains']}")
    count = {kind: sum(each["verdict"] == kind for each in found) for kind in ("right", "near", "wrong", "silent")}
    holds = [each["holds"] for each in found if each["holds"] is not None]
    print(f"  {count}; {sum(holds)} of {len(holds)} bounds held")
    keep("diagnosis", {"cases": found})


def _tried(case: Case) -> dict[str, Any]:
    with _neighbour() if case.neighbour else _nobody():
        sick = _study(case.cause, case.flags)
    advice = sick["advice"]
    first = advice[0] if advice else None
    holds, gains = None, ""
    if case.right and first and first["code"] in case.right and first["gain"] and first["gain"]["at_most"]:
        without = case.cause if case.cure or not case.cause else "none"
        well = _study(without, case.cure or case.flags)
        gained, bound = _rate(well) / _rate(sick), first["gain"]["high"] or first["gain"]["value"]
        holds, gains = gained <= AT_MOST * bound, f"; at most {bound:.2f} promised, {gained:.2f} gained"
    return {
        "case": case.name,
        "first": first["finding"] if first else "no advice",
        "codes": [each["code"] for each in advice],
        "verdict": judged(case, first),
        "holds": holds,
        "gains": gains,
        "verdict_text": sick["verdict"],
    }


def judged(case: Case, first: dict[str, Any] | None) -> str:
    """`right`, `near`, `wrong` or `silent`."""
    if first is None:
        return "silent" if case.right else "right"
    told = first["finding"] + first["cause"]
    if first["code"] in case.right and case.says in told:
        return "right"
    return "near" if first["code"] in (*case.near, *case.right) else "wrong"


def _rate(found: dict[str, Any]) -> float:
    """Samples/s of the cell with several workers."""
    return max(float(row["samples_per_s"]) for row in found["results"] if row["world_size"] > 1)


def _study(cause: str, flags: tuple[str, ...]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        workload = (
            "--workload",
            f"{HERE / 'diagnosis_workload.py'}:Planted",
            "--batch-sizes",
            "8" if cause else "1024",
        )
        threads = () if "--threads-per-worker" in flags else ("--threads-per-worker", "1")
        command = (sys.executable, "-m", "worldsize", "study", *workload, *flags, *threads, *BUDGET)
        done = subprocess.run(
            [*command, "--out", f"{folder}/run", "--json"],
            env={**os.environ, "WORLDSIZE_PLANTED": cause},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def _neighbour() -> Iterator[None]:
    """Another process that computes on the last core."""
    last = max(os.sched_getaffinity(0))
    code = f"import os\nos.sched_setaffinity(0, {{{last}}})\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


@contextmanager
def _nobody() -> Iterator[None]:
    yield
