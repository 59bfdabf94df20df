"""What the links of a study can do, measured before its cells; each bandwidth then stands next to it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from worldsize.analysis.bandwidth import analyse_link
from worldsize.analysis.comm_report import comm_warnings
from worldsize.analysis.rehearsal import link_warnings
from worldsize.config import CommSettings, StudySettings
from worldsize.errors import RunError
from worldsize.launch.cluster import Cluster
from worldsize.results.comm_records import AllReduceCost
from worldsize.results.folder import Run, write_comm
from worldsize.results.records import WarningRecord
from worldsize.study.comm import run_comm
from worldsize.study.plan import PlannedCell
from worldsize.study.sampling import MIN_SAMPLES

SHORT_TOP_BYTES = 4 * 2**20
DEVICE_TOP_BYTES = 256 * 2**20
"""The same between devices: at 4 MiB a link such as NVLink is still far below what it can do."""
SHORT_SAMPLES = MIN_SAMPLES
SHORT_BUDGET = "3s"
SLOW_BUDGET = "5s"
"""The same for hosts of their own, whose links are slower."""


def needed(run: Run, settings: StudySettings) -> bool:
    """Whether the links are to be measured: not twice, and not for a training that plans nothing with them."""
    return not run.comm and (settings.epochs is None or settings.bucket_mb == "auto")


def wanted_links(
    settings: StudySettings, cells: Sequence[PlannedCell], *, apart: bool = False
) -> Iterator[CommSettings]:
    """The collectives that the cells use, in a short form, at each of their world sizes; `apart`: on several nodes."""
    distributed = [cell for cell in cells if cell.placement.processes > 1]
    for world_size in sorted({cell.settings.world_size for cell in distributed}):
        here = [cell for cell in distributed if cell.settings.world_size == world_size]
        names = {name for cell in here for name in cell.traits.collectives}
        if not names:
            continue
        yield CommSettings(
            collectives=tuple(sorted(names)),
            world_size=world_size,
            top_bytes=SHORT_TOP_BYTES if here[0].placement.device == "cpu" else DEVICE_TOP_BYTES,
            budget=SLOW_BUDGET if apart or settings.emulated else SHORT_BUDGET,
            samples=SHORT_SAMPLES,
            backend="nccl" if here[0].placement.backend == "nccl" else "gloo",
            threads_per_worker=here[0].placement.threads_per_worker,
            hosts=None if settings.emulated is None else world_size,
            link=settings.link,
            link_latency=settings.link_latency,
            test_links=settings.replay is not None,
            slow_link=tuple(slow for slow in settings.slow_link if int(slow.partition(":")[0]) < world_size),
        )


def measure_links(
    run: Path,
    settings: StudySettings,
    cells: Sequence[PlannedCell],
    command: Sequence[str],
    cluster: Cluster | None = None,
) -> list[WarningRecord]:
    """Time the collectives that the cells use into the run folder (method.md §5).

    A benchmark that fails is a warning: the study does not depend on it.
    """
    warnings = []
    device = next((cell.placement.device for cell in cells if cell.placement.processes > 1), "cpu")
    for wanted in wanted_links(settings, cells, apart=cluster is not None and bool(cluster.nodes)):
        world_size = wanted.world_size
        try:
            folder = run / "comm" / f"job{world_size}"
            gpus = world_size if device == "cuda" else 0
            limit_s = settings.hang_timeout_s
            record = run_comm(wanted, folder, command, gpus=gpus, cluster=cluster, hang_timeout_s=limit_s)
            write_comm(run, record)
            warnings += [*comm_warnings(record), *link_warnings(record)]
        except RunError as error:
            message = f"the collective benchmark with {world_size} workers failed, so no peak is known: {error}"
            warnings.append(WarningRecord(code="no-link-peak", message=message))
    return warnings


def link_costs(run: Run) -> dict[int, AllReduceCost]:
    """α and β of all-reduce by world size, where the benchmark could be fitted."""
    costs = {}
    for world_size, record in run.comm.items():
        model = analyse_link(record).models.get("all-reduce")
        if model is not None:
            costs[world_size] = AllReduceCost(
                alpha_s=model.alpha_s, beta_bytes_per_s=model.beta_bytes_per_s, segment_s=model.segment_s
            )
    return costs
