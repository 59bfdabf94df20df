"""VGG-11 on two emulated hosts with a link of 1 Gbit/s: how near each strategy comes to what must take its time.

A step can be no shorter than its compute, nor than its bytes on the busiest link: that is the bound. Where the wire
takes longer than the compute no synchronous strategy reaches it, because nothing can travel before the first gradient
is there: the second column divides by max(compute, forward + wire) (method.md §12). Both are taken from steps without
exchange of the plain all-reduce workers, in turn with all others: the bare model, no hooks, both workers at once.
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from common import Samples, cifar10_or_synthetic, in_turn, keep, say, shown
from worldsize.analysis.bandwidth import analyse_link
from worldsize.analysis.levels import ratio_estimate
from worldsize.analysis.statistics import Blocks, Ratio
from worldsize.config import CellSettings, CommSettings, Hosts
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores
from worldsize.ranks.turns import Turn
from worldsize.results.comm_records import AllReduceCost
from worldsize.results.files import cell_folder
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord
from worldsize.study.comm import check_hosts, run_comm
from worldsize.study.executor import JobExecutor
from worldsize.study.plan import PlannedCell

BATCHES = (32, 64)
STEPS = 4
BLOCKS = 12
LINK = "1gbit"
LIMIT = 1.20
COMPUTE = "compute alone"
AUTO = "bucketed, auto"
DDP = "ddp, default buckets (25 MB)"
VARIANTS: dict[str, dict[str, Any]] = {
    "gather-scatter": {"strategy": "gather-scatter"},
    "all-reduce": {"strategy": "all-reduce"},
    DDP: {"strategy": "ddp"},
    "ddp, 5 MB buckets": {"strategy": "ddp", "bucket_mb": 5.0},
    AUTO: {"strategy": "bucketed", "bucket_mb": "auto"},
}


def run(data_dir: str | None) -> None:
    """Measure and print. Raises UsageError where hosts cannot be emulated."""
    network = CommSettings(collectives=("all-reduce",), samples=7, hosts=2, link=LINK, threads_per_worker=1)
    check_hosts(network, 2)
    hosts = network.emulated
    assert hosts is not None
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        model = analyse_link(run_comm(network, Path(folder) / "comm", ["benchmarks/run.py"])).models["all-reduce"]
        link = AllReduceCost(alpha_s=model.alpha_s, beta_bytes_per_s=model.beta_bytes_per_s)
        for batch in BATCHES:
            common = {**cifar10_or_synthetic(data_dir), "model": "vgg11", "world_size": 2, "batch_size": batch}
            results[f"b{batch}"] = _measure(Path(folder) / str(batch), common, hosts, link)
    keep("slow-link", {"link_bits_per_s": hosts.rate_bits_per_s, **results})


def _measure(folder: Path, common: dict[str, Any], hosts: Hosts, link: AllReduceCost) -> dict[str, Any]:
    """Time all variants of one batch in turn, and print their table."""
    placement = place(world_size=2, processes=2, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo")
    assert hosts.payload_bytes_per_s is not None
    with ExitStack() as stack:
        turns: dict[str, Callable[[], float]] = {}
        wire_s: dict[str, float] = {}
        for number, (name, own) in enumerate(VARIANTS.items()):
            cell = PlannedCell(CellSettings(**common, **own, threads_per_worker=1), placement)
            executor = JobExecutor(folder / str(number), 0, hosts, {2: link})
            stack.callback(executor.close)
            wire = executor.facts(cell)[0].wire
            assert wire is not None
            wire_s[name] = wire.busiest_rank_bytes / hosts.payload_bytes_per_s
            turns[name] = _turn(executor, cell, synchronise=True)
            if name == "all-reduce":
                turns[COMPUTE] = _turn(executor, cell, synchronise=False)
                plain = Cell(cell_folder(executor.run, cell.id), CellRecord.of(cell.settings))
        samples = in_turn(turns, BLOCKS)
        forward_s = float((plain.unsynchronised["forward_end_s"] - plain.unsynchronised["copy_end_s"]).median())  # type: ignore[arg-type]
    return _print(common["batch_size"], samples, wire_s, forward_s)


def _turn(executor: JobExecutor, cell: PlannedCell, *, synchronise: bool) -> Callable[[], float]:
    turn = Turn(op="steps", count=STEPS, synchronise=synchronise)

    def block() -> float:
        replies = executor.take(cell, turn, lambda: None)
        return float(sum(max(ranks) for ranks in zip(*(reply.step_s for reply in replies), strict=True)) / STEPS)

    return block


def _print(batch: int, samples: Samples, wire_s: dict[str, float], forward_s: float) -> dict[str, Any]:
    def over(name: str, floor_s: float) -> Ratio:
        # Block by block, so that the machine's drift is in both sides.
        bound: Blocks = {key: value.clip(min=floor_s) for key, value in samples[COMPUTE].items()}
        return ratio_estimate(samples[name], bound)

    compute_s = sorted(float(block[0]) for block in samples[COMPUTE].values())[BLOCKS // 2]
    say("")
    times = f"compute {compute_s * 1e3:.0f} ms (forward {forward_s * 1e3:.0f}), wire {wire_s[AUTO] * 1e3:.0f} ms"
    print(f"vgg11, b = {batch}, 2 hosts at {LINK}: {times}")
    print("step ÷ max(compute, wire), and step ÷ max(compute, forward + wire)")
    found = {}
    for name in VARIANTS:
        bound, reachable = over(name, wire_s[name]), over(name, forward_s + wire_s[name])
        found[name] = {"over_bound": bound.estimate.model_dump(), "over_reachable": reachable.estimate.model_dump()}
        print(f"  {name:<30} {shown(bound)}  {shown(reachable)}" + (f"  (at most {LIMIT:.2f})" if name == AUTO else ""))
    gain = ratio_estimate(samples[DDP], samples[AUTO])
    print(f"  ddp with its default ÷ {AUTO}: {shown(gain)} (at least 1)")
    return {
        "variants": found,
        "ddp_over_auto": gain.estimate.model_dump(),
        "compute_s": compute_s,
        "forward_s": forward_s,
        "wire_s": wire_s[AUTO],
    }
