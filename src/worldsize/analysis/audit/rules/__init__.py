"""The rules of an audit, a group to a file; `RULES` is all of them (docs/audit.md)."""

from worldsize.analysis.audit.findings import Rule
from worldsize.analysis.audit.rules import (
    accuracy,
    bandwidth,
    base,
    batches,
    bold,
    claims,
    collectives,
    contradictions,
    gains,
    impossible,
    kinds,
    parts,
    plausible,
    rates,
    ratios,
    reporting,
    sizes,
    summaries,
    traffic,
)

RULES: tuple[Rule, ...] = (
    *impossible.RULES,
    *ratios.RULES,
    *gains.RULES,
    *rates.RULES,
    *batches.RULES,
    *parts.RULES,
    *summaries.RULES,
    *accuracy.RULES,
    *sizes.RULES,
    *traffic.RULES,
    *bandwidth.RULES,
    *collectives.RULES,
    *base.RULES,
    *kinds.RULES,
    *contradictions.RULES,
    *plausible.RULES,
    *claims.RULES,
    *bold.RULES,
    *reporting.RULES,
)
"""Of equally bad findings the one whose rule stands first comes first."""
