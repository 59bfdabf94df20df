"""Between how many GPUs the collective benchmark is; the command has no torch, so a process that has it is asked."""

from worldsize.config import CommSettings
from worldsize.errors import RunError, UsageError
from worldsize.launch.cluster import Cluster, ThisMachine
from worldsize.launch.warm import WARM
from worldsize.study.plan import check_devices


def gpus_for(settings: CommSettings, cluster: Cluster | None = None) -> int:
    """The GPUs of this machine, or of each node, where its workers are to use them; 0 for CPUs (docs/gpus.md).

    As in a study: not over gloo. The workers of emulated hosts stay on CPUs, over gloo. Raises UsageError for NCCL
    without GPUs and for more workers than GPUs, RunError where nothing answers.
    """
    if settings.backend == "gloo" or settings.world_size < 2:  # of one there is no benchmark
        return 0
    if settings.emulated is not None:
        if settings.backend == "nccl":
            raise UsageError(
                "backend nccl was given with emulated hosts, whose workers use no GPU\n"
                "Leave --hosts out, or give --backend gloo."
            )
        return 0
    cluster = cluster or ThisMachine()
    with WARM.held():
        status, said = cluster.ask("worldsize.collectives.bench", "")
    counted = said.strip().rpartition("\n")[2]
    if not counted.isdecimal():
        raise RunError(f"the look for GPUs ended with status {status}; see above\nOver CPUs: --backend gloo.")
    busiest = max((node.processes for node in cluster.share_out(settings.world_size)), default=settings.world_size)
    check_devices(settings.backend, (settings.world_size,), int(counted), busiest)
    return int(counted)
