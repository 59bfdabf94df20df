"""From Enter to the answer: whole commands as a user types them, beside what people do today, and what forking costs.

Wall times, of which only ratios within this run mean anything elsewhere; the figures that were asked for are of two
cores. The default study is run ten times, and how often it came to a decided verdict is counted.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from common import keep, ratio, say, shown
from worldsize.config import CellSettings
from worldsize.launch.environment import worker_environment
from worldsize.launch.job import Job
from worldsize.launch.local import LocalJob
from worldsize.launch.placement import place
from worldsize.launch.warm import WARM
from worldsize.measure.machine import allowed_cores
from worldsize.results.folder import Cell, load_run
from worldsize.study.job_executor import ENTRY

HERE = Path(__file__).parent
MODEL = """
from torch import nn

def net(classes):
    return nn.Sequential(
        nn.AvgPool2d(2),
        nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 4 * 4, classes),
    )
"""
TINY = ("--model", "tiny_model.py:net", "--data", "digits")
LADDER = ("--strategies", "single,gather-scatter,all-reduce,ddp", "--world-sizes", "1,2")
PAIR = ("--strategies", "single,ddp", "--world-sizes", "1,2", "--baseline", "single", "--batch-sizes", "16")
COMMANDS: dict[str, tuple[str, ...]] = {
    "one cell": ("study", *TINY, "--strategies", "single", "--world-sizes", "1", "--batch-sizes", "16", "--steps", "4"),
    "seven cells": ("study", *TINY, *LADDER, "--batch-sizes", "16", "--steps", "6"),
    "1,500 short steps": ("study", *TINY, *PAIR, "--steps", "1500", "--target-interval", "0"),
    "verify": ("verify", *TINY, *LADDER),
    "comm": ("comm", "--hosts", "auto", "--link", "1gbit"),
}
ASKED_S = {"one cell": 8, "seven cells": 20, "verify": 15, "default study": 120}
OF_TORCHRUN = 0.35
WORLDS = (1, 1, 1, 1, 2, 2, 2)
"""World sizes of the seven cells."""
DEFAULTS = 10
"""How often the default study is run."""
TURNS, STEPS = 60, 20
"""Blocks of the forked and of the spawned worker, and steps in each."""
ALIKE = 0.01


def run(data_dir: str | None) -> None:
    """Measure, print and keep."""
    say("")
    with tempfile.TemporaryDirectory(prefix="worldsize-") as folder:
        place_of = Path(folder)
        (place_of / "tiny_model.py").write_text(MODEL)
        walls = {name: _wall(lambda c=command: _command(place_of, *c)) for name, command in COMMANDS.items()}  # type: ignore[misc]
        walls["torchrun loop"] = _wall(lambda: _torchrun_loop(place_of))
        studies = [_default_study(place_of, number) for number in range(DEFAULTS)]
        forked = _forked_and_spawned(place_of)
    _print(walls, studies, forked)


def _print(walls: dict[str, float], studies: list[dict[str, Any]], forked: Any) -> None:
    print("start: from Enter to the answer, wall time")
    for name, wall_s in walls.items():
        asked = f" (asked: at most {ASKED_S[name]} s)" if name in ASKED_S else ""
        print(f"  {name}: {wall_s:.1f} s{asked}")
    share = walls["seven cells"] / walls["torchrun loop"]
    print(f"  seven cells ÷ the same as a loop of torchrun: {share:.2f} (asked: at most {OF_TORCHRUN})")
    decided = sum(study["decided"] is True for study in studies)
    told = sum(study["workers"] != "open" for study in studies)
    print(f"  default study: {told} of {len(studies)} know whether more workers pay (asked: 9)")
    longest, least = max(each["wall_s"] for each in studies), min(each["timed_share"] for each in studies)
    print(f"  default study: {decided} of {len(studies)} decided (asked: 9), at most {longest:.1f} s (asked: 120)")
    print(f"  of its time, timed steps: at least {least:.0%} (asked: 50 %)")
    for study in studies:
        timed = f"{study['timed_share']:.0%} timed, {study['disturbed_share']:.0%} of the steps disturbed"
        print(f"    {study['wall_s']:.1f} s, {timed}, workers: {study['workers']}, decided: {study['decided']}")
    print(f"  step of a forked worker ÷ of a spawned one: {shown(forked)} (asked: within {ALIKE:.0%} of 1)")
    keep(
        "start",
        {
            "wall_s": walls,
            "of_torchrun": share,
            "default_studies": studies,
            "forked_over_spawned": forked.estimate.model_dump(),
        },
    )


def _wall(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def _command(folder: Path, *arguments: str, out: Path | None = None) -> str:
    out_flag = ("--out", str(out or folder / f"run{time.monotonic_ns()}")) if arguments[0] == "study" else ()
    say(f"  worldsize {arguments[0]} …")
    done = subprocess.run(
        [sys.executable, "-m", "worldsize", *arguments, *out_flag],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def _torchrun_loop(folder: Path) -> None:
    for workers in WORLDS:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(workers), "--standalone"]
        subprocess.run([*command, HERE / "plain_ddp.py", folder / "tiny_model.py"], check=True, capture_output=True)
    say("  torchrun, seven times …")


def _default_study(folder: Path, number: int) -> dict[str, Any]:
    out, told = folder / f"default{number}", ""

    def study() -> None:
        nonlocal told
        told = _command(folder, "study", "default", "--json", out=out)

    wall_s = _wall(study)
    cells = list(load_run(out).cells.values())
    timed_s = sum(float(cell.steps.filter("timed", pl.col("rank") == 0)["step_s"].sum()) for cell in cells)
    disturbed, timed = (sum(each) for each in zip(*map(_disturbed, cells), strict=True))
    content = json.loads(told)
    return {
        "wall_s": wall_s,
        "timed_share": timed_s / wall_s,
        "disturbed_share": disturbed / timed,
        "decided": content["decided"],
        "workers": content["workers"],
        "verdict": content["verdict"],
    }


def _disturbed(cell: Cell) -> tuple[int, int]:
    """Steps beside which the short computation was slow, and all timed ones."""
    summary = cell.record.summary
    return (summary.disturbed_steps, summary.timed_steps) if summary else (0, 0)


def _forked_and_spawned(folder: Path) -> Any:
    """Step times of two workers that are alike but for how they were started, in turn."""
    say("  a forked worker and a spawned one, in turn …")
    settings = CellSettings(model="resnet18", data="synthetic:3x32x32:10:2000", batch_size=2, threads_per_worker=1)
    where = place(world_size=1, processes=1, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo")
    jobs: dict[str, LocalJob] = {}
    turns: dict[str, dict[tuple[int, int], NDArray[np.float64]]] = {}
    with WARM.held():
        for method in ("fork", "spawn"):
            payload = {
                "run": str(folder / method),
                "settings": settings.model_dump(mode="json"),
                "placement": where.model_dump(mode="json"),
                "session": 0,
            }
            job = Job(
                entry=ENTRY,
                payload=payload,
                processes=1,
                folder=folder / method,
                environment=worker_environment(),
                start_method=method,
            )
            jobs[method] = LocalJob(job)
            jobs[method].receive()
        try:
            for number in range(TURNS + 1):
                for method, started in jobs.items():
                    took = _turn(started)
                    if number:  # the first warms up
                        turns.setdefault(method, {})[0, number] = took
        finally:
            for started in jobs.values():
                started.close()
    return ratio(turns, "fork", "spawn")


def _turn(job: LocalJob) -> NDArray[np.float64]:
    """The steps of one turn."""
    job.send({"op": "steps", "count": STEPS, "warmup": 1})
    (reply,) = job.receive()
    return np.array(reply["step_s"])


if __name__ == "__main__":
    run(os.environ.get("WORLDSIZE_DATA"))
