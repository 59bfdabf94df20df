"""The four experiments by name, and what each adds to its report."""

from collections.abc import Callable

from worldsize.analysis.study import StudyAnalysis
from worldsize.report.experiments import batch_sweep, ddp_large_batch, dp_scaling, sync_ladder
from worldsize.report.section import Section

EXPERIMENTS: dict[str, Callable[[StudyAnalysis], Section]] = {
    "batch-sweep": batch_sweep.section,
    "dp-scaling": dp_scaling.section,
    "ddp-large-batch": ddp_large_batch.section,
    "sync-ladder": sync_ladder.section,
}
