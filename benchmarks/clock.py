"""What a study says a step takes, beside the wall clock of the person's own launcher: eight kinds of scripts.

The clock counts optimizer steps of `python SCRIPT` and of `torchrun SCRIPT` with one and two processes, and puts
nothing else into them (step_clock.py). Clock and studies take turns, the clock first and last, so that a machine whose
speed changes for minutes does so for both: each study is compared with the readings just before and after it.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import keep, say
from worldsize.analysis.decision import decision
from worldsize.analysis.headline import headline
from worldsize.analysis.pays import Workers
from worldsize.analysis.study import analyse
from worldsize.errors import WorldsizeError
from worldsize.results.folder import load_run

HERE = Path(__file__).parent
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
LAUNCHERS: dict[str, tuple[str, ...]] = {"python": (sys.executable,), "1": (*TORCHRUN, "1"), "2": (*TORCHRUN, "2")}
"""Cells → how a person starts them: python with all cores, torchrun with one process and with two."""
CADENCES = {
    "loader_processes": 1,
    "evaluation": 25,
    "checkpoints": 20,
    "accumulation": 1,
    "trainer": 1,
    "short_steps": 1,
    "long_steps": 1,
    "fsdp2": 1,
}
"""Scripts → after how many steps something recurs in them: the clock counts whole rounds of that."""
CLOCK_S, BUDGET_S, STUDIES = 6.0, 45.0, 3
"""How long the clock counts steps of one run, what each study may take, and how many studies of a script there are."""
OF_SHELL = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What another command may have set for the benchmark, and no person has set."""


@dataclass(frozen=True)
class Said:
    """What a study says of two processes: which is faster, and the interval of their speed-up over python."""

    workers: Workers
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Comparison:
    """Milliseconds per step of one script, by cell: readings of the clock, and studies, each between two of them."""

    clock_ms: dict[str, list[float]] = field(default_factory=dict)
    study_ms: dict[str, list[float]] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)
    """What each study says of two processes."""
    problems: list[str] = field(default_factory=list)
    """Why there is no further study."""

    @property
    def differences(self) -> dict[str, float]:
        """What studies say ÷ what the clock says − 1: of each study to the readings around it, the median study.

        The median, as the threads of one process spin while they wait for each other: where another process takes a
        core for a while, such a run takes twenty times as long, and would be all of a mean.
        """
        return {
            cell: statistics.median(
                ms / statistics.mean(self.clock_ms[cell][at : at + 2]) for at, ms in enumerate(studies)
            )
            - 1
            for cell, studies in self.study_ms.items()
        }

    @property
    def signs_agree(self) -> list[bool]:
        """For each study that tells whether two processes are faster: whether they are by the clock, all readings."""
        by_clock = statistics.median(speed_ups(self.clock_ms))
        told = [said.workers for said in self.said if said.workers not in ("open", "even")]
        return [(by_clock > 1) == (workers == "several") for workers in told]

    def as_json(self) -> dict[str, Any]:
        """What is kept."""
        return {
            "clock_ms": self.clock_ms,
            "study_ms": self.study_ms,
            "difference": self.differences,
            "speed_up": {
                "clock": speed_ups(self.clock_ms),
                "study": speed_ups(self.study_ms),
                "study_interval": [(said.low, said.high) for said in self.said],
            },
            "said": [said.workers for said in self.said],
            "signs_agree": self.signs_agree,
            "problems": self.problems,
        }


def speed_ups(ms: dict[str, list[float]]) -> list[float]:
    """Samples per second of two processes ÷ those of python with all cores, reading by reading."""
    return [2 * alone / two for alone, two in zip(ms.get("python", ()), ms.get("2", ()), strict=True)]


def run(data_dir: str | None) -> None:
    """Measure, print and keep, script by script."""
    found: dict[str, Comparison] = {}
    with tempfile.TemporaryDirectory(prefix="worldsize-") as folder:
        scripts = Path(folder) / "scripts"  # a copy: they write where they lie
        shutil.copytree(HERE / "clock", scripts, ignore=shutil.ignore_patterns("__pycache__"))
        for name in CADENCES:
            say(f"  {name} …")
            found[name] = _compared(scripts / f"{name}.py", Path(folder) / f"study-{name}")
            keep("clock", {"clock_s": CLOCK_S, "budget_s": BUDGET_S, **_over_all(found)})
    _print(found)


def _compared(script: Path, out: Path) -> Comparison:
    """The clock, and in turn with it the studies."""
    found = Comparison()
    _read_clock(script, tuple(LAUNCHERS), found)
    for number in range(STUDIES):
        try:
            study_ms = studied(script, out / str(number), BUDGET_S)
            said = said_of(out / str(number))
        except (RuntimeError, LookupError, WorldsizeError) as error:  # the other scripts are compared all the same
            found.problems.append(str(error))
            say(f"    {error}")
            break
        for cell in LAUNCHERS:
            found.study_ms.setdefault(cell, []).append(study_ms[cell])
        found.said.extend(() if said is None else (said,))
        say("    study: " + ", ".join(f"{cell}: {ms:.2f}" for cell, ms in study_ms.items()))
        _read_clock(script, tuple(LAUNCHERS)[:: (1, -1)[number % 2]], found)
    return found


