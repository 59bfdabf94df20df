"""How near each exact strategy comes to what a link of 1 Gbit/s allows: VGG-11, two batches (link_cases.py).

Asked: our own buckets, sized by themselves, take at most 1.20 of max(compute, forward + wire), and no longer than DDP.
"""

from typing import Any

from link_cases import AUTO, DDP, Case, measure

LIMIT = 1.20
VARIANTS: dict[str, dict[str, Any]] = {
    "all-reduce": {"strategy": "all-reduce"},  # the first: computing is timed by its workers, whose model has no hooks
    "gather-scatter": {"strategy": "gather-scatter"},
    DDP: {"strategy": "ddp"},
    "ddp, 5 MB buckets": {"strategy": "ddp", "bucket_mb": 5.0},
    AUTO: {"strategy": "bucketed", "bucket_mb": "auto"},
}
CASES = (Case("1gbit", 32, VARIANTS, 12), Case("1gbit", 64, VARIANTS, 12))


def run(data_dir: str | None) -> None:
    """Measure and print. Raises UsageError where hosts cannot be emulated."""
    for name, result in measure("slow-link", CASES, data_dir).items():
        reached, gain = result["variants"][AUTO]["over_reachable"]["value"], result["ddp_over_auto"]["value"]
        print(f"{name}: {AUTO} takes {reached:.2f} of what can be reached (asked: {LIMIT:.2f}), ddp {gain:.2f} of that")
