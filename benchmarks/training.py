"""Training ResNet-18 with one worker: worldsize against the loop that people write, on the same cores."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import cifar10_or_synthetic, in_turn, keep, ratio, say, shown
from worldsize.config import CellSettings
from worldsize.launch.environment import worker_environment
from worldsize.launch.job import Job
from worldsize.launch.local import LocalJob
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores
from worldsize.study.job_executor import ENTRY

BATCH = 128
STEPS = 6
"""Steps per turn: more than what the plain loop's loader holds ready, so that its work is not hidden."""
BLOCKS = 6
SPEED_UPS = ("LD_PRELOAD", "THP_MEM_ALLOC_ENABLE")
COMPILED = "worldsize, --compile"


def run(data_dir: str | None) -> None:
    """Measure and print."""
    cores = allowed_cores()
    settings = CellSettings(
        **cifar10_or_synthetic(data_dir), batch_size=BATCH, threads_per_worker=len(cores), strategy="single"
    )
    compiled = settings.model_copy(update={"compile": True})
    environment = worker_environment()
    plain_memory = {k: v for k, v in environment.items() if k not in SPEED_UPS}
    with tempfile.TemporaryDirectory() as folder:
        place_of = Path(folder)
        starts: dict[str, Callable[[], LocalJob]] = {
            "plain loop": lambda: _plain(place_of / "plain", settings, cores),
            "worldsize": lambda: _ours(place_of / "ours", settings, cores, environment),
            "worldsize, plain memory": lambda: _ours(place_of / "memory", settings, cores, plain_memory),
            COMPILED: lambda: _ours(place_of / "compiled", compiled, cores, environment),
        }
        jobs: dict[str, LocalJob] = {}
        facts = {}
        try:
            for name, start in starts.items():
                jobs[name] = start()
                facts[name] = jobs[name].receive()[0]  # alone: it measures the matrix-multiply rate now
            samples = in_turn({name: _turn(job) for name, job in jobs.items()}, BLOCKS)
        finally:
            for job in jobs.values():
                job.close()
    told = facts["worldsize"]["facts"]["matmul_flops_per_s"], facts[COMPILED]["facts"]["compile_s"]
    _print(settings, samples, *told, environment)


def _print(settings: CellSettings, samples: Any, matmul: float, compile_s: float, environment: dict[str, str]) -> None:
    from worldsize.data import load_data
    from worldsize.models import build_model, describe_model

    data = load_data(settings)
    model = build_model(settings.model, classes=data.classes, shape=data.shape, seed=0)
    flops = describe_model(settings.model, model, data.shape).flops_per_sample
    assert flops is not None, "the operations of a built-in model can be counted"
    gain = ratio(samples, "plain loop", "worldsize")
    compiled = ratio(samples, "plain loop", COMPILED)
    memory = ratio(samples, "worldsize, plain memory", "worldsize")
    share = {name: flops * BATCH / _median(blocks) / matmul for name, blocks in samples.items()}
    say("")
    print(f"training resnet18, one worker on {settings.threads_per_worker} core(s), {settings.data}, b = {BATCH}, fp32")
    print(f"  worldsize ÷ plain loop: {shown(gain)} times the samples/s (at least 1.5)")
    print(f"  with --compile ÷ plain loop: {shown(compiled)} (at least 1.6); compiling took {compile_s:.0f} s")
    have = [name for name in SPEED_UPS if name in environment]
    print(f"  of which by the memory of the workers ({', '.join(have) or 'nothing here'}): {shown(memory)}")
    for name, value in share.items():
        print(f"  {name}: {value:.2f} of this machine's matrix-multiply rate")
    keep(
        "training",
        {
            "ratio": gain.estimate.model_dump(),
            "compiled_ratio": compiled.estimate.model_dump(),
            "compile_s": compile_s,
            "memory_ratio": memory.estimate.model_dump(),
            "memory": have,
            "share_of_matmul_rate": share,
            "steps_per_block": STEPS,
        },
    )


def _median(blocks: Any) -> float:
    values = sorted(float(block[0]) for block in blocks.values())
    return values[len(values) // 2]


def _plain(folder: Path, settings: CellSettings, cores: tuple[int, ...]) -> LocalJob:
    payload = {"settings": settings.model_dump(mode="json"), "cores": list(cores)}
    here = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    return LocalJob(Job(entry="plain_loop:enter", payload=payload, processes=1, folder=folder, environment=here))


def _ours(folder: Path, settings: CellSettings, cores: tuple[int, ...], environment: dict[str, str]) -> LocalJob:
    placement = place(world_size=1, processes=1, threads_per_worker=len(cores), cores=cores, gpus=0, backend="gloo")
    payload = {
        "run": str(folder),
        "settings": settings.model_dump(mode="json"),
        "placement": placement.model_dump(mode="json"),
        "session": 0,
    }
    return LocalJob(Job(entry=ENTRY, payload=payload, processes=1, folder=folder, environment=environment))


def _turn(job: LocalJob) -> Callable[[], float]:
    def block() -> float:
        job.send({"op": "steps", "count": STEPS})
        (reply,) = job.receive()
        return float(sum(reply["step_s"]) / STEPS)

    return block