def _read_clock(script: Path, cells: Iterable[str], into: Comparison) -> None:
    """Read the clock once in each cell, in this order."""
    for cell in cells:
        into.clock_ms.setdefault(cell, []).append(_clocked_once(script, cell))
        say(f"    {cell}: {into.clock_ms[cell][-1]:.2f} ms by the clock")


def _clocked_once(script: Path, cell: str) -> float:
    threads = {"OMP_NUM_THREADS": "1"} if cell == "1" else {}  # of two processes torchrun sets it itself
    return clocked(LAUNCHERS[cell], script, cadence=CADENCES[script.stem], **threads)


def clocked(launcher: Iterable[str], script: Path, *arguments: str, cadence: int = 1, **variables: str) -> float:
    """Milliseconds per step of a script by the wall clock, started in its folder as a person would start it."""
    file = script.with_name("clock.json")
    file.unlink(missing_ok=True)
    settings = {"CLOCK_S": str(CLOCK_S), "CLOCK_CADENCE": str(cadence), "CLOCK_FILE": str(file)}
    command = [*launcher, str(HERE / "step_clock.py"), script.name, *arguments]
    environment = shell_environment() | settings | variables
    done = subprocess.run(
        command, cwd=script.parent, env=environment, check=False, capture_output=True, text=True, errors="replace"
    )
    if not file.exists():
        raise RuntimeError(f"{script.name} ended without a time: {done.stderr}")
    counted = json.loads(file.read_text(encoding="utf-8"))
    return 1e3 * float(counted["elapsed_s"]) / int(counted["steps"])


def studied(script: Path, out: Path, budget_s: float) -> dict[str, float]:
    """What `worldsize study` says a step takes in each cell, in milliseconds; RuntimeError where it breaks."""
    command = [sys.executable, "-m", "worldsize", "study", "--world-sizes", "1,2"]
    command += ["--budget", f"{budget_s:g}s", "--out", str(out), script.name]
    done = subprocess.run(
        command,
        cwd=script.parent,
        env=shell_environment(),
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise RuntimeError(f"the study of {script.name} ended with {done.returncode}: {done.stderr[-2000:]}")
    name = script.stem.replace("_", "-")
    names = {(f"{name}-python", 1): "python", (name, 1): "1", (name, 2): "2"}
    found: dict[str, float] = {}
    for cell in load_run(out).cells.values():
        known = names.get((cell.record.strategy, cell.record.world_size))
        if known is not None and cell.record.summary is not None:
            found[known] = 1e3 * cell.record.summary.step_s.value
    if missing := set(LAUNCHERS) - set(found):
        raise LookupError(f"the study of {script.name} timed nothing of {', '.join(sorted(missing))}")
    return found


def said_of(out: Path) -> Said | None:
    """What a study of python and two processes says of these; None where it compares nothing."""
    analysis = analyse(load_run(out))
    found, answer = headline(analysis), decision(analysis)
    if found is None or found.scaling.speedup is None or answer is None:
        return None
    return Said(answer.workers, found.scaling.speedup.estimate.low, found.scaling.speedup.estimate.high)


def shell_environment() -> dict[str, str]:
    """That of a shell in which this Python's `python` and `torchrun` are found."""
    bare = {name: value for name, value in os.environ.items() if name not in OF_SHELL}
    return bare | {"PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))}


def _over_all(found: dict[str, Comparison]) -> dict[str, Any]:
    sizes = [abs(each) for comparison in found.values() for each in comparison.differences.values()]
    signs = [agrees for comparison in found.values() for agrees in comparison.signs_agree]
    return {
        "median_difference": statistics.median(sizes) if sizes else None,
        "largest_difference": max(sizes, default=None),
        "studies": sum(len(comparison.said) for comparison in found.values()),
        "signs_told": len(signs),
        "signs_wrong": signs.count(False),
        "scripts": {name: comparison.as_json() for name, comparison in found.items()},
    }


def _print(found: dict[str, Comparison]) -> None:
    print(f"clock: ms per step by the clock ({CLOCK_S:g} s a run) and by studies of {BUDGET_S:g} s, in turn")
    for name, comparison in found.items():
        for cell, runs in comparison.clock_ms.items():
            studies = _listed(comparison.study_ms.get(cell, ()))
            difference = f"{comparison.differences[cell]:+.1%}" if cell in comparison.differences else "unknown"
            print(f"  {name}, {cell}: {_listed(runs)} by the clock, {studies} by studies: {difference}")
        clock, study = (_listed(speed_ups(ms)) for ms in (comparison.clock_ms, comparison.study_ms))
        told = ", ".join(said.workers for said in comparison.said)
        wrong = " (WRONG)" if False in comparison.signs_agree else ""
        print(f"    speed-up of two processes over python: {clock} by the clock, {study} by studies: {told}{wrong}")
    whole = _over_all(found)
    if whole["median_difference"] is not None:
        print(f"  difference: median {whole['median_difference']:.1%}, largest {whole['largest_difference']:.1%}")
    told, wrong = whole["signs_told"], whole["signs_wrong"]
    print(f"  {told} of {whole['studies']} studies say whether two processes are faster; wrong: {wrong}")


def _listed(values: Iterable[float]) -> str:
    return " ".join(f"{each:.2f}" for each in values) or "nothing"


if __name__ == "__main__":
    run(None)
