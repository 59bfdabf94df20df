"""Rehearsals beside what they stand for: steps that were really computed, a straggler, and 32 hosts on the cores here.

Two workers are measured over links of three rates, by four strategies; then each is rehearsed from the run over
the same link, and the second link from the run over the fastest one, whose steps know nothing of it. The error is
rehearsed ÷ measured step time − 1.

$REHEARSE_MODELS names some of MODELS, `small` among them; the others stay as they were kept.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np

import worldsize
from common import RESULTS, keep, origin, say
from worldsize.analysis.steps import timed_steps
from worldsize.api.run import Run
from worldsize.config import CommSettings
from worldsize.results.replay import PHASES, read_replay
from worldsize.study.comm import check_hosts
from worldsize.training.draws import Draws

HERE = Path(__file__).parent
LINKS = ("1gbit", "300mbit", "100mbit")
"""The first one is the run from which the others are rehearsed as well."""
STRATEGIES = ("ddp", "bucketed", "all-reduce", "gather-scatter")
FROM_FASTEST = ("300mbit",)
"""Links that are rehearsed from the run over the fastest one as well."""
SMALL = "small"
MODELS: dict[str, dict[str, Any]] = {
    "resnet18": {"model": "resnet18", "batch_sizes": 8},
    SMALL: {"model": f"{HERE / 'rehearse_model.py'}:small", "batch_sizes": 32},
}
STEPS = {"resnet18": 6, SMALL: 60}
"""Timed steps: those of the first take up to 8 s, those of the second up to 0.5 s."""
MAX_STEPS = 1000
MANY, MANY_LIMIT_S = 32, 20.0
PLANTED_S, PLANTED_LIMIT_S = 0.02, 0.005
STRAGGLER_HOSTS, STRAGGLER_STEPS, STRAGGLER_ROUNDS = 4, 60, 3
"""In turn, for steps of a small model differ by some milliseconds from run to run."""


def run(data_dir: str | None) -> None:
    """Measure and print. Raises UsageError where hosts cannot be emulated."""
    check_hosts(CommSettings(hosts=2), 2)
    chosen = os.environ.get("REHEARSE_MODELS", ",".join(MODELS)).split(",")
    kept = RESULTS / "rehearse.json"
    before = json.loads(kept.read_text()) if kept.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        errors = [row for row in before.get("errors", []) if row["model"] not in chosen]
        errors += [row for name in chosen for row in _errors(name, MODELS[name], folder)]
        source = folder / f"{SMALL}-{LINKS[0]}"
        commits = {**before.get("commits", {}), **dict.fromkeys(chosen, origin()["commit"])}
        content = {"commits": commits, "errors": errors, **_start(source, folder), **_straggler(source, folder)}
    keep("rehearse", content)


def _errors(name: str, settings: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    common: dict[str, Any] = {"progress": False, "report": False, "steps": STEPS[name]}
    measured: dict[str, Run] = {}
    for link in LINKS:
        say(f"  {name}, {link}")
        measured[link] = worldsize.study(
            out=folder / f"{name}-{link}",
            strategies=STRATEGIES,
            world_sizes=2,
            hosts=2,
            link=link,
            **common,
            **settings,
        )
    rows = []
    for link in LINKS:
        for source in (link, *(LINKS[:1] if link in FROM_FASTEST else ())):
            out = folder / f"{name}-{link}-from-{source}"
            found = worldsize.rehearse(measured[source].folder, hosts=2, link=link, out=out, **common)
            rows += [_row(name, link, source, cell, measured[link], found) for cell in found.cells]
    for row in rows:
        error = "refused" if row["error"] is None else f"{row['error']:+.1%}"
        print(f"{name:<18} {row['link']:>8} from {row['source']:>8} {row['cell']:<24} {error}")
    return rows


def _row(name: str, link: str, source: str, cell: str, measured: Run, rehearsed: Run) -> dict[str, Any]:
    """The error over the steps that were replayed, where they are those of the same link; else over all."""
    record = rehearsed.cells[cell].record
    real_s = timed_steps(measured.cells[cell])["world_s"].to_numpy()
    found = timed_steps(rehearsed.cells[cell])
    if link == source:
        real_s = real_s[_replayed_steps(rehearsed, cell)[found["step"].to_numpy()]]
    steps_s = float(real_s.mean()), float(found["world_s"].to_numpy().mean())
    return {
        **{"model": name, "link": link, "source": source, "cell": cell, "steps": found.height},
        **{"measured_s": steps_s[0], "rehearsed_s": steps_s[1]},
        "fidelity": record.replayed.fidelity if record.replayed else None,
        "error": steps_s[1] / steps_s[0] - 1 if record.state == "complete" else None,
    }


def _replayed_steps(run: Run, cell: str) -> Any:
    """Which measured step each step of a rehearsed cell has replayed: of so few, which ones changes the mean."""
    replayed = read_replay(run.folder).cells[cell]
    numbers = tuple(range(sum(replayed.blocks)))
    told = replayed.model_copy(update={"times_us": ((numbers,) * len(PHASES),)})
    drawn = iter(Draws(told, 0, 1, 0))
    return np.array([round(1e6 * next(drawn).data_s) for _ in range(MAX_STEPS)])


def _start(source: Path, folder: Path) -> dict[str, Any]:
    """From Enter to the first step of all ranks, and what of it was the start of the cell itself."""
    out = folder / "many"
    command = [sys.executable, "-m", "worldsize", "rehearse", str(source), "--hosts", str(MANY), "--strategies", "ddp"]
    began_s = time.monotonic()
    process = subprocess.Popen([*command, "--link", "100mbit", "--steps", "1", "--out", str(out)], cwd=folder)
    cell = out / "cells" / f"ddp-w{MANY}-b32"
    job_s = _when(cell / "job", process) - began_s
    first_s = _when(cell / f"rank{MANY - 1}.jsonl", process) - began_s
    process.wait()  # with an error where the cell was refused: its steps are short
    record = worldsize.load_run(out).cells[cell.name].record
    fidelity = record.replayed.fidelity if record.replayed else None
    began = f"{first_s - job_s:.1f} s (at most {MANY_LIMIT_S:.0f}), {first_s:.1f} s from Enter"
    print(f"{MANY} hosts: from the start of the cell to its first step {began}")
    return {"many_start_s": first_s - job_s, "many_from_enter_s": first_s, "many_fidelity": fidelity}


def _when(path: Path, process: "subprocess.Popen[bytes]") -> float:
    """When a file or folder came into being."""
    while not path.exists():
        assert process.poll() is None, "the rehearsal ended first"
        time.sleep(0.02)
    return time.monotonic()


def _straggler(source: Path, folder: Path) -> dict[str, Any]:
    """What a planted delay costs of four hosts, in turn without and with it; what it is to cost by the drawn steps."""
    found: dict[float, list[Run]] = {0.0: [], PLANTED_S: []}
    for number, delay_s in product(range(STRAGGLER_ROUNDS), found):
        planted: dict[str, Any] = {"slow_rank": f"1:{round(1e3 * delay_s)}ms"} if delay_s else {}
        rehearsed = worldsize.rehearse(
            source,
            hosts=STRAGGLER_HOSTS,
            strategies="all-reduce",
            steps=STRAGGLER_STEPS,
            out=folder / f"straggler-{delay_s}-{number}",
            report=False,
            progress=False,
            **planted,
        )
        found[delay_s].append(rehearsed)
    usual, late = (np.array([_several_s(run) for run in runs]) for runs in found.values())
    costs_s = late - usual
    due_s = _slowest_s(found[0.0][0], PLANTED_S) - _slowest_s(found[0.0][0], 0.0)
    rounds = ", ".join(f"{1e3 * cost_s:.1f}" for cost_s in costs_s)
    cost = f"{1e3 * costs_s.mean():.1f} ms (± {1e3 * PLANTED_LIMIT_S:.0f}; in turn {rounds})"
    print(f"a planted {1e3 * PLANTED_S:.0f} ms costs {cost}, by the drawn steps {1e3 * due_s:.1f} ms")
    return {"planted_s": PLANTED_S, "cost_s": float(costs_s.mean()), "costs_s": costs_s.tolist(), "due_s": due_s}


def _several_s(run: Run) -> float:
    summary = run.cells[f"all-reduce-w{STRAGGLER_HOSTS}-b32"].record.summary
    assert summary is not None, "the cell was refused"
    return summary.step_s.value


def _slowest_s(run: Run, delay_s: float) -> float:
    """Mean over steps of the time of the slowest rank, as drawn, with such a delay of rank 1."""
    replayed = read_replay(run.folder).cells[f"all-reduce-w{STRAGGLER_HOSTS}-b32"]
    ranks = (
        Draws(replayed, rank, STRAGGLER_HOSTS, 0, delay_s=delay_s if rank == 1 else 0.0)
        for rank in range(STRAGGLER_HOSTS)
    )
    times = np.array([[sum(step) for step in islice(draws, STRAGGLER_STEPS)] for draws in ranks])
    return float(times.max(axis=0).mean())
