"""What advice is made of: a finding, the numbers behind it, its likely cause, what to try, and what that may bring."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """One number that a finding stands on."""

    label: str
    """What it is, in the words of method.md."""
    value: str
    """Formatted, with its unit, and its interval if it has one."""


@dataclass(frozen=True)
class Advice:
    """One thing that limits a configuration, and what to do about it."""

    code: str
    """Stable, for scripts: `input-bound`, `communication-bound`, `root-bound` …"""
    cell_id: str | None
    """The cell it speaks of; None for the study as a whole."""
    finding: str
    """What was found, in one sentence."""
    evidence: tuple[Evidence, ...]
    cause: str
    """The likely cause, in one sentence."""
    next_step: str
    """What to try next, in one sentence."""
    command: str | None
    """The exact command that tries it; None where no command does."""
    gain: str | None
    """What it may bring at most, with its unit; None where that cannot be told from this run."""
    gain_basis: str | None
    """Which numbers the gain was computed from, and what it assumes."""
