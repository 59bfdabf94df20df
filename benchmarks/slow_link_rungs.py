"""How near strategies that send less come to what a slow link allows: VGG-11, 1 Gbit/s and 100 Mbit/s (link_cases.py).

What each costs in accuracy is measured by rung_accuracy.py: it does not depend on the link.
"""

from typing import Any

from link_cases import AUTO, DDP, Case, measure

REACHABLE_LIMIT, FP32_LIMIT = 1.08, 0.40
"""Asked of the best rung: over max(compute, forward + wire) at 1 Gbit/s; over the bytes of fp32 ÷ link rate at
100 Mbit/s."""


def _planned(name: str) -> dict[str, Any]:
    return {"strategy": name, "bucket_mb": "auto"}


RUNGS: dict[str, dict[str, Any]] = {
    "ddp-bf16": {"strategy": "ddp-bf16"},
    "powersgd": {"strategy": "powersgd"},
    "int8": {"strategy": "int8"},
    **{f"{name}, auto": _planned(name) for name in ("bucketed-bf16", "bucketed-powersgd", "bucketed-int8")},
}
EXACT: dict[str, dict[str, Any]] = {DDP: {"strategy": "ddp"}, AUTO: _planned("bucketed")}
CASES = (
    Case("1gbit", 32, {**EXACT, **RUNGS}, 16),
    # An fp32 step takes 3 s here, so only one exact strategy, and few blocks.
    Case("100mbit", 32, {DDP: EXACT[DDP], **RUNGS}, 6),
)


def run(data_dir: str | None) -> None:
    """Measure and print. Raises UsageError where hosts cannot be emulated."""
    for name, result in measure("slow-link-rungs", CASES, data_dir).items():
        found = result["variants"]
        reached, wire = (
            min(found[rung][key]["value"] for rung in RUNGS) for key in ("over_reachable", "over_fp32_wire")
        )
        print(
            f"{name}, best rung: {reached:.2f} of what can be reached (asked at 1 Gbit/s: {REACHABLE_LIMIT}), "
            f"{wire:.2f} of the wire of fp32 (asked at 100 Mbit/s: {FP32_LIMIT})"
        )
