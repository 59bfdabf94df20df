"""VGG-11 on two emulated hosts with a link of 1 Gbit/s: how near each strategy comes to what must take its time.

A step can be no shorter than its compute, nor than its bytes on the busiest link; with perfect overlap it is as long as
the longer of the two. Printed is the step over that bound. Compute is taken from steps without exchange of the plain
all-reduce workers, in turn with all others: the bare model, no hooks, both workers computing at the same time.
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from common import Samples, cifar10_or_synthetic, in_turn, keep, say, shown
from worldsize.analysis.bandwidth import analyse_link
from worldsize.analysis.statistics import Ratio, ratio_estimate
from worldsize.config import CellSettings, CommSettings, Hosts
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores
from worldsize.results.comm_records import AllReduceCost
from worldsize.study.comm import check_hosts, run_comm
from worldsize.study.executor import LocalExecutor
from worldsize.study.plan import PlannedCell

BATCH = 32
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
    network = CommSettings(collectives=("all-reduce",), world_size=2, hosts=2, link=LINK, threads_per_worker=1)
    check_hosts(network, 2)
    hosts = network.emulated
    assert hosts is not None
    assert hosts.payload_bytes_per_s is not None
    placement = place(world_size=2, processes=2, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo")
    common = {**cifar10_or_synthetic(data_dir), "model": "vgg11", "world_size": 2, "batch_size": BATCH}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = analyse_link(run_comm(network, folder / "comm", ["benchmarks/run.py"])).models["all-reduce"]
        link = AllReduceCost(alpha_s=model.alpha_s, beta_bytes_per_s=model.beta_bytes_per_s)
        turns: dict[str, Callable[[], float]] = {}
        wire_bytes: dict[str, int] = {}
        for number, (name, own) in enumerate(VARIANTS.items()):
            cell = PlannedCell(CellSettings(**common, **own, threads_per_worker=1), placement)
            executor = LocalExecutor(folder / str(number), 0, hosts, {2: link})
            stack.callback(executor.close)
            wire_bytes[name] = executor.facts(cell)[0]["wire"]["busiest_rank_bytes"]
            turns[name] = _turn(executor, cell, synchronise=True)
            if name == "all-reduce":
                turns[COMPUTE] = _turn(executor, cell, synchronise=False)
        samples = in_turn(turns, BLOCKS)
    _print(samples, {name: size / hosts.payload_bytes_per_s for name, size in wire_bytes.items()}, hosts)


def _turn(executor: LocalExecutor, cell: PlannedCell, *, synchronise: bool) -> Callable[[], float]:
    turn: dict[str, Any] = {"op": "steps", "count": STEPS, "synchronise": synchronise}

    def block() -> float:
        replies = executor.take(cell, turn, lambda: None)
        return float(sum(max(ranks) for ranks in zip(*(reply["step_s"] for reply in replies), strict=True)) / STEPS)

    return block


def _print(samples: Samples, wire_s: dict[str, float], hosts: Hosts) -> None:
    say("")
    print(f"vgg11, b = {BATCH}, 2 hosts at {LINK} ({hosts.payload_bytes_per_s:,.0f} bytes/s of TCP payload)")
    print("step ÷ max(compute alone, bytes on the wire ÷ link rate), 95 % intervals")
    results = {}
    for name in VARIANTS:
        # Block by block, so that the machine's drift is in both sides.
        bound = {key: value.clip(min=wire_s[name]) for key, value in samples[COMPUTE].items()}
        over = ratio_estimate(samples[name], bound)
        results[name] = over.estimate.model_dump()
        print(f"  {name:<30} {shown(over)}" + (f"  (at most {LIMIT:.2f})" if name == AUTO else ""))
    gain: Ratio = ratio_estimate(samples[DDP], samples[AUTO])
    compute_s = sorted(float(block[0]) for block in samples[COMPUTE].values())[BLOCKS // 2]
    print(f"  ddp with its default ÷ {AUTO}: {shown(gain)} (at least 1)")
    print(f"  compute alone {compute_s * 1e3:.0f} ms, wire {wire_s[AUTO] * 1e3:.0f} ms")
    keep(
        "slow-link",
        {
            "step_over_bound": results,
            "ddp_over_auto": gain.estimate.model_dump(),
            "compute_s": compute_s,
            "wire_s": wire_s,
        },
    )
