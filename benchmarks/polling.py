"""What it gives that gloo's polling thread runs at a lower priority (ranks/setup.py, give_way)."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from common import in_turn, keep, ratio, say, shown
from worldsize.launch.environment import worker_environment
from worldsize.launch.job import Job
from worldsize.launch.local import LocalJob
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores

SIZES_BYTES = (1024, 2**22)
CALLS = 50
BLOCKS = 20


def run(data_dir: str | None) -> None:
    """Measure and print: two workers with a core each, on loopback."""
    results = {}
    say("")
    for size in SIZES_BYTES:
        with tempfile.TemporaryDirectory() as folder:
            jobs = {name: _start(Path(folder) / name, size, polite=name == "polite") for name in ("as it is", "polite")}
            try:
                samples = in_turn({name: _turn(job) for name, job in jobs.items()}, BLOCKS)
            finally:
                for job in jobs.values():
                    job.close()
        gain = ratio(samples, "as it is", "polite")
        print(f"gloo's polling thread at a lower priority, all-reduce of {size:,} bytes: {shown(gain)} times the speed")
        results[str(size)] = gain.estimate.model_dump()
    keep("polling", results)


def _start(folder: Path, size_bytes: int, *, polite: bool) -> LocalJob:
    placement = place(world_size=2, processes=2, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo")
    payload = {"placement": placement.model_dump(mode="json"), "size_bytes": size_bytes, "polite": polite}
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = worker_environment() | {"PYTHONPATH": os.pathsep.join(paths)}
    job = LocalJob(
        Job(entry="polling_rank:enter", payload=payload, processes=2, folder=folder, environment=environment)
    )
    job.receive()
    return job


def _turn(job: LocalJob) -> Callable[[], float]:
    def block() -> float:
        job.send({"op": "steps", "count": CALLS})
        return float(max(reply["step_s"][0] for reply in job.receive()))

    return block
