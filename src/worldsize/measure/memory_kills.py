"""How often the kernel has killed a process of this machine because memory ran out."""

from pathlib import Path

COUNTER = Path("/proc/vmstat")


def memory_kills(counter: Path = COUNTER) -> int | None:
    """The counter `oom_kill` of the kernel, memory limits of control groups included; None where it is not told."""
    try:
        lines = counter.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(found[0]) if found else None
