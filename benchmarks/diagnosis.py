"""Whether the first advice names what was planted, and whether the gain holds that it promises: a real study for each.

Each case has one cause. It is studied with the cause and without: what was gained must be at most what was promised.
The commands that the advice prints are run as they stand, one of each kind. About 30 minutes on two cores, as root for
the cases with emulated links. $DIAGNOSIS_CASES (names, separated by semicolons) measures only these again, without
commands, and leaves the others as they were kept; each case has the commit at which it was measured.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import RESULTS, keep, say
from worldsize.measure.machine import provenance

HERE = Path(__file__).parent
BUDGET = ("--budget", "30s")
TWO = ("--strategies", "single,ddp", "--world-sizes", "1,2")
AT_MOST = 1.05
"""A bound holds if no more than 5 % beyond it was gained: so much do two runs differ by."""
NOISE = ("too-noisy",)
"""Said beside a cause, not in place of one; in a sound case it is no finding."""


@dataclass(frozen=True)
class Case:
    """A cause, and which advice names it."""

    name: str
    cause: str
    """For $WORLDSIZE_PLANTED."""
    right: tuple[str, ...]
    """The codes of first advice that name it; of a sound case none."""
    flags: tuple[str, ...] = TWO
    says: tuple[str, ...] = ("",)
    """One of these its finding or its cause must say, too: the rank, the part, what was seen of the cause."""
    near: tuple[str, ...] = ()
    """Codes that are not wrong, and not the point."""
    cure: tuple[str, ...] | None = None
    """The flags without the cause, where it lies in the flags."""
    neighbour: bool = False
    """Whether another process computes on the last core meanwhile."""
    script: str = ""
    """A script in place of the workload."""


HOSTS = ("--hosts", "2", "--link")
LINK = (*TWO, *HOSTS)
ONE_BY_ONE = ("--strategies", "single,all-reduce", "--world-sizes", "1,2")
ROOT = ("--strategies", "single,gather-scatter", "--world-sizes", "1,4", "--hosts", "4", "--link", "300mbit")
FOUR = ("--strategies", "single,ddp", "--world-sizes", "1,4", "--hosts", "4", "--link", "300mbit")
MORE = ("--allow-oversubscribed",)
BATCHES = ("--batch-sizes", "8,32")
SMALL = ("batch-too-small",)
"""True of a model that computes next to nothing."""
BUSY = ("Other work uses the cores", "cores there are slower or busier")
CORES = str(os.cpu_count() or 2)
CASES = (
    Case("nothing, ddp", "sound", (), near=SMALL),
    Case("nothing, all-reduce", "sound", (), ONE_BY_ONE, near=SMALL),
    Case("nothing, bucketed", "sound", (), ("--strategies", "single,bucketed", "--world-sizes", "1,2"), near=SMALL),
    Case("rank 1 sleeps 30 ms in forward", "forward:1:30", ("slow-rank",), says=("ank 1",)),
    Case("rank 0 sleeps 30 ms in forward", "forward:0:30", ("slow-rank",), says=("ank 0",)),
    Case("rank 1 sleeps 10 ms in forward", "forward:1:10", ("slow-rank",), says=("nothing is computed there",)),
    Case("rank 1 computes 25 ms more", "compute:1:25", ("slow-rank",), says=("More is done there",)),
    Case("rank 0 sleeps 25 ms in backward", "backward:0:25", ("slow-rank",), says=("backward",)),
    Case("rank 1 sleeps 25 ms in the optimizer", "optimizer:1:25", ("slow-rank",), says=("optimizer",)),
    Case("rank 1, 30 ms for each batch", "data:1:30", ("slow-rank",), says=("data wait",), near=("input-bound",)),
    Case("rank 0, 15 ms for each batch", "data:0:15", ("slow-rank",), says=("data wait",), near=("input-bound",)),
    Case("all ranks, 20 ms for each batch", "data:all:20", ("input-bound",)),
    Case("all ranks, 8 ms for each batch", "data:all:8", ("input-bound",)),
    Case(
        "several workers sleep 15 ms in forward", "forward:several:15", ("compute-slower",), says=("neither compute",)
    ),
    Case("a link of 100 Mbit/s", "large", ("bandwidth-bound",), (*LINK, "100mbit"), cure=TWO),
    Case("a link of 300 Mbit/s", "large", ("bandwidth-bound",), (*LINK, "300mbit"), cure=TWO),
    Case("one huge parameter, 1 Gbit/s", "huge", ("bandwidth-bound",), (*LINK, "1gbit"), cure=TWO),
    Case("rank 1, 20 ms, over 200 Mbit/s", "forward:1:20", ("slow-rank",), (*LINK, "200mbit"), says=("ank 1",)),
    Case("many small gradients, one by one", "many", ("latency-bound", "communication-bound"), ONE_BY_ONE, cure=TWO),
    Case("buffers of 16 MB", "buffers", ("communication-bound", "bandwidth-bound"), (*LINK, "300mbit"), cure=TWO),
    Case("the root of gather and scatter", "large", ("root-bound",), (*ROOT, *MORE), cure=(*FOUR, *MORE)),
    Case(
        "buckets far too large",
        "deep",
        ("overlap-incomplete",),
        (*LINK, "600mbit", "--bucket-mb", "100"),
        cure=(*LINK, "600mbit", "--bucket-mb", "0.5"),
    ),
    Case(
        "buckets far too small",
        "many",
        ("latency-bound",),
        (*LINK, "1gbit", "--bucket-mb", "0.001"),
        cure=(*LINK, "1gbit"),
    ),
    Case("a batch too small", "none", ("batch-too-small",), (*TWO, *BATCHES), near=("memory-headroom",)),
    Case("every 10 steps, 200 ms", "stall:all:200", ("periodic-stall",)),
    Case("every 10 steps, 200 ms on rank 0", "stall:0:200", ("periodic-stall",), says=("rank 0",)),
    Case("garbage collection every 10 steps, 200 ms", "garbage:all:200", ("periodic-stall",), says=("garbage",)),
    Case("something after each step of several workers", "", ("other-work",), script="diagnosis_script.py"),
    Case("more threads than cores", "none", ("oversubscribed",), (*TWO, "--threads-per-worker", CORES)),
    Case(
        "a neighbour on the last core",
        "computing",
        ("slow-rank",),
        neighbour=True,
        says=("Other work uses the cores", "cores there are slower or busier"),
    ),
)


def run(data_dir: str | None) -> None:
    """Study all cases; print which advice came first, what the gains were, and whether each command runs."""
    say("")
    well, tried = _Well(), _Tried()
    found: list[dict[str, Any]] = []
    only = [name for name in os.environ.get("DIAGNOSIS_CASES", "").split(";") if name]
    for case in CASES:
        if only and case.name not in only:
            continue
        say(f"  {case.name} …")
        try:
            found.append(_found(case, well, None if only else tried))
        except NotStudiedError as error:
            print(f"  {case.name}: not measured: {error}")
            continue
        last = found[-1]
        say(f"    {last['verdict']}: {last['first']}{last['gains']}")
    kept = _kept()
    now = {each["case"]: {**each, "commit": provenance([]).commit} for each in found}
    found = [each for case in CASES if (each := now.get(case.name, kept["cases"].get(case.name)))]
    print("the first advice on a planted cause, and the gain without it")
    for each in found:
        print(f"  {each['verdict']:6} {each['case']}: {each['first']}{each['gains']}")
    count = {kind: sum(each["verdict"] == kind for each in found) for kind in ("right", "near", "wrong", "silent")}
    holds = [each["holds"] for each in found if each["holds"] is not None]
    print(f"  {count}; {sum(holds)} of {len(holds)} bounds held")
    for code, command in tried.failed.items():
        print(f"  the command of {code} failed: {command}")
    print(f"  {len(tried.codes) - len(tried.failed)} of {len(tried.codes)} commands ran, one of each kind of advice")
    commands = kept["commands"] | {code: code not in tried.failed for code in sorted(tried.codes)}
    keep("diagnosis", {"cases": found, "count": count, "commands": commands})


def _kept() -> dict[str, dict[str, Any]]:
    """Cases by their names, and commands, of the kept result."""
    file = RESULTS / "diagnosis.json"
    content = json.loads(file.read_text()) if file.exists() else {"cases": [], "commands": {}}
    return {"cases": {each["case"]: each for each in content["cases"]}, "commands": content["commands"]}


def _found(case: Case, well: "_Well", tried: "_Tried | None") -> dict[str, Any]:
    with _neighbour() if case.neighbour else _nobody():
        sick = _study(case.cause, case.flags, case.script)
        if tried is not None:
            for each in sick["advice"]:
                tried.run(each["code"], each["command"], case.cause)
    advice = sick["advice"]
    first = advice[0] if advice else None
    holds, gains = None, ""
    if case.right and first and first["code"] in case.right and first["gain"] and first["gain"]["at_most"]:
        gained = well.rate(case) / _rate(sick)
        bound = first["gain"]["high"] or first["gain"]["value"]
        holds, gains = gained <= AT_MOST * bound, f"; at most {bound:.2f} promised, {gained:.2f} gained"
    return {
        "case": case.name,
        "first": first["finding"] if first else "no advice",
        "cause": first["cause"] if first else "",
        "codes": [each["code"] for each in advice],
        "verdict": judged(case, advice),
        "holds": holds,
        "gains": gains,
        "verdict_text": sick["verdict"],
    }


def judged(case: Case, advice: list[dict[str, Any]]) -> str:
    """`right`, `near`, `wrong` or `silent`."""
    first = advice[0] if advice else None
    if not case.right:
        return "right" if all(each["code"] in (*NOISE, *case.near) for each in advice) else "wrong"
    if first is None:
        return "silent"
    if first["code"] in case.right and any(words in first["finding"] + first["cause"] for words in case.says):
        return "right"
    return "near" if first["code"] in (*case.near, *case.right) else "wrong"


class NotStudiedError(Exception):
    """The study of a case failed: this machine has not what it needs, such as root for emulated links."""


class _Well:
    """What is reached without the cause. Several cases are the same without it; they sleep, and differ by little."""

    def __init__(self) -> None:
        self._rates: dict[tuple[str, ...], float] = {}

    def rate(self, case: Case) -> float:
        """Samples/s of several workers."""
        if case.script:
            found = _study("none", TWO)  # the same sleep, and nothing after it
            return _rate(found)
        same = case.cure or case.neighbour  # what is taken away is not in the workload
        cause = case.cause if same else "none"
        key = (cause, *(case.cure or case.flags))
        if key not in self._rates:
            self._rates[key] = _rate(_study(cause, case.cure or case.flags))
        return self._rates[key]


class _Tried:
    """Commands of the advice as they were printed, one of each kind of advice."""

    def __init__(self) -> None:
        self.codes: set[str] = set()
        self.failed: dict[str, str] = {}

    def run(self, code: str, command: str | None, cause: str) -> None:
        """Run it where it is the first of its kind."""
        if command is None or code in self.codes:
            return
        self.codes.add(code)
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, "-m", *shlex.split(command)]
            done = subprocess.run(words, cwd=folder, env=_planted(cause), capture_output=True, text=True, check=False)
        if done.returncode:
            self.failed[code] = f"{command}: {done.stderr[-500:]}"


def _rate(found: dict[str, Any]) -> float:
    """Samples/s of the cell with several workers."""
    return max(float(row["samples_per_s"]) for row in found["results"] if row["world_size"] > 1)


def _planted(cause: str) -> dict[str, str]:
    return {**os.environ, "WORLDSIZE_PLANTED": cause}


def _study(cause: str, flags: tuple[str, ...], script: str = "") -> dict[str, Any]:
    if script:
        what: tuple[str, ...] = ("--script", str(HERE / script), "--world-sizes", "1,2")
    else:
        what = ("--workload", f"{HERE / 'diagnosis_workload.py'}:Planted", *flags)
        if "--batch-sizes" not in flags:
            what += ("--batch-sizes", "8")
    if "--threads-per-worker" not in flags:
        what += ("--threads-per-worker", "1")
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "worldsize", "study", *what, *BUDGET, "--out", f"{folder}/run", "--json")
        done = subprocess.run(command, env=_planted(cause), capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotStudiedError(done.stderr.strip().splitlines()[-1])
        if kept := os.environ.get("WORLDSIZE_KEEP_STUDIES"):  # for somebody who reads their pages
            place = Path(kept) / f"{len(list(Path(kept).glob('*'))):02}"
            shutil.copytree(Path(json.loads(done.stdout)["report"]).parent, place)
            (place / "PLANTED").write_text(f"{cause} {' '.join(flags)} {script}\n")
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
