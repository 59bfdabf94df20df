"""What a study of a model says of one worker and of two, beside the wall clock of the loop that a person would write.

The clock counts steps of plain_classifier.py as `python` starts it, with all cores, at b and 2·b, and as `torchrun`
starts it twice with b. A study of the same model takes turns with it. What a study adds of its own (memory settings,
cores for each worker, its loader) is in the difference: the question is whether its first answer is the clock's.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clock import CLOCK_S, HERE, LAUNCHERS, Said, clocked, said_of, shell_environment
from common import keep, say
from worldsize.results.folder import load_run
from worldsize.traits import ALL_CORES

BATCHES = {"convolutions": 32, "large_layers": 16, "resnet18": 8}
"""Models of plain_models.py → local batch b."""
OURS = ("resnet18",)
"""Those that a study builds itself."""
BUDGET_S, STUDIES = 60.0, 3
CELLS = ("python, b", "python, 2·b", "torchrun 2, b")


@dataclass(frozen=True)
class ModelComparison:
    """Samples per second of one model, by cell: readings of the clock, and studies, each between two of them."""

    clock_rate: dict[str, list[float]] = field(default_factory=dict)
    study_rate: dict[str, list[float]] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)

    @property
    def pays_by_clock(self) -> list[float]:
        """Samples/s of two processes ÷ those of one with all cores at its better batch, reading by reading."""
        smaller, larger, two = (self.clock_rate[cell] for cell in CELLS)
        return [both / max(one, other) for one, other, both in zip(smaller, larger, two, strict=True)]

    @property
    def signs_agree(self) -> list[bool]:
        """For each study that tells whether two workers are faster: whether they are by the clock."""
        by_clock = statistics.median(self.pays_by_clock) > 1
        told = [each.workers for each in self.said if each.workers not in ("open", "even")]
        return [by_clock == (workers == "several") for workers in told]

    def as_json(self) -> dict[str, Any]:
        """What is kept."""
        return {
            "clock_rate": self.clock_rate,
            "study_rate": self.study_rate,
            "two_over_one_by_clock": self.pays_by_clock,
            "said": [(each.workers, each.low, each.high) for each in self.said],
            "signs_agree": self.signs_agree,
        }


def run(data_dir: str | None) -> None:
    """Measure, print and keep, model by model."""
    found: dict[str, ModelComparison] = {}
    with tempfile.TemporaryDirectory(prefix="worldsize-") as folder:
        for name in ("plain_classifier.py", "plain_models.py"):
            (Path(folder) / name).write_bytes((HERE / name).read_bytes())
        for name, batch in BATCHES.items():
            say(f"  {name} …")
            found[name] = _compared(Path(folder), name, batch)
            keep("clock_models", {"clock_s": CLOCK_S, "budget_s": BUDGET_S, "models": _as_json(found)})
    _print(found)


def _compared(folder: Path, name: str, batch: int) -> ModelComparison:
    found = ModelComparison()
    _read_clock(folder, name, batch, found)
    for number in range(STUDIES):
        out = folder / f"{name}-{number}"
        model = name if name in OURS else f"plain_models.py:{name}"
        command = [sys.executable, "-m", "worldsize", "study", "--model", model, "--learning-rate", "0.01"]
        command += ["--data", "synthetic:3x32x32:10:4000", "--strategies", "single,ddp", "--world-sizes", "1,2"]
        command += ["--batch-sizes", str(batch), "--budget", f"{BUDGET_S:g}s", "--out", str(out), "--json"]
        done = subprocess.run(command, cwd=folder, env=shell_environment(), check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the study of {name} ended with {done.returncode}: {done.stderr[-2000:]}")
        _read_study(out, json.loads(done.stdout)["workers"], batch, found)
        _read_clock(folder, name, batch, found)
    return found


def _read_clock(folder: Path, name: str, batch: int, into: ModelComparison) -> None:
    """Read the clock once in each cell."""
    for cell, launcher, local, workers in zip(CELLS, ("python", "python", "2"), (1, 2, 1), (1, 1, 2), strict=True):
        ms = clocked(LAUNCHERS[launcher], folder / "plain_classifier.py", name, str(local * batch))
        into.clock_rate.setdefault(cell, []).append(1e3 * workers * local * batch / ms)
        say(f"    {cell}: {into.clock_rate[cell][-1]:.1f} samples/s by the clock")


def _read_study(out: Path, workers: Any, batch: int, into: ModelComparison) -> None:
    rates: dict[str, float] = {}
    for cell in load_run(out).cells.values():
        record = cell.record
        if record.summary is None or record.settings is None:
            continue
        if record.settings.label == ALL_CORES:
            name = CELLS[record.batch_size // batch - 1]
        elif record.world_size == 2:
            name = CELLS[2]
        else:
            continue
        rates[name] = record.world_size * record.batch_size / record.summary.step_s.value
    for name in CELLS:
        into.study_rate.setdefault(name, []).append(rates[name])
    beside = said_of(out)
    into.said.append(Said(workers, beside.low if beside else None, beside.high if beside else None))
    say("    study: " + ", ".join(f"{name}: {rate:.1f}" for name, rate in rates.items()) + f": {workers}")


def _as_json(found: dict[str, ModelComparison]) -> dict[str, Any]:
    return {name: comparison.as_json() for name, comparison in found.items()}


def _print(found: dict[str, ModelComparison]) -> None:
    print(f"clock_models: samples/s by the clock ({CLOCK_S:g} s a run) and by studies of {BUDGET_S:g} s, in turn")
    for name, comparison in found.items():
        for cell in CELLS:
            clock, study = (statistics.median(rates[cell]) for rates in (comparison.clock_rate, comparison.study_rate))
            print(f"  {name}, {cell}: {clock:.1f} by the clock, {study:.1f} by studies: {study / clock - 1:+.1%}")
        two = " ".join(f"{each:.2f}" for each in comparison.pays_by_clock)
        said = ", ".join(each.workers for each in comparison.said)
        wrong = " (WRONG)" if False in comparison.signs_agree else ""
        print(f"    two over one, by the clock: {two}; by studies: {said}{wrong}")
    signs = [agrees for comparison in found.values() for agrees in comparison.signs_agree]
    print(f"  {len(signs)} of {STUDIES * len(found)} studies tell; wrong: {signs.count(False)}")


if __name__ == "__main__":
    run(None)
