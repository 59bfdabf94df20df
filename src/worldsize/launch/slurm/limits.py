"""How long a job may take, as Slurm writes it."""

import math
import re

from worldsize.errors import UsageError

SIGNAL_BEFORE_S = 120
"""How long before its time limit a job is told to end in order; a short one shortly before."""
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<parts>\d+(?::\d+){0,2})")


def minutes(text: str) -> int:
    """`90`, `90:00`, `1:30:00`, `1-0`, `1-6:30` or `1-6:30:00` in whole minutes. Raises UsageError for others."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"--time: {text!r} was given; minutes, minutes:seconds or [days-]hours:minutes:seconds is allowed"
        )
    parts = [int(part) for part in found["parts"].split(":")]
    if found["days"] is not None:
        hours, mins, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 3:
        hours, mins, seconds = parts
    else:
        hours, mins, seconds = 0, *[*parts, 0][:2]
    whole = int(found["days"] or 0) * 24 * 60 + hours * 60 + mins + math.ceil(seconds / 60)
    if whole < 1:
        raise UsageError(f"--time: {text!r} was given; a job needs at least a minute")
    return whole


def signal_delay_s(limit_min: int) -> int:
    """Seconds before the limit at which the job is told; Slurm may do so up to a minute sooner."""
    return min(SIGNAL_BEFORE_S, limit_min * 60 // 4)
