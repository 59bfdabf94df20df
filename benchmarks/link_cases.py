"""VGG-11 on two emulated hosts: steps of some strategies in turn, over what must take its time.

A step can be no shorter than its compute, nor than its bytes on the busiest link: that is the bound. Where the wire
takes longer than the compute no synchronous strategy reaches it, because nothing can travel before the first gradient
is there: the second column divides by max(compute, forward + wire) (method.md §12). Both are taken from steps without
synchronisation of the first strategy's workers, in turn with all others. A strategy that sends fewer bytes has a wire
of its own; the third column divides by what fp32 must take, bytes ÷ link rate.
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
from worldsize.study.job_executor import JobExecutor
from worldsize.study.plan import PlannedCell

STEPS = 4
COMPUTE = "compute alone"
AUTO = "bucketed, auto"
DDP = "ddp, default buckets (25 MB)"


@dataclass(frozen=True)
class Case:
    """A link, a local batch, and what is timed on it."""

    link: str
    batch: int
    variants: dict[str, dict[str, Any]]
    blocks: int

    @property
    def name(self) -> str:
        """Of its part of the results."""
        return f"{self.link}-b{self.batch}"


def measure(kept_as: str, cases: tuple[Case, ...], data_dir: str | None) -> dict[str, Any]:
    """Measure, print and keep; results by name of the case. Raises UsageError where hosts cannot be emulated."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for link in dict.fromkeys(case.link for case in cases):
            network = CommSettings(collectives=("all-reduce",), samples=7, hosts=2, link=link, threads_per_worker=1)
            check_hosts(network, 2)
            hosts = network.emulated
            assert hosts is not None
            measured = run_comm(network, Path(folder) / f"comm-{link}", ["benchmarks/run.py"])
            model = analyse_link(measured).models["all-reduce"]
            cost = AllReduceCost(alpha_s=model.alpha_s, beta_bytes_per_s=model.beta_bytes_per_s)
            for case in cases:
                if case.link == link:
                    common = {**cifar10_or_synthetic(data_dir), "model": "vgg11", "world_size": 2}
                    common["batch_size"] = case.batch
                    results[case.name] = _measure(Path(folder) / case.name, case, common, hosts, cost)
                    keep(kept_as, results)
    return results


def _measure(folder: Path, case: Case, common: dict[str, Any], hosts: Hosts, link: AllReduceCost) -> dict[str, Any]:
    """Time all variants of one case in turn, and print their table."""
    placement = place(world_size=2, processes=2, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo")
    assert hosts.payload_bytes_per_s is not None
    with ExitStack() as stack:
        turns: dict[str, Callable[[], float]] = {}
        wire_s: dict[str, float] = {}
        for number, (name, own) in enumerate(case.variants.items()):
            cell = PlannedCell(CellSettings(**common, **own, threads_per_worker=1), placement)
            executor = JobExecutor(folder / str(number), 0, hosts, {2: link})
            stack.callback(executor.close)
            wire = executor.facts(cell)[0].wire
            assert wire is not None
            wire_s[name] = wire.busiest_rank_bytes / hosts.payload_bytes_per_s
            turns[name] = _turn(executor, cell, synchronise=True)
            if COMPUTE not in turns:
                turns[COMPUTE] = _turn(executor, cell, synchronise=False)
                plain = Cell(cell_folder(executor.run, cell.id), CellRecord.of(cell.settings))
        samples = in_turn(turns, case.blocks)
        forward_s = float((plain.unsynchronised["forward_end_s"] - plain.unsynchronised["copy_end_s"]).median())  # type: ignore[arg-type]
    return _print(case, samples, wire_s, forward_s)


def _turn(executor: JobExecutor, cell: PlannedCell, *, synchronise: bool) -> Callable[[], float]:
    turn = Turn(op="steps", count=STEPS, synchronise=synchronise)

    def block() -> float:
        replies = executor.take(cell, turn, lambda: None)
        return float(sum(max(ranks) for ranks in zip(*(reply.step_s for reply in replies), strict=True)) / STEPS)

    return block


def _print(case: Case, samples: Samples, wire_s: dict[str, float], forward_s: float) -> dict[str, Any]:
    def over(name: str, floor_s: float) -> Ratio:
        # Block by block, so that the machine's drift is in both sides.
        bound: Blocks = {key: value.clip(min=floor_s) for key, value in samples[COMPUTE].items()}
        return ratio_estimate(samples[name], bound)

    compute_s = sorted(float(block[0]) for block in samples[COMPUTE].values())[case.blocks // 2]
    fp32_s = wire_s[DDP]
    fixed: Blocks = {key: np.full_like(value, fp32_s) for key, value in samples[COMPUTE].items()}
    say("")
    times = f"compute {compute_s * 1e3:.0f} ms (forward {forward_s * 1e3:.0f}), wire of fp32 {fp32_s * 1e3:.0f} ms"
    print(f"vgg11, b = {case.batch}, 2 hosts at {case.link}: {times}")
    print("step ÷ max(compute, its wire), ÷ max(compute, forward + its wire), ÷ wire of fp32")
    found: dict[str, dict[str, Any]] = {}
    for name in case.variants:
        ratios = over(name, wire_s[name]), over(name, forward_s + wire_s[name]), ratio_estimate(samples[name], fixed)
        keys = ("over_bound", "over_reachable", "over_fp32_wire")
        found[name] = {key: each.estimate.model_dump() for key, each in zip(keys, ratios, strict=True)}
        found[name]["wire_s"] = wire_s[name]
        print(f"  {name:<30} " + "  ".join(map(shown, ratios)))
    result: dict[str, Any] = {"variants": found, "compute_s": compute_s, "forward_s": forward_s, "fp32_wire_s": fp32_s}
    if AUTO in case.variants:
        gain = ratio_estimate(samples[DDP], samples[AUTO])
        print(f"  ddp with its default ÷ {AUTO}: {shown(gain)}")
        result["ddp_over_auto"] = gain.estimate.model_dump()
    return result
