"""Claim: a run of 1,024 ranks × 1,000 steps becomes a report within 10 s and 1 GiB on two cores, its page below 5 MB.

The run is made (large_folder.py), its samples are gathered as a study gathers them, and `worldsize report` runs in a
fresh process, REPEATS times from Parquet and once from the lines. How the time is divided comes from a further process.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import keep, say
from large_samples import LargeRun
from worldsize.results.columns import INDEX
from worldsize.study.running import pack_complete

HERE = Path(__file__).parent
CORES = 2
REPEATS = 3
MAX_S, MAX_BYTES, MAX_PAGE_BYTES = 10.0, 2**30, 5_000_000


def run(data_dir: str | None) -> None:
    """Measure, print and keep; needs some 2 GB of disk."""
    truth = LargeRun()
    with tempfile.TemporaryDirectory() as folder, _on_cores(CORES):
        made = Path(folder) / "run"
        say("  making the run")
        subprocess.run([sys.executable, HERE / "large_folder.py", made], check=True)
        began = time.perf_counter()
        assert not pack_complete(made)
        packing_s = time.perf_counter() - began
        os.sync()  # a report is not written while the system still writes 2 GB
        say("  reports from Parquet")
        reports = [_report(made) for _ in range(REPEATS)]
        phases = json.loads(subprocess.check_output([sys.executable, HERE / "large_phases.py", made]))
        found = _speedup(made, truth.worlds[-1])
        sizes = {"lines": _bytes(made, "rank*.jsonl"), "columns": _bytes(made, "*.parquet")}
        page, files = (made / "report" / "index.html").stat().st_size, _bytes(made, "report/*")
        say("  a report from the lines")
        for index in made.glob(f"cells/*/{INDEX}"):
            index.unlink()
        from_lines = _report(made)
    worst_s, peak = max(each["wall_s"] for each in reports), max(each["peak_bytes"] for each in reports)
    expected = truth.speedup(truth.worlds[-1])
    say("")
    print(f"report of {truth.worlds[-1]:,} ranks × {truth.steps:,} steps on {CORES} cores, the worst of {REPEATS}:")
    print(f"  {worst_s:.1f} s (at most {MAX_S:g}), {peak / 2**20:.0f} MiB (at most {MAX_BYTES / 2**20:.0f}),", end=" ")
    print(f"page {page / 1e6:.2f} MB (below {MAX_PAGE_BYTES / 1e6:g})")
    print("  " + ", ".join(f"{name} {share:.0%}" for name, share in phases["shares"].items()))
    print(f"  from the lines: {from_lines['wall_s']:.1f} s, {from_lines['peak_bytes'] / 2**20:.0f} MiB")
    print(f"  speed-up {found:.1f}, true {expected:.1f}; gathering the samples took {packing_s:.1f} s")
    keep(
        "large-run",
        {
            "ranks": truth.worlds[-1],
            "steps": truth.steps,
            "limits": {"wall_s": MAX_S, "peak_bytes": MAX_BYTES, "page_bytes": MAX_PAGE_BYTES},
            "reports": reports,
            "page_bytes": page,
            "report_bytes": files,
            "sample_bytes": sizes,
            "phases": phases,
            "from_lines": from_lines,
            "packing_s": packing_s,
            "speedup": {"true": expected, "found": found},
        },
    )


def _report(made: Path) -> dict[str, float]:
    """Time and peak memory of `worldsize report` in a fresh process."""
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "worldsize", "report", made], stdout=subprocess.DEVNULL)
    # Of this child alone; resource.getrusage would give the largest of all.
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    wall_s = time.perf_counter() - began
    return {"wall_s": wall_s, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_bytes": usage.ru_maxrss * 1024}


def _speedup(made: Path, world: int) -> float:
    """The scaled speed-up that the report says of the largest world."""
    with (made / "report" / "results.csv").open(encoding="utf-8") as file:
        [row] = [row for row in csv.DictReader(file) if row["world_size"] == str(world)]
    return float(row["scaled_speedup"])


def _bytes(made: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in made.rglob(pattern) if path.is_file())


@contextmanager
def _on_cores(count: int) -> Iterator[None]:
    """Keep this process and those that it starts on so many cores."""
    before: Any = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
