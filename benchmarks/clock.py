"""What a study says a step takes, beside the wall clock of the person's own launcher: eight kinds of scripts.

The clock counts optimizer steps of `python SCRIPT` and of `torchrun SCRIPT` with one and two processes, and puts
nothing else into them (step_clock.py). It is read in rounds there and back, two before the study and two after it, so
that a machine that drifts does so in all of them. A study starts each cell several times, and so does the clock.
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
from worldsize.analysis.decision import Workers, decision
from worldsize.analysis.headline import headline
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
CLOCK_S, BUDGET_S = 6.0, 60.0
"""How long the clock counts steps of one run, and what each study may take."""
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
    """Milliseconds per step of one script, by cell: each run by the clock, and what the study says."""

    clock_ms: dict[str, list[float]]
    study_ms: dict[str, float] = field(default_factory=dict)
    said: Said | None = None
    """What the study says of two processes."""
    problem: str | None = None
    """Why there is no study."""

    @property
    def middle_ms(self) -> dict[str, float]:
        """The median run of each cell by the clock.

        The threads of one process spin while they wait for each other: where another process takes a core for a while,
        such a run takes twenty times as long, and would be all of a mean.
        """
        return {cell: statistics.median(runs) for cell, runs in self.clock_ms.items()}

    @property
    def differences(self) -> dict[str, float]:
        """What the study says ÷ what the clock says − 1."""
        return {cell: ms / self.middle_ms[cell] - 1 for cell, ms in self.study_ms.items()}

    @property
    def clock_speed_ups(self) -> list[float]:
        """`speed_up` by the clock, in each of its rounds."""
        return [2 * alone / two for alone, two in zip(self.clock_ms["python"], self.clock_ms["2"], strict=True)]

    @property
    def signs_agree(self) -> bool | None:
        """Whether what the study says of two processes is so by the clock; None where it says that it is not known."""
        by_clock = speed_up(self.middle_ms)
        if self.said is None or by_clock is None or self.said.workers in ("open", "even"):
            return None
        return (by_clock > 1) == (self.said.workers == "several")

    def as_json(self) -> dict[str, Any]:
        """What is kept."""
        return {
            "clock_ms": self.clock_ms,
            "study_ms": self.study_ms,
            "difference": self.differences,
            "speed_up": {
                "clock": speed_up(self.middle_ms),
                "clock_rounds": self.clock_speed_ups,
                "study": speed_up(self.study_ms),
                "study_interval": None if self.said is None else (self.said.low, self.said.high),
            },
            "said": None if self.said is None else self.said.workers,
            "signs_agree": self.signs_agree,
            "problem": self.problem,
        }


def speed_up(ms: dict[str, float]) -> float | None:
    """Samples per second of two processes ÷ those of python with all cores; None where one is unknown."""
    return 2 * ms["python"] / ms["2"] if {"python", "2"} <= set(ms) else None


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
    """The clock, the study, the clock again."""
    there, back = tuple(LAUNCHERS), tuple(reversed(LAUNCHERS))
    before, problem, study_ms, said = clocked(script, (*there, *back)), None, {}, None
    try:
        study_ms = studied(script, out, BUDGET_S)
        said = said_of(out)
    except (RuntimeError, LookupError, WorldsizeError) as error:  # the other scripts are compared all the same
        problem = str(error)
        say(f"    {problem}")
    after = clocked(script, (*there, *back))
    return Comparison({cell: [*before[cell], *after[cell]] for cell in LAUNCHERS}, study_ms, said, problem)


def clocked(script: Path, cells: Iterable[str]) -> dict[str, list[float]]:
    """Milliseconds per step of each cell by the clock alone, in this order."""
    found: dict[str, list[float]] = {}
    for cell in cells:
        found.setdefault(cell, []).append(_clocked_once(script, cell))
        say(f"    {cell}: {found[cell][-1]:.2f} ms by the clock")
    return found


def _clocked_once(script: Path, cell: str) -> float:
    file = script.with_name("clock.json")
    file.unlink(missing_ok=True)
    settings = {"CLOCK_S": str(CLOCK_S), "CLOCK_CADENCE": str(CADENCES[script.stem]), "CLOCK_FILE": str(file)}
    threads = {"OMP_NUM_THREADS": "1"} if cell == "1" else {}  # of two processes torchrun sets it itself
    command = [*LAUNCHERS[cell], str(HERE / "step_clock.py"), script.name]
    environment = _environment() | settings | threads
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
        command, cwd=script.parent, env=_environment(), check=False, capture_output=True, text=True, errors="replace"
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
    if not found:
        raise LookupError(f"the study of {script.name} timed none of {', '.join(name for name, _ in names)}")
    return found


def said_of(out: Path) -> Said | None:
    """What a study of python and two processes says of these; None where it compares nothing."""
    analysis = analyse(load_run(out))
    found, answer = headline(analysis), decision(analysis)
    if found is None or found.scaling.speedup is None or answer is None:
        return None
    return Said(answer.workers, found.scaling.speedup.estimate.low, found.scaling.speedup.estimate.high)


def _environment() -> dict[str, str]:
    """That of a shell in which this Python's `python` and `torchrun` are found."""
    bare = {name: value for name, value in os.environ.items() if name not in OF_SHELL}
    return bare | {"PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))}


def _over_all(found: dict[str, Comparison]) -> dict[str, Any]:
    sizes = [abs(each) for comparison in found.values() for each in comparison.differences.values()]
    return {
        "median_difference": statistics.median(sizes) if sizes else None,
        "largest_difference": max(sizes, default=None),
        "signs_told": sum(comparison.signs_agree is not None for comparison in found.values()),
        "signs_wrong": sum(comparison.signs_agree is False for comparison in found.values()),
        "scripts": {name: comparison.as_json() for name, comparison in found.items()},
    }


def _print(found: dict[str, Comparison]) -> None:
    print(f"clock: ms per step by the clock ({CLOCK_S:g} s a run) and by a study of {BUDGET_S:g} s")
    for name, comparison in found.items():
        for cell, runs in comparison.clock_ms.items():
            clock = f"{comparison.middle_ms[cell]:.2f} ({min(runs):.2f} to {max(runs):.2f})"
            print(f"  {name}, {cell}: {clock} by the clock, {_by_study(comparison, cell)}")
        rounds, study = comparison.clock_speed_ups, speed_up(comparison.study_ms)
        clock = f"{speed_up(comparison.middle_ms) or 0:.2f} ({min(rounds):.2f} to {max(rounds):.2f})"
        agree = {True: "they agree", False: "they DISAGREE", None: "it says that this is not known"}
        said, interval = "unknown" if study is None else f"{study:.2f}", comparison.said
        if interval is not None and interval.low is not None and interval.high is not None:
            said += f" [{interval.low:.2f}, {interval.high:.2f}]"
        told = agree[comparison.signs_agree]
        print(f"    speed-up of two processes over python: {clock} by the clock, {said} by the study: {told}")
    whole = _over_all(found)
    if whole["median_difference"] is not None:
        print(f"  difference: median {whole['median_difference']:.1%}, largest {whole['largest_difference']:.1%}")
    print(f"  a study says which is faster in {whole['signs_told']} of {len(found)}, wrong: {whole['signs_wrong']}")


def _by_study(comparison: Comparison, cell: str) -> str:
    if cell not in comparison.study_ms:
        return "unknown by the study"
    return f"{comparison.study_ms[cell]:.2f} by the study ({comparison.differences[cell]:+.1%})"


if __name__ == "__main__":
    run(None)
