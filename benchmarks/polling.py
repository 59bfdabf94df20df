"""What it gives that gloo's polling thread interrupts no other (ranks/setup.py, give_way)."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common import in_turn, keep, ratio, say, shown
from worldsize.config import Hosts
from worldsize.launch.environment import worker_environment
from worldsize.launch.job import Job
from worldsize.launch.local import LocalJob
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores

BLOCKS = 20


@dataclass(frozen=True)
class Case:
    """All-reduces between two workers with a core each."""

    size_bytes: int
    in_flight: int
    """How many are issued before the first is waited for."""
    calls: int
    """How often that is done in a block."""
    products: int = 0
    """Products of 256 × 256 matrices that are computed after they were issued."""
    rate_bits_per_s: int | None = None
    """Of the links of emulated hosts; None is loopback."""


CASES = {
    "1 KiB": Case(1024, 1, 200),
    "16 of 1 KiB": Case(1024, 16, 20),
    "4 MiB": Case(2**22, 1, 20),
    "4 of 4 MiB beside computing, 1 Gbit/s": Case(2**22, 4, 2, products=300, rate_bits_per_s=10**9),
}


def run(data_dir: str | None) -> None:
    """Measure and print: two workers with a core each."""
    results = {}
    say("")
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            jobs = {each: _start(Path(folder) / each, case, polite=each == "polite") for each in ("as it is", "polite")}
            try:
                samples = in_turn({each: _turn(job, case.calls) for each, job in jobs.items()}, BLOCKS)
            finally:
                for job in jobs.values():
                    job.close()
        gain = ratio(samples, "as it is", "polite")
        print(f"gloo's polling thread that interrupts nothing, all-reduce, {name}: {shown(gain)} times the speed")
        results[name] = gain.estimate.model_dump()
    keep("polling", results)


def _start(folder: Path, case: Case, *, polite: bool) -> LocalJob:
    placement = place(world_size=2, processes=2, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo")
    payload = {
        "placement": placement.model_dump(mode="json"),
        "size_bytes": case.size_bytes,
        "in_flight": case.in_flight,
        "products": case.products,
        "polite": polite,
    }
    hosts = Hosts(count=2, rate_bits_per_s=case.rate_bits_per_s) if case.rate_bits_per_s else None
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = worker_environment(hosts) | {"PYTHONPATH": os.pathsep.join(paths)}
    entry = "polling_rank:enter"
    job = LocalJob(Job(entry=entry, payload=payload, processes=2, folder=folder, environment=environment, hosts=hosts))
    job.receive()
    return job


def _turn(job: LocalJob, calls: int) -> Callable[[], float]:
    def block() -> float:
        job.send({"op": "steps", "count": calls})
        return float(max(reply["step_s"][0] for reply in job.receive()))

    return block
